"""`penstock dead edit`: a dead letter is mended, and tried again as a new message."""

import os
import shlex
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.cli.given import Body, File, body_given, json_of
from penstock.cli.letters import letters_of, the_one
from penstock.cli.printing import Form, print_one
from penstock.cli.servers import HERE, At, ask
from penstock.cli.usage import NotThereError, UsageError
from penstock.errors import MalformedError, PenstockError

if TYPE_CHECKING:
    from penstock.app import Penstock
    from penstock.delivery.letters import Letter


class EditorFailedError(PenstockError):
    """The user's editor did not end well."""


def edit(
    topic: str,
    id: str,
    /,
    *,
    body: Body = None,
    file: File = None,
    group: str | None = None,
    output: Form = None,
    server: At = HERE,
) -> None:
    """Change the body of a dead letter and give it back to the group that gave it up, as a new message.

    It opens in $VISUAL or $EDITOR; left as it was, or empty, nothing is changed. The new message has an id of its own,
    and the former one in its header edited-from; key, type and all other headers stay. The dead letter is gone.

    Parameters
    ----------
    topic
        Its topic.
    id
        The message's UUID, or the letter's own id.
    body
        The new body, as JSON. Without it, and without --file, an editor opens.
    file
        The new body is what is in this file; - is stdin.
    group
        The group that gave it up, if several did.
    """
    given = body_given(body, file)
    letter = ask(server, lambda app: the_one(letters_of(app, topic), topic, id, group))
    former, is_plain = _body_of(letter)
    if given is None:
        text = _from_editor(former)
        if text.strip() in (b"", former.strip()):
            print("Nothing was changed.")
            return
    else:
        text = given
    changed: Any = text if is_plain else _json(text, keep=given is None)

    async def give_back(app: "Penstock") -> str | None:
        return await letters_of(app, topic).edit(letter, changed)

    new = ask(server, give_back)
    if new is None:
        raise NotThereError(f"dead letter {letter.letter_id} of {topic!r} was replayed or purged meanwhile")
    facts = {"id": new, "edited_from": letter.id or letter.entry_id, "topic": topic, "group": letter.group}
    print_one(facts, output)


def _json(text: bytes, *, keep: bool) -> Any:
    """What was written, as JSON. If it is none, it is kept in a file: it was work."""
    try:
        return json_of(text)
    except UsageError as error:
        if not keep:
            raise
        handle, file = tempfile.mkstemp(prefix="penstock-", suffix=".json")
        with os.fdopen(handle, "wb") as kept:
            kept.write(text)
        raise UsageError(f"{error} It is kept: mend it, and give --file {file}.") from None


def _body_of(letter: "Letter") -> tuple[bytes, bool]:
    """As it is to be edited, and whether it is bytes instead of JSON. Of one that cannot be read, what is there."""
    import msgspec

    from penstock.message.fields import PAYLOAD
    from penstock.message.wire import Wire

    try:
        body = Wire().unpack(letter.topic, letter.entry_id, letter.raw).body
    except MalformedError:
        fields = dict(zip(letter.raw[::2], letter.raw[1::2], strict=False))
        return fields.get(PAYLOAD, b""), False
    if isinstance(body, bytes):
        return body, True
    return msgspec.json.format(msgspec.json.encode(body), indent=2) + b"\n", False


def _from_editor(body: bytes) -> bytes:
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if not editor:
        raise UsageError("there is no editor: set $EDITOR, or give --body or --file.")
    with tempfile.TemporaryDirectory(prefix="penstock-") as directory:
        file = Path(directory, "body.json")
        file.write_bytes(body)
        try:
            ended = subprocess.run([*shlex.split(editor), str(file)], check=False).returncode
        except OSError as error:
            raise EditorFailedError(f"the editor {editor!r} cannot be started: {error}") from None
        if ended:
            raise EditorFailedError(f"the editor {editor!r} ended with exit code {ended}; nothing was changed")
        return file.read_bytes()
