"""A query of Spark's that was stopped is told of, and so is what was trimmed meanwhile. No JVM is needed."""

import asyncio
import json
import shlex
from datetime import timedelta
from pathlib import Path

import pytest
import redis

from penstock.backend.redis import RedisBackend
from penstock.diagnosis.case import Patience
from penstock.diagnosis.diagnosis import Diagnosis
from penstock.diagnosis.finding import Finding
from penstock.errors import DataLossError
from penstock.lake import Lake
from penstock.message.ids import new_id
from tests.lake.pouring import pour
from tests.spark.engine import Log, add, life, options
from tests.support.archived import Archived
from tests.support.command_line import CommandLine
from tests.support.remedies import filled
from tests.support.servers import Server


async def why(backend: RedisBackend, topic: str) -> dict[str, Finding]:
    await asyncio.sleep(0.005)  # so that the one millisecond has passed
    found = await Diagnosis(backend, Patience(quiet=timedelta(milliseconds=1))).why(topic, "lake")
    return {one.rule: one for one in found}


@pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)
async def test_a_query_that_was_stopped_while_its_topic_was_trimmed_is_told_of(
    server: Server, admin: "redis.Redis", topic: str, tmp_path: Path
) -> None:
    lake = Lake.create(tmp_path / "lake")
    values = {"DIR": str(lake.path), "NAME": "mended", "OTHER": f"{topic}:again"}
    log, archive = Log(), options(server, topic, group="lake")
    async with await RedisBackend.connect(server.url) as backend:
        with life(archive, log) as engine:
            ids = add(admin, topic, 5)
            engine.run()
            engine.plan()  # of its last batch the source hears by being asked for the next
            assert await why(backend, topic) == {}
        ids += add(admin, topic, 5)
        found = await why(backend, topic)
        assert set(found) == {"nobody-reads"}
        assert "such as a Spark query keeps" in found["nobody-reads"].what
        assert found["nobody-reads"].remedy == "start the Spark query of this group again"
        for id in ids:
            pour(lake, [Archived(topic, id, new_id())], payload=f'"{id}"')  # type: ignore[list-item]
        admin.xtrim(topic, maxlen=2, approximate=False)
        finding = (await why(backend, topic))["spark-trimmed"]
        assert finding.what.startswith("3 entries were trimmed while Spark was stopped")
        assert finding.evidence == (f"it stands at {ids[4]}; the oldest entry is {ids[8]}",)
        words = filled(shlex.split(finding.besides.partition(" by: ")[2].partition("; this")[0])[1:], **values)
        await asyncio.to_thread(CommandLine(server.url, tmp_path), *words, "--yes")
        assert [json.loads(fields[b"payload"]) for _, fields in admin.xrange(f"{topic}:again")] == ids[5:8]
        assert admin.xlen(topic) == 2, "other readers are given nothing again"
        with life(archive, log) as engine, pytest.raises(DataLossError):
            engine.run()
        with life(options(server, topic, group="lake", failOnDataLoss="false"), log) as engine:
            engine.run()  # as the remedy says
            engine.plan()
        assert await why(backend, topic) == {}
    assert log.ids == ids[:5] + ids[8:]
