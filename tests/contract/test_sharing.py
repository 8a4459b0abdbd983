"""Who shares a topic's partitions out, and how many there are."""

from datetime import timedelta

import redis

from penstock.backend import keys
from penstock.backend.redis import RedisBackend

LEASE = timedelta(seconds=30)


async def test_members_are_those_whose_lease_has_not_run_out(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    for member in ("c", "a", "b"):
        await backend.join(topic, "g", member, LEASE)
    assert await backend.join(topic, "g", "a", LEASE) == ["a", "b", "c"]
    assert await backend.join(topic, "other", "a", LEASE) == ["a"]
    admin.zadd(keys.members(topic, "g"), {"b": 1})
    assert await backend.join(topic, "g", "a", LEASE) == ["a", "c"]
    await backend.leave(topic, "g", "c")
    await backend.leave(topic, "g", "c")
    assert await backend.join(topic, "g", "a", LEASE) == ["a"]
    hour = 3_600_000  # the clock was set back by so much
    admin.zadd(keys.members(topic, "g"), {"gone": admin.time()[0] * 1000 + hour})
    assert await backend.join(topic, "g", "a", LEASE) == ["a"]
    assert admin.pttl(keys.members(topic, "g")) > 0


async def test_the_first_number_of_partitions_stays_until_it_is_changed(backend: RedisBackend, topic: str) -> None:
    assert await backend.partitions(topic) is None
    assert await backend.note_partitions(topic, 16) == await backend.partitions(topic) == 16
    assert await backend.note_partitions(topic, 8) == 16
    assert await backend.renumber_partitions(topic, 8, 4) is False
    assert await backend.renumber_partitions(topic, 16, 4) is True
    assert await backend.note_partitions(topic, 16) == 4


async def test_a_pause_is_seen(backend: RedisBackend, topic: str) -> None:
    assert await backend.is_paused(topic, "g") is False
    await backend.pause(topic, "g")
    assert await backend.is_paused(topic, "g") is True
    assert await backend.is_paused(topic, "other") is False
    await backend.resume(topic, "g")
    assert await backend.is_paused(topic, "g") is False
