"""Where an archive begins, and what it says about how far the lake is. No query runs here."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import redis

from penstock.backend.survey import Position
from penstock.errors import LakeError
from penstock.lake import Commit, Lake, Reached, Snapshot
from penstock.spark.pipelines.archive import Archive
from penstock.spark.pipelines.archived_batches import ArchivedBatches
from penstock.spark.pipelines.batches import StagedBatch
from penstock.spark.queries.place import Place
from penstock.spark.source.offsets import Offset, Piece
from tests.support.servers import Server


@pytest.mark.parametrize("has", ["nothing of the topic", "the topic up to entry 1-0 only"])
def test_a_cursor_that_is_ahead_of_the_lake_is_not_followed(
    server: Server, admin: "redis.Redis", topic: str, tmp_path: Path, has: str
) -> None:
    for number in (1, 2, 3):
        admin.xadd(topic, {"payload": "1"}, id=f"{number}-0")
    admin.xgroup_create(topic, "lake", id="2-0")
    lake = Lake.create(tmp_path / "lake")
    if "1-0" in has:
        lake.commit(Commit(writer="before", number=0, reached={topic: Reached("1-0", "e")}))
    job = Archive(lake=lake.path, topics=[topic], url=server.url)
    with pytest.raises(LakeError, match=f"stands at entry 2-0, but the lake .* has {has}: .*another name"):
        job.run(None)  # type: ignore[arg-type]  # Spark is not asked for anything before that is known


class _Committed:
    """Notes what is committed."""

    def __init__(self, place: Place) -> None:
        self.place, self.lake = place, place.lake
        self.reached: dict[str, Reached] = {}

    def stage(self, rows: Any, number: int, partitions: Any) -> StagedBatch:
        return StagedBatch(number, self.lake.staging("x"), ())

    def commit(self, batch: StagedBatch, reached: Mapping[str, Reached], check: "Callable[[Snapshot], None]") -> None:
        self.reached.update(reached)


class _NoRows:
    def selectExpr(self, *columns: str) -> "_NoRows":  # noqa: N802 - as Spark calls it
        return self


def planned(tmp_path: Path, rows: int = 0) -> Place:
    """A checkpoint with a batch that reads topic a, and once read b."""
    place = Place(Lake.create(tmp_path), "archive")
    (place.checkpoint / "offsets").mkdir(parents=True)
    streams = {"a": Position("7-0", rows, "e"), "b": Position("1-0", 1, "e")}
    plan = Offset(streams, {"a": (Piece("0-0", "7-0", rows),)})
    (place.checkpoint / "offsets" / "0").write_text(f"v1\n{{}}\n{json.dumps(plan.to_json())}")
    return place


def test_a_topic_that_is_no_longer_read_is_not_said_to_be_where_it_was(tmp_path: Path) -> None:
    committed = _Committed(planned(tmp_path))
    ArchivedBatches(committed).write(_NoRows(), 0)  # type: ignore[arg-type]
    assert committed.reached == {"a": Reached("7-0", "e")}


def test_a_batch_that_is_not_what_was_planned_leaves_nothing_staged(tmp_path: Path) -> None:
    committed = _Committed(planned(tmp_path, rows=5))
    with pytest.raises(LakeError, match="batch 0 of 'archive' has 5 entries, but 0 were written"):
        ArchivedBatches(committed).write(_NoRows(), 0)  # type: ignore[arg-type]
    assert (committed.reached, committed.lake.staged()) == ({}, [])
