"""`penstock dead edit`: a dead letter is mended, and tried again as a new message."""

import os
import shlex
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.cli.given import Given, parsed, text_given
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
    body: Given | None = None,
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
        The new body as JSON, @FILE, or - for standard input; without it, an editor opens.
    group
        The group that gave it up, if several did.
    """
    letter = ask(server, lambda app: the_one(letters_of(app, topic), topic, id, group))
    former, is_text = _body_of(letter)
    text = text_given(body) if body is not None else _from_editor(former)
    if body is None and text.strip() in ("", former.strip()):
        print("Nothing was changed.")
        return
    changed: Any = text.encode() if is_text else _json(text, keep=body is None)

    async def give_back(app: "Penstock") -> str | None:
        return await letters_of(app, topic).edit(letter, changed)

    new = ask(server, give_back)
    if new is None:
        raise NotThereError(f"dead letter {letter.letter_id} of {topic!r} was replayed or purged meanwhile")
    facts = {"id": new, "edited_from": letter.id or letter.entry_id, "topic": topic, "group": letter.group}
    print_one(facts, output)


def _json(text: str, *, keep: bool) -> Any:
    """What was written, as JSON. If it is none, it is kept in a file: it was work."""
    try:
        return parsed(text, "the body")
    except UsageError as error:
        if not keep:
            raise
        handle, file = tempfile.mkstemp(prefix="penstock-", suffix=".json", text=True)
        with os.fdopen(handle, "w", encoding="utf-8") as kept:
            kept.write(text)
        raise UsageError(f"{error} It is kept: mend it, and give --body @{file}.") from None


def _body_of(letter: "Letter") -> tuple[str, bool]:
    """As text to be edited; and whether it is plain text, not JSON. Of one that cannot be read, whatever is there."""
    import msgspec

    from penstock.message.fields import PAYLOAD
    from penstock.message.wire import Wire

    try:
        body = Wire().unpack(letter.topic, letter.entry_id, letter.raw).body
    except MalformedError:
        fields = dict(zip(letter.raw[::2], letter.raw[1::2], strict=False))
        return fields.get(PAYLOAD, b"").decode(errors="backslashreplace"), False
    if isinstance(body, bytes):
        return body.decode(errors="backslashreplace"), True
    return msgspec.json.format(msgspec.json.encode(body), indent=2).decode() + "\n", False


def _from_editor(text: str) -> str:
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if not editor:
        raise UsageError("there is no editor: set $EDITOR, or give --body.")
    with tempfile.TemporaryDirectory(prefix="penstock-") as directory:
        file = Path(directory, "body.json")
        file.write_text(text, encoding="utf-8")
        try:
            ended = subprocess.run([*shlex.split(editor), str(file)], check=False).returncode
        except OSError as error:
            raise EditorFailedError(f"the editor {editor!r} cannot be started: {error}") from None
        if ended:
            raise EditorFailedError(f"the editor {editor!r} ended with exit code {ended}; nothing was changed")
        return file.read_text(encoding="utf-8")
