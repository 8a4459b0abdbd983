"""Where an archive begins, and what it says about how far the lake is. No query runs here."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import redis

from penstock.backend.survey import Position
from penstock.errors import ConfigurationError, LakeError
from penstock.lake import Lake, Reached, Snapshot
from penstock.spark.pipelines.alerts import Alerts
from penstock.spark.pipelines.archive import Archive
from penstock.spark.pipelines.archived_batches import ArchivedBatches
from penstock.spark.pipelines.batches import Batches, StagedBatch
from penstock.spark.pipelines.metrics import Metrics
from penstock.spark.queries.place import Place
from penstock.spark.source.offsets import Offset, Piece
from tests.spark.test_alerts import RULE
from tests.spark.test_resuming import add
from tests.support.servers import Server


def test_a_group_that_is_ahead_of_a_lake_without_the_topic_is_not_followed(
    server: Server, admin: "redis.Redis", topic: str, tmp_path: Path
) -> None:
    add(admin, topic, 3)
    admin.xgroup_create(topic, "lake", id="2-0")
    job = Archive(lake=tmp_path / "lake", topics=[topic], url=server.url)
    with pytest.raises(LakeError, match=r"stands at entry 2-0, but the lake .* has nothing of the topic: .*--group"):
        job.run(None)  # type: ignore[arg-type]  # Spark is not asked for anything before that is known


@pytest.mark.parametrize(
    ("kind", "make"),
    [
        ("archive", lambda **place: Archive(topics=["t"], **place)),
        ("metrics", lambda **place: Metrics(topics=["t"], **place)),
        ("alerts", lambda **place: Alerts(topics=["t"], rules=[RULE], to="a", **place)),
    ],
)
def test_a_checkpoint_of_another_kind_is_refused_before_anything_is_read(
    server: Server, tmp_path: Path, kind: str, make: "Callable[..., Any]"
) -> None:
    """Its offsets are others, and what Spark would say of them helps nobody."""
    lake = Lake.create(tmp_path / "lake")
    for other in {"archive", "metrics", "alerts"} - {kind}:
        with Place(lake, other).taken(other):
            pass
        with pytest.raises(ConfigurationError, match=f"another kind, '{other}', and not '{kind}': .*--name"):
            make(lake=lake.path, name=other, url=server.url).run(None)
    (lake.checkpoint("mine")).mkdir()
    (lake.checkpoint("mine") / "flow.json").write_text("{}")
    with pytest.raises(ConfigurationError, match="another kind, 'flow'"):
        make(lake=lake.path, name="mine", url=server.url).run(None)


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
    with pytest.raises(LakeError, match=r"batch 0 of 'archive', .* planned with 5 entries, and 0 were written"):
        ArchivedBatches(committed).write(_NoRows(), 0)  # type: ignore[arg-type]
    assert (committed.reached, committed.lake.staged()) == ({}, [])


def test_a_plan_that_was_not_carried_out_is_no_reason_to_bring_what_another_query_has_brought(tmp_path: Path) -> None:
    """Its topics are not new to the checkpoint: Spark goes on with the plan, wherever the lake ends by now."""
    batches = ArchivedBatches(Batches(planned(tmp_path)))
    batches.open()
    assert (batches.topics, batches.positions) == ({"a", "b"}, {})
