"""`penstock dead edit`: a dead letter is mended, and tried again as a new message."""

import os
import shlex
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

from cyclopts import Parameter

from penstock.cli.confirming import YesToBody, only_tried
from penstock.cli.dialects import DialectName
from penstock.cli.given import Body, File, body_given, json_of
from penstock.cli.letters import letters_of, the_one
from penstock.cli.printing import Form, print_one
from penstock.cli.saying import warn
from penstock.cli.servers import HERE, At, Server, ask
from penstock.cli.usage import NotThereError, UsageError
from penstock.errors import MalformedError, PenstockError

if TYPE_CHECKING:
    from penstock.delivery.letters import Letter


_MOST_NAMES = 20


class EditorFailedError(PenstockError):
    """The user's editor did not end well."""


@dataclass(frozen=True, kw_only=True)
class NewBody:
    """The body that a letter is to have, if it is given."""

    body: Body = None
    """The new body, as JSON. Without it, and without --file, an editor opens."""

    file: File = None
    """The new body is what is in this file; - is stdin."""


def edit(
    topic: str,
    id: str,
    /,
    *,
    new: Annotated[NewBody, Parameter(name="*")] = NewBody(),  # noqa: B008 - frozen
    group: str | None = None,
    dialect: DialectName | None = None,
    yes: YesToBody = False,
    output: Form = None,
    server: At = HERE,
) -> None:
    """Change the body of a dead letter and give it back to the group that gave it up, as a new message.

    It opens in $VISUAL or $EDITOR: saved with another body, that is given back; left as it was, or empty, nothing is
    changed. A body that is given on the command line needs --yes. The new message has an id of its own, and the former
    one in its header edited-from; key, type and all other headers stay. The dead letter is gone.

    Parameters
    ----------
    topic
        Its topic.
    id
        The message's UUID, or the letter's own id.
    group
        The group that gave it up, if several did.
    dialect
        How messages are written on the topic. Without it natively, unless the letter shows that they are not.
    """
    given, spoken = body_given(new.body, new.file), dialect or "native"
    letter = ask(server, lambda app: the_one(app, topic, id, group, spoken))
    if dialect is None:
        _check_native(letter)
    if (why := letter.unfit(edited=True)) is not None:
        raise UsageError(f"dead letter {letter.letter_id} of {topic!r} cannot be edited: {why}.")
    former, is_plain = _body_of(letter, spoken)
    if given is not None:
        changed = given if is_plain else json_of(given)
        if not yes:
            only_tried(f"deliver dead letter {letter.letter_id} of {topic!r} to group {letter.group!r} with this body")
        _given_back(letter, changed, spoken, output, server)
        return
    text = _from_editor(former)
    if text.strip() in (b"", former.strip()):
        print("Nothing was changed.")
        return
    with _kept_if_in_vain(text):
        _given_back(letter, text if is_plain else json_of(text), spoken, output, server)


def _check_native(letter: "Letter") -> None:
    from penstock.delivery.editing import seems_native

    if seems_native(letter.stored):
        return
    names = ", ".join(name.decode(errors="backslashreplace") for name in letter.raw[:_MOST_NAMES:2])
    raise UsageError(
        f"dead letter {letter.letter_id} of {letter.topic!r} is not written natively, but has the fields {names}: give"
        f" --dialect, one of {', '.join(get_args(DialectName))}, as the topic's readers have it."
    )


def _given_back(letter: "Letter", body: Any, dialect: DialectName, output: str | None, server: Server) -> None:
    topic = letter.topic
    new = ask(server, lambda app: letters_of(app, topic, dialect).edit(letter, body))
    if new is None:
        raise NotThereError(f"dead letter {letter.letter_id} of {topic!r} was replayed or purged meanwhile")
    facts = {"id": new, "edited_from": letter.id or letter.entry_id, "topic": topic, "group": letter.group}
    print_one(facts, output)


@contextmanager
def _kept_if_in_vain(text: bytes) -> Iterator[None]:
    """What was written in an editor was work: if it comes to nothing, it is kept in a file."""
    try:
        yield
    except (UsageError, PenstockError, KeyboardInterrupt):
        handle, file = tempfile.mkstemp(prefix="penstock-", suffix=".json")
        with os.fdopen(handle, "wb") as kept:
            kept.write(text)
        warn(f"what was written is kept: mend it, and give --file {file}")
        raise


def _body_of(letter: "Letter", dialect: DialectName) -> tuple[bytes, bool]:
    """As it is to be edited, and whether it is bytes instead of JSON. Of one that cannot be read, what is there."""
    import msgspec

    from penstock.message.fields import PAYLOAD
    from penstock.message.wire import Wire

    try:
        body = Wire(dialect).unpack(letter.topic, letter.entry_id, letter.raw).body
    except MalformedError:
        fields = dict(zip(letter.raw[::2], letter.raw[1::2], strict=False))
        return fields.get(PAYLOAD, b""), False
    if isinstance(body, bytes):
        return body, True
    return msgspec.json.format(msgspec.json.encode(body), indent=2) + b"\n", False


def _from_editor(body: bytes) -> bytes:
    editor = os.environ.get("VISUAL", "").strip() or os.environ.get("EDITOR", "").strip()
    if not editor:
        raise UsageError("there is no editor: set $EDITOR, or give --body or --file.")
    with tempfile.TemporaryDirectory(prefix="penstock-") as directory:
        file = Path(directory, "body.json")
        file.write_bytes(body)
        try:
            ended = subprocess.run([*shlex.split(editor), str(file)], check=False).returncode
        except (OSError, ValueError) as error:  # no such program, or no end of a quotation
            raise EditorFailedError(f"the editor {editor!r} cannot be started: {error}") from None
        if ended:
            raise EditorFailedError(f"the editor {editor!r} ended with exit code {ended}; nothing was changed")
        try:
            return file.read_bytes()
        except OSError as error:
            raise EditorFailedError(f"the editor {editor!r} left no file: {error}; nothing was changed") from None
