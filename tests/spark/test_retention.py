"""Retention stops where an archive stands: what the lake does not have stays on the server. No JVM is needed."""

import pytest
import redis

from penstock.backend.redis import RedisBackend
from tests.spark.engine import Log, add, life, options
from tests.support.servers import Server

ALL = "99999999999999-0"


@pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)
async def test_nothing_is_trimmed_that_an_archive_has_not_committed(
    server: Server, admin: "redis.Redis", topic: str
) -> None:
    log, first = Log(), add(admin, topic, 1000)
    archive = options(server, topic, group="lake")
    async with await RedisBackend.connect(server.url) as backend:
        with life(archive, log) as engine:
            assert engine.plan()  # read, but not committed
            add(admin, topic, 500)
            assert (await backend.trim(topic, ALL)).removed == 0
            engine.execute()
            engine.plan()  # of its last batch the source hears by being asked for the next
            trimmed = await backend.trim(topic, ALL)
            left = [id.decode() for id, _ in admin.xrange(topic)]
        assert str(trimmed.pin) == "group lake"
        assert trimmed.removed > 800  # servers remove whole pages
        assert first[-1] in left
        with life(archive, log) as engine:
            engine.run()
            engine.plan()
    assert len(log.ids) == len(set(log.ids)) == 1500
