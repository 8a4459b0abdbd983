"""`penstock topic export` and `import`: a topic's entries as lines of JSON, exactly, and back."""

import base64
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import msgspec
from cyclopts import Parameter

from penstock.cli.given import stdin
from penstock.cli.looking import topic_there
from penstock.cli.places import Place
from penstock.cli.progress import progress
from penstock.cli.saying import warn
from penstock.cli.servers import HERE, At, connected
from penstock.cli.usage import UsageError
from penstock.errors import PublishError, TopicError

if TYPE_CHECKING:
    from penstock.app import Penstock
    from penstock.backend.entry import Stored
    from penstock.cli.progress import Show

_AT_ONCE = 500
_encode_lines = msgspec.json.Encoder().encode_lines


class _Base64(msgspec.Struct):
    """A name or value that is no UTF-8."""

    base64: str


class _Entry(msgspec.Struct):
    """One entry: its id, then names and values in turn."""

    entry_id: str
    fields: list[str | _Base64]


_decode = msgspec.json.Decoder(_Entry).decode


def export(
    topic: str,
    file: Annotated[Path, Parameter(allow_leading_hyphen=True)] = Path("-"),
    /,
    *,
    after: Place = "earliest",
    server: At = HERE,
) -> None:
    """Write the entries of a topic to a file, one JSON object per line, exactly as they are stored.

    Groups, retries and dead letters are not in it.

    Parameters
    ----------
    topic
        Its whole name.
    file
        Where to; stdout unless given, or if it is -.
    after
        Only what lies behind this place: an entry id, a message's UUID, or a moment, like yesterday.
    """
    with connected(server) as (app, runner):
        runner.run(topic_there(app, topic))
        with _writing(file) as out, progress("exporting") as show:
            count = runner.run(_export(app, topic, after, out, show))
    print(f"Exported {count:,} entries of {topic!r}", file=sys.stderr)


async def _export(app: "Penstock", topic: str, after: Any, out: IO[bytes], show: "Show") -> int:
    from penstock.tail.alone import LoneReader

    count, total = 0, (await topic_there(app, topic)).length
    async with LoneReader(app.backend, topic, after) as reader:
        while True:
            step = await reader.read()
            if step.gap is not None:
                warn(f"entries behind {step.gap.after} are missing, {step.gap.reason} before they were read")
            out.write(
                _encode_lines([_Entry(one.id, [_written(value) for value in one.fields]) for one in step.entries])
            )
            count += len(step.entries)
            show(count, total)
            if step.is_at_end:
                return count


def import_(
    topic: str,
    file: Annotated[Path, Parameter(allow_leading_hyphen=True)] = Path("-"),
    /,
    *,
    new_ids: Annotated[bool, Parameter(negative=(), show_default=False)] = False,
    server: At = HERE,
) -> None:
    """Append what penstock topic export has written, exactly, under the same entry ids. It may be repeated.

    Parameters
    ----------
    topic
        The topic; it is made if there is none.
    file
        Where from; stdin unless given, or if it is -.
    new_ids
        Give each entry a new id, as if it was published now. Repeated, they are there twice.
    """
    count = refused = 0
    with connected(server) as (app, runner), _reading(file) as lines, progress("importing") as show:
        for some in _entries(lines, file):
            ids = runner.run(app.backend.append(topic, some, keep_ids=not new_ids))
            count, refused = count + len(ids), refused + ids.count(None)
            show(count)
        if count > refused:
            runner.run(app.backend.register(topic))
    print(f"Imported {count - refused:,} entries to {topic!r}", file=sys.stderr)
    if refused:
        raise TopicError(
            f"{refused:,} entries are older than the newest of {topic!r}, and were not imported: --new-ids gives them"
            " new ids"
        )


def _entries(lines: IO[bytes], file: Path) -> "Iterator[Sequence[Stored]]":
    from penstock.backend.entry import Stored

    some: list[Stored] = []
    for number, line in enumerate(lines, 1):
        try:
            entry = _decode(line)
            some.append(Stored(entry.entry_id, [_read(value) for value in entry.fields]))
        except (ValueError, msgspec.DecodeError) as error:
            raise PublishError(
                f"line {number:,} of {file} is no exported entry: {error}; what is before it may be imported already"
            ) from error
        if len(some) == _AT_ONCE:
            yield some
            some = []
    if some:
        yield some


def _written(value: bytes) -> str | _Base64:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return _Base64(base64.b64encode(value).decode())


def _read(value: str | _Base64) -> bytes:
    return value.encode() if isinstance(value, str) else base64.b64decode(value.base64, validate=True)


@contextmanager
def _writing(file: Path) -> Iterator[IO[bytes]]:
    if str(file) == "-":
        yield sys.stdout.buffer
        return
    if file.exists() and not file.is_file():  # a pipe, or a device
        with _opened(file, "wb") as out:
            yield out
        return
    # Beside it until it is whole: an export that fails leaves what was there before, and no half that looks whole.
    part = file.with_name(f"{file.name}.part")
    with _opened(part, "wb") as out:
        try:
            yield out
        except BaseException:
            part.unlink()
            raise
    part.replace(file)


@contextmanager
def _reading(file: Path) -> Iterator[IO[bytes]]:
    if str(file) == "-":
        yield stdin()
        return
    with _opened(file, "rb") as lines:
        yield lines


def _opened(file: Path, mode: str) -> Any:
    try:
        return file.open(mode)
    except OSError as error:
        raise UsageError(f"{file} cannot be opened: {error.strerror}.") from error
