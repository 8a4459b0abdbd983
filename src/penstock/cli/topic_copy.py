"""`penstock topic export` and `import`: a topic's entries as lines of JSON, exactly, and back."""

import base64
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import msgspec
from cyclopts import Parameter

from penstock.backend.entry import Appended, Stored
from penstock.backend.facts import position
from penstock.cli.dialects import Dialect, DialectName
from penstock.cli.given import FileOrPipe, stdin
from penstock.cli.looking import absent, topic_there
from penstock.cli.places import Place
from penstock.cli.progress import progress
from penstock.cli.saying import warn
from penstock.cli.servers import HERE, At, connected
from penstock.cli.topic_files import LONGEST_LINE, is_written_to, lines_of, reading, writing
from penstock.diagnosis.finding import amount
from penstock.errors import PublishError, TopicError

if TYPE_CHECKING:
    from penstock.app import Penstock
    from penstock.cli.progress import Show

_AT_ONCE, _BYTES_AT_ONCE = 500, 8 << 20
_NAMED = 3
_THERE = frozenset({Appended.NEW, Appended.KNOWN})
_AHEAD = "ahead of the server's clock, so that all that comes to {topic} would have to lie behind"
_REFUSED = {  # one, or more of them
    Appended.OLDER: ("is older than the newest of {topic}", "are older than the newest of {topic}"),
    Appended.OTHER: (
        "differs from what {topic} has under the same id",
        "differ from what {topic} has under the same ids",
    ),
    Appended.AHEAD: (f"is {_AHEAD} it", f"are {_AHEAD} them"),
}
_ALONE = "To append what was refused, put that alone into a file for --new-ids, which gives all of it new ids"
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
    file: FileOrPipe = Path("-"),
    /,
    *,
    after: Place = "earliest",
    dialect: Dialect = "native",
    server: At = HERE,
) -> None:
    """Write the entries of a topic to a file, one JSON object per line, exactly as they are stored.

    Groups, retries and dead letters are not in it. Of a topic that is divided, name one of its partitions.

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
        runner.run(_check_whole(app, topic))
        half_done, is_shown = partial(_half_exported, file), str(file) != "-" or not sys.stdout.isatty()
        with progress("exporting", interrupted=half_done, is_shown=is_shown) as show, writing(file) as out:
            count = runner.run(_export(app, topic, after, dialect, out, show))
    print(f"Exported {amount(count, 'entry', 'entries')} of {topic!r}", file=sys.stderr)


async def _check_whole(app: "Penstock", topic: str) -> None:
    """Refuse a topic of which nothing is in its own stream, because it is divided."""
    found, count = await topic_there(app, topic), await app.backend.partitions(topic)
    if count is not None and not found.exists:
        raise await absent(app, topic)
    if count is not None:
        warn(f"{topic!r} is divided: what is in its partitions, {topic}:p0 to {topic}:p{count - 1}, is not exported")


async def _export(app: "Penstock", topic: str, after: Any, dialect: DialectName, out: IO[bytes], show: "Show") -> int:
    from penstock.message.wire import Wire
    from penstock.tail.alone import LoneReader

    count, total = 0, (await topic_there(app, topic)).length
    async with LoneReader(app.backend, topic, after, Wire(dialect)) as reader:
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


def _half_exported(file: Path, count: int) -> str:
    return (
        f"written so far: about {amount(count, 'entry', 'entries')}" if is_written_to(file) else f"{file} is as it was"
    )


def import_(
    topic: str,
    file: FileOrPipe = Path("-"),
    /,
    *,
    new_ids: Annotated[bool, Parameter(negative=(), show_default=False)] = False,
    server: At = HERE,
) -> None:
    """Append what penstock topic export has written, exactly, under the same entry ids. It may be repeated.

    What is there already is left out. Refused, with exit code 1, is what cannot be under its id: it is older than the
    newest entry, differs from what is there, or is ahead of the server's clock by more than a minute.

    Parameters
    ----------
    topic
        The topic; it is made if there is none.
    file
        Where from; stdin unless given, or if it is -.
    new_ids
        Give each entry a new id, as if it was published now. What is there already, under any id, is there twice then.
    """
    fates, first, is_listed = Counter[Appended](), defaultdict[Appended, list[str]](list), False
    half_done, is_shown = partial(_half_imported, topic), str(file) != "-" or not stdin().isatty()
    with (
        connected(server) as (app, runner),
        reading(file) as lines,
        progress("importing", interrupted=half_done, is_shown=is_shown) as show,
    ):
        runner.run(_check_undivided(app, topic))
        for some in _entries(lines, file):
            told = runner.run(app.backend.append(topic, some, keep_ids=not new_ids))
            if not is_listed and not _THERE.isdisjoint(told):
                runner.run(app.backend.register(topic))
                is_listed = True
            fates.update(told)
            for fate, entry in zip(told, some, strict=True):
                if len(first[fate]) < _NAMED:
                    first[fate].append(entry.id)
            show(fates.total())
    count = fates[Appended.KNOWN]
    known = f"; {count:,} {'was' if count == 1 else 'were'} there already" if count else ""
    print(f"Imported {amount(fates[Appended.NEW], 'entry', 'entries')} to {topic!r}{known}", file=sys.stderr)
    if refused := [_refused(fate, fates[fate], first[fate], topic) for fate in _REFUSED if fates[fate]]:
        raise TopicError(f"refused, and not imported: {'; '.join(refused)}. {_ALONE}")


def _half_imported(topic: str, count: int) -> str:
    return f"imported to {topic!r} so far, or there already: about {amount(count, 'entry', 'entries')} of the file"


async def _check_undivided(app: "Penstock", topic: str) -> None:
    count = await app.backend.partitions(topic)
    if count is not None:
        raise TopicError(
            f"nobody reads {topic!r} itself, which is divided: import to its partitions, {topic}:p0 to"
            f" {topic}:p{count - 1}, what was exported from each"
        )


def _refused(fate: "Appended", count: int, ids: list[str], topic: str) -> str:
    named = f"{', '.join(ids)}{', …' if count > len(ids) else ''}"
    return f"{amount(count, 'entry', 'entries')} {_REFUSED[fate][count > 1].format(topic=repr(topic))} ({named})"


def _entries(lines: IO[bytes], file: Path) -> Iterator[Sequence[Stored]]:
    some, size = list[Stored](), 0
    for number, line in enumerate(lines_of(lines), 1):
        if not line.strip():
            continue
        try:
            some.append(_entry(line))
        except (ValueError, msgspec.DecodeError) as error:
            raise PublishError(
                f"line {number:,} of {file} is no exported entry: {error}; what is before it may be imported already"
            ) from error
        size += len(line)
        if len(some) == _AT_ONCE or size >= _BYTES_AT_ONCE:
            yield some
            some, size = [], 0
    if some:
        yield some


def _entry(line: bytes) -> Stored:
    if len(line) > LONGEST_LINE:
        raise ValueError(f"it is longer than {LONGEST_LINE:,} bytes, which no entry is")
    entry = _decode(line)
    milliseconds, number = position(entry.entry_id)
    if not 0 < max(milliseconds, number) < 2**64:
        raise ValueError(f"{entry.entry_id!r} is no entry id")
    if not entry.fields or len(entry.fields) % 2:
        raise ValueError("its fields are no names and values in turn")
    return Stored(f"{milliseconds}-{number}", [_read(value) for value in entry.fields])


def _written(value: bytes) -> str | _Base64:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return _Base64(base64.b64encode(value).decode())


def _read(value: str | _Base64) -> bytes:
    return value.encode() if isinstance(value, str) else base64.b64decode(value.base64, validate=True)
