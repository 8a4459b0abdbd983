"""Dead letters into a lake without a server: files as an archive would write them."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.lake import Commit, Lake
from penstock.lake.dead_letters import SCHEMA
from penstock.lake.files import staged_file
from penstock.lake.words import DEAD
from tests.lake.pouring import START


@dataclass(frozen=True, kw_only=True)
class Letter:
    topic: str = "orders"
    group: str = "billing"
    id: str | None
    died: datetime
    entry_id: str = "1-0"
    type: str | None = "order"
    reason: str = "it failed"
    error: str = "builtins.ValueError"
    traceback: str = ""
    traceparent: str = ""
    attempts: int = 5
    replay: str = ""
    replays: int = 0
    lost: bool = False
    details: dict[str, str] = field(default_factory=dict)
    fields: Sequence[bytes] = ()
    broken: str | None = None
    payload: str | None = "{}"


def after(hours: float) -> datetime:
    """So long after the first row that `pouring` pours."""
    return START + timedelta(hours=hours)


def bury(lake: Lake, letters: Sequence[Letter]) -> None:
    """One commit, with a file for each topic and day."""
    staging = lake.staging("burial")
    files = []
    for number, (topic, day) in enumerate(sorted({(letter.topic, _day(letter)) for letter in letters})):
        file = staging / f"{number}.parquet"
        ours = [_cells(letter, at) for at, letter in enumerate(letters) if (letter.topic, _day(letter)) == (topic, day)]
        pq.write_table(pa.Table.from_pylist(ours, SCHEMA), file)
        place = {"topic": topic, "date": day}
        files.append(staged_file(lake.path, file, f"{staging.name}-{number}", DEAD, place))
    count = lake.snapshot().writers.get("burial", -1) + 1
    lake.commit(Commit(writer="burial", number=count, add=tuple(files)))


def _day(letter: Letter) -> str:
    return letter.died.astimezone(UTC).date().isoformat()


def _cells(letter: Letter, number: int) -> dict[str, Any]:
    milliseconds = int(letter.died.timestamp() * 1000)
    return {
        **asdict(letter),
        "letter_id": f"{milliseconds}-{number}",
        "first": letter.died - timedelta(minutes=1),
        "last": letter.died,
        "details": list(letter.details.items()),
    }
