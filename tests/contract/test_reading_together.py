"""A topic and its retries are read by one request, and settled behind one fence."""

import asyncio
import contextlib
from datetime import timedelta

import pytest
import redis

from penstock.backend import keys
from penstock.backend.entry import ClaimedMessage, FetchedEntry, Park, Settled
from penstock.backend.redis import RedisBackend
from penstock.errors import ConfigurationError, GroupMissingError
from penstock.message.message import Message
from tests.support.servers import Server
from tests.support.waiting import ENOUGH, blocked

NOW = timedelta(0)
LONG = timedelta(seconds=30)


@pytest.fixture
async def both(backend: RedisBackend, topic: str) -> tuple[str, str]:
    """The topic and the retry stream of its group g."""
    streams = (topic, keys.retry(topic, "g"))
    for stream in streams:
        await backend.create_group(stream, "g")
    return streams


async def publish(backend: RedisBackend, topic: str, count: int) -> None:
    await backend.publish_many(topic, [Message(n) for n in range(count)])


async def retried(backend: RedisBackend, topic: str, count: int) -> None:
    """Make `count` messages wait on the retry stream."""
    await publish(backend, topic, count)
    entries = await backend.read_new(topic, "g", "failing", count, NOW)
    parks = [Park(entry, NOW, 2) for entry in entries if isinstance(entry, ClaimedMessage)]
    assert await backend.settle(topic, "g", "failing", parked=parks) == Settled(ok=count)
    assert (await backend.promote(topic, "g", count))[0] == count


def by_stream(entries: list[FetchedEntry]) -> list[tuple[str, int]]:
    return [(entry.stream, entry.message.body) for entry in entries if isinstance(entry, ClaimedMessage)]


async def test_up_to_count_of_each_come_in_the_order_of_the_streams(
    backend: RedisBackend, topic: str, both: tuple[str, str]
) -> None:
    await retried(backend, topic, 3)
    await publish(backend, topic, 3)
    first = await backend.read_new(both, "g", "c", 2, NOW)
    assert by_stream(first) == [(both[0], 0), (both[0], 1), (both[1], 0), (both[1], 1)]
    assert [entry.state.attempt for entry in first] == [1, 1, 2, 2]
    turned = await backend.read_new([both[1], both[0]], "g", "c", 2, NOW)
    assert by_stream(turned) == [(both[1], 2), (both[0], 2)]
    assert await backend.read_new(both, "g", "c", 2, NOW) == []


@pytest.mark.parametrize("woken_by", [0, 1])
async def test_a_blocked_read_is_woken_by_either_stream(
    backend: RedisBackend, topic: str, both: tuple[str, str], admin: "redis.Redis", woken_by: int
) -> None:
    reading = asyncio.create_task(backend.read_new(both, "g", "c", 5, LONG))
    await blocked(admin)
    if woken_by == 0:
        await publish(backend, topic, 1)
    else:
        parcel = admin.xadd(topic, {"payload": "1"})
        admin.xgroup_setid(topic, "g", parcel)
        (entry,) = await backend.read_range(topic, parcel.decode(), parcel.decode(), 1)
        assert isinstance(entry, ClaimedMessage)
        await reading  # by the topic; a read that waits again is woken by the retry stream
        admin.xgroup_setid(topic, "g", "$")
        reading = asyncio.create_task(backend.read_new(both, "g", "c", 5, LONG))
        await blocked(admin)
        await backend.settle(topic, "g", "c", parked=[Park(entry, NOW, 2)])
        await backend.promote(topic, "g")
    async with asyncio.timeout(9):  # a read that nobody wakes is sent again after 10 s
        (got,) = await reading
    assert got.stream == both[woken_by]


async def test_one_connection_and_one_request_serve_both(
    backend: RedisBackend, topic: str, both: tuple[str, str], admin: "redis.Redis"
) -> None:
    await retried(backend, topic, 1)
    await publish(backend, topic, 1)
    admin.config_resetstat()
    before = admin.info("clients")["connected_clients"]
    assert len(await backend.read_new(both, "g", "c", 5, LONG)) == 2
    assert admin.info("commandstats")["cmdstat_xreadgroup"]["calls"] == 1
    assert admin.info("clients")["connected_clients"] == before + 1


async def test_what_an_earlier_read_asked_for_in_excess_comes_piece_by_piece(
    backend: RedisBackend, topic: str, both: tuple[str, str], admin: "redis.Redis"
) -> None:
    reading = asyncio.create_task(backend.read_new(both, "g", "c", 10, LONG))
    await blocked(admin)
    reading.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await reading
    together = admin.pipeline(transaction=True)
    for n in range(3):
        together.xadd(topic, {"payload": n})
    together.execute()
    seen = [by_stream(await backend.read_new(both, "g", "c", count, LONG)) for count in (1, 1, 5)]
    assert seen == [[(topic, 0)], [(topic, 1)], [(topic, 2)]]


async def test_a_full_stream_beside_an_empty_one_is_read_ahead(
    backend: RedisBackend, topic: str, both: tuple[str, str], admin: "redis.Redis"
) -> None:
    await publish(backend, topic, 6)
    assert len(await backend.read_new(both, "g", "c", 2, LONG, ahead=True)) == 2
    async with asyncio.timeout(ENOUGH):
        while admin.xpending(topic, "g")["pending"] < 4:
            await asyncio.sleep(0.005)
    rest = [by_stream(await backend.read_new(both, "g", "c", 2, LONG, ahead=True)) for _ in range(2)]
    assert rest == [[(topic, 2), (topic, 3)], [(topic, 4), (topic, 5)]]


async def test_both_are_settled_without_a_look_at_each_until_something_was_taken(
    backend: RedisBackend, topic: str, both: tuple[str, str], admin: "redis.Redis"
) -> None:
    await retried(backend, topic, 2)
    await publish(backend, topic, 2)
    fresh, again = {}, {}
    for entry in await backend.read_new(both, "g", "c", 2, NOW):
        (fresh if entry.stream == topic else again)[entry.id] = entry
    admin.config_resetstat()
    assert await backend.settle(topic, "g", "c", done=list(fresh.values())[:1]) == Settled(ok=1)
    assert await backend.settle(both[1], "g", "c", done=list(again.values())[:1]) == Settled(ok=1)
    assert "cmdstat_xpending" not in admin.info("commandstats")
    (stolen,) = await backend.reclaim_idle(both[1], "g", "thief", NOW, 5)
    assert await backend.settle(both[1], "g", "c", done=list(again.values())[1:]) == Settled(fenced=(stolen.id,))
    assert await backend.settle(topic, "g", "c", done=list(fresh.values())[1:]) == Settled(ok=1)


async def test_what_is_read_after_a_theft_on_the_other_stream_was_seen_settles_fast_again(
    backend: RedisBackend, topic: str, both: tuple[str, str], admin: "redis.Redis"
) -> None:
    await retried(backend, topic, 1)
    (again,) = await backend.read_new(both[1], "g", "c", 1, NOW)
    await backend.reclaim_idle(both[1], "g", "thief", NOW, 5)
    assert (await backend.settle(both[1], "g", "c", done=[again])).fenced
    await publish(backend, topic, 1)
    entries = await backend.read_new(topic, "g", "c", 1, NOW)
    admin.config_resetstat()
    assert await backend.settle(topic, "g", "c", done=entries) == Settled(ok=1)
    assert "cmdstat_xpending" not in admin.info("commandstats")


async def test_scans_for_idle_entries_keep_a_place_on_each_stream(
    backend: RedisBackend, topic: str, both: tuple[str, str]
) -> None:
    await retried(backend, topic, 2)
    await publish(backend, topic, 2)
    entries = await backend.read_new(both, "g", "dead", 2, NOW)
    taken = []
    for stream in (*both, *both):
        taken += await backend.reclaim_idle(stream, "g", "heir", NOW, 1)
    assert sorted(entry.id for entry in taken) == sorted(entry.id for entry in entries)


async def test_a_forgotten_consumer_lets_go_of_reads_that_include_the_stream(
    backend: RedisBackend, both: tuple[str, str], admin: "redis.Redis"
) -> None:
    before = admin.info("clients")["connected_clients"]
    await backend.read_new(both, "g", "c", 1, timedelta(milliseconds=1))
    assert await backend.forget_consumer(both[1], "g", "c") is True
    async with asyncio.timeout(ENOUGH):
        while admin.info("clients")["connected_clients"] > before:
            await asyncio.sleep(0.01)


async def test_only_streams_of_one_topic_are_read_together(backend: RedisBackend, topic: str) -> None:
    retry = keys.retry(topic, "g")
    for streams in ([topic, f"{topic}:other"], [topic, keys.retry(f"{topic}:other", "g")], [topic, topic], []):
        with pytest.raises(ConfigurationError, match="retry"):
            await backend.read_new(streams, "g", "c", 1, NOW)
    with pytest.raises(ConfigurationError, match="topic"):
        await backend.read_new([topic, ""], "g", "c", 1, NOW)
    await backend.create_group(topic, "g")
    with pytest.raises(GroupMissingError, match="retry"):
        await backend.read_new([topic, retry], "g", "c", 1, NOW)


async def test_another_backend_in_another_thread_and_loop_lives_and_ends_by_itself(
    server: Server, backend: RedisBackend, topic: str, both: tuple[str, str]
) -> None:
    async def elsewhere() -> list[tuple[str, int]]:
        async with await backend.another() as other:
            await publish(other, topic, 2)
            return by_stream(await other.read_new(both, "g", "elsewhere", 1, LONG))

    assert await asyncio.to_thread(asyncio.run, elsewhere()) == [(topic, 0)]
    assert by_stream(await backend.read_new(both, "g", "here", 5, LONG)) == [(topic, 1)]
    other = await backend.another()
    await backend.aclose()
    try:
        await publish(other, topic, 1)
    finally:
        await other.aclose()
