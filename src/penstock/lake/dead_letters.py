"""Dead letters into a lake: each once, however many copy them at a time, and whatever is killed when.

They are few beside the messages, so this needs no Spark. How far the lake has come is part of the commit that brings
letters, and a commit is made only if nobody came further since: letters that another run has brought are not brought
again. What was replayed or purged before it was copied is not in the lake.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.backend import keys
from penstock.backend.entry import Letter
from penstock.backend.facts import position
from penstock.backend.letter_pages import Asks, facts_of, letter_pages
from penstock.errors import GroupMissingError
from penstock.lake.files import staged_file
from penstock.lake.lake import Lake, ReplacedError
from penstock.lake.manifest import Commit, DataFile, Reached, Snapshot
from penstock.lake.words import DEAD
from penstock.message import fields
from penstock.message.faults import Unreadable
from penstock.message.strict_json import parse
from penstock.options import Limits

_MOST_LETTERS = 20_000
_MOST_BYTES = 64 << 20
_NO_DATE = "none"
_STAMP = pa.timestamp("us", "UTC")
_TEXTS = pa.map_(pa.string(), pa.string())
SCHEMA = pa.schema(
    [("letter_id", pa.string()), ("died", _STAMP), ("group", pa.string()), ("entry_id", pa.string()),
     ("id", pa.string()), ("type", pa.string()), ("reason", pa.string()), ("error", pa.string()),
     ("traceback", pa.string()), ("traceparent", pa.string()), ("attempts", pa.int64()), ("first", _STAMP),
     ("last", _STAMP), ("replay", pa.string()), ("replays", pa.int64()), ("lost", pa.bool_()), ("details", _TEXTS),
     ("fields", pa.list_(pa.binary())), ("broken", pa.string()), ("payload", pa.string())]
)  # fmt: skip


@dataclass(frozen=True)
class _Portion:
    """Letters that are to be committed together, and how far the lake has come with them."""

    letters: Sequence[Letter]
    reached: str
    """Empty if no letter was there to be looked at."""


def copy_dead_letters(lake: Lake, line: Asks, topics: Sequence[str]) -> int:
    """Bring the letters of these topics that the lake lacks into its table `dead`, and return how many that is."""
    return sum(_copy(lake, line, topic) for topic in topics)


def _copy(lake: Lake, line: Asks, topic: str) -> int:
    copied = 0
    while True:
        state = lake.snapshot()
        portion = _next(lake, line, topic, state)
        if not portion.reached:
            return copied
        if _commit(lake, topic, portion, state):
            copied += len(portion.letters)


def _next(lake: Lake, line: Asks, topic: str, state: Snapshot) -> _Portion:
    reached = state.reached.get(keys.dead(topic))
    if reached is None:
        return _portion(line, topic)
    if not _is_behind(line, topic, reached.id):
        return _portion(line, topic, reached.id)
    # The letters' stream was made anew, or the server fell back: which of them are in the lake, only the lake tells. It
    # is asked until all were looked at: `reached` stays above them so long, in this run, or in the one that goes on.
    return _portion(line, topic, known=_known(lake, state, topic), meanwhile=reached.id)


def _is_behind(line: Asks, topic: str, id: str) -> bool:
    """Whether the stream of dead letters never came so far."""
    try:
        facts = line.command(f"cannot look at the dead letters of {topic!r}", "XINFO", "STREAM", keys.dead(topic))
    except GroupMissingError:  # there is none now; the next will have higher ids, unless the clock goes back
        return False
    last = dict(zip(facts[::2], facts[1::2], strict=True))[b"last-generated-id"].decode()
    return position(last) < position(id)


def _known(lake: Lake, state: Snapshot, topic: str) -> set[tuple[str, str | None, str | None]]:
    names = ["letter_id", "group", "entry_id"]
    files = [lake.path / file.path for file in state.of(DEAD, topic=topic)]
    rows = [row for file in files for row in pq.ParquetFile(file).read(names).to_pylist()]
    return {(row["letter_id"], row["group"], row["entry_id"]) for row in rows}


def _portion(
    line: Asks,
    topic: str,
    after: str = "",
    known: Collection[tuple[str, str | None, str | None]] = (),
    meanwhile: str = "",
) -> _Portion:
    """Letters behind `after` that are not `known`; if there are more, the lake has reached `meanwhile`, if given."""
    letters: list[Letter] = []
    last, size = "", 0
    for page in letter_pages(line, topic, after):
        fresh = [letter for letter in page if not known or _name(letter) not in known]
        letters += fresh
        size += sum(len(part) for letter in fresh for part in letter.raw)
        last = page[-1].id
        if len(letters) >= _MOST_LETTERS or size >= _MOST_BYTES:
            return _Portion(letters, meanwhile or last)
    return _Portion(letters, last)


def _name(letter: Letter) -> tuple[str, str | None, str | None]:
    facts = facts_of(letter)
    return letter.id, facts.get("group"), facts.get("entry_id")


def _commit(lake: Lake, topic: str, portion: _Portion, state: Snapshot) -> bool:
    """False if another run was faster: then nothing was done."""
    writer = keys.dead(topic)  # no topic has this name
    staging = lake.staging(DEAD)
    with lake.drafting(staging):
        files = tuple(_written(lake, staging, topic, portion.letters))
        commit = Commit(writer=writer, add=files, reached={writer: Reached(portion.reached, "")})
        try:
            lake.commit_next(commit, since=state)
            done = True
        except ReplacedError:
            done = False
    lake.abandon(staging)
    return done


def _written(lake: Lake, staging: Path, topic: str, letters: Sequence[Letter]) -> Iterator[DataFile]:
    """One file for each day on which some of them died."""
    days: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for letter in letters:
        row = _row(letter)
        days[row["died"].astimezone(UTC).date().isoformat() if row["died"] else _NO_DATE].append(row)
    for number, (date, rows) in enumerate(sorted(days.items())):
        file = staging / f"{number:04}.parquet"
        pq.write_table(pa.Table.from_pylist(rows, SCHEMA), file, compression="zstd")
        yield staged_file(lake.path, file, f"{staging.name}-{number:04}", DEAD, {"topic": topic, "date": date})


def _row(letter: Letter) -> dict[str, Any]:
    facts = facts_of(letter)
    pairs = list(zip(letter.raw[::2], letter.raw[1::2], strict=False))
    named = dict(reversed(pairs))  # of a name that occurs twice, the first
    type = named.get(fields.TYPE)
    return {
        **facts,
        "details": list(facts.get("details", {}).items()),
        "fields": list(letter.raw),
        "type": None if type is None else type.decode(errors="backslashreplace"),
        "payload": _payload(named.get(fields.PAYLOAD)),
    }


def _payload(raw: bytes | None) -> str | None:
    """As text, if it is JSON that Penstock would read."""
    try:
        if raw is not None:
            parse(raw, Limits().depth)
            return raw.decode()
    except Unreadable:
        pass
    return None
