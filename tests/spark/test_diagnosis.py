"""A query of Spark's that was stopped is told of, and so is what was trimmed meanwhile. No JVM is needed."""

import asyncio
from datetime import timedelta

import pytest
import redis

from penstock.backend.redis import RedisBackend
from penstock.diagnosis.case import Patience
from penstock.diagnosis.diagnosis import Diagnosis
from penstock.diagnosis.finding import Finding
from penstock.errors import DataLossError
from tests.spark.engine import Log, add, life, options
from tests.support.servers import Server


async def why(backend: RedisBackend, topic: str) -> dict[str, Finding]:
    await asyncio.sleep(0.005)  # so that the one millisecond has passed
    found = await Diagnosis(backend, Patience(quiet=timedelta(milliseconds=1))).why(topic, "lake")
    return {one.rule: one for one in found}


@pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)
async def test_a_query_that_was_stopped_while_its_topic_was_trimmed_is_told_of(
    server: Server, admin: "redis.Redis", topic: str
) -> None:
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
        admin.xtrim(topic, maxlen=2, approximate=False)
        finding = (await why(backend, topic))["spark-trimmed"]
        assert finding.what.startswith("3 entries were trimmed while Spark was stopped")
        assert finding.evidence == (f"it stands at {ids[4]}; the oldest entry is {ids[8]}",)
        with life(archive, log) as engine, pytest.raises(DataLossError):
            engine.run()
        with life(options(server, topic, group="lake", failOnDataLoss="false"), log) as engine:
            engine.run()  # as the remedy says
            engine.plan()
        assert await why(backend, topic) == {}
    assert log.ids == ids[:5] + ids[8:]
