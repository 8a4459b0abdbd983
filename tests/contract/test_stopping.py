"""A consumer that stops reading is given nothing more, and hands back at once what it did not take."""

import asyncio
import contextlib
import random
from datetime import timedelta

import pytest
import redis

from penstock.backend import keys
from penstock.backend.entry import FetchedEntry
from penstock.backend.redis import RedisBackend, links
from penstock.errors import ConfigurationError, ServerUnreachableError
from penstock.message.message import Message
from tests.support.proxy import Proxy
from tests.support.servers import Server
from tests.support.waiting import ENOUGH, blocked

NOW = timedelta(0)
LONG = timedelta(seconds=30)
HOUR = timedelta(hours=1)
ENDED = 9.0  # by itself a blocked read ends after 10 s


@pytest.fixture
async def group(backend: RedisBackend, topic: str) -> str:
    await backend.create_group(topic, "g")
    return "g"


async def publish(backend: RedisBackend, topic: str, count: int = 1) -> None:
    await backend.publish_many(topic, [Message(n) for n in range(count)])


async def pending(admin: "redis.Redis", topic: str, count: int) -> None:
    async with asyncio.timeout(ENOUGH):
        while admin.xpending(topic, "g")["pending"] != count:
            await asyncio.sleep(0.005)


async def interrupted(reading: "asyncio.Task[list[FetchedEntry]]") -> None:
    reading.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await reading


async def test_a_blocked_read_ends_at_once_with_nothing(
    backend: RedisBackend, topic: str, group: str, admin: "redis.Redis"
) -> None:
    readings = [asyncio.create_task(backend.read_new(topic, group, "c", 10, LONG)) for _ in range(3)]
    await blocked(admin)
    connections = admin.info("stats")["total_connections_received"]
    async with asyncio.timeout(ENDED):
        assert await backend.stop_reading(topic, group, "c") == 0
        assert await asyncio.gather(*readings) == [[], [], []]
    assert admin.info("stats")["total_connections_received"] == connections  # those that waited did not begin to read
    assert admin.info("clients")["blocked_clients"] == 0
    await publish(backend, topic)
    assert admin.xpending(topic, group)["pending"] == 0


async def test_what_was_read_ahead_is_handed_back_and_can_be_reclaimed_at_once(
    backend: RedisBackend, topic: str, group: str, admin: "redis.Redis"
) -> None:
    await publish(backend, topic, 5)
    taken = await backend.read_new(topic, group, "c", 2, LONG, ahead=True)
    await pending(admin, topic, 4)
    assert await backend.stop_reading(topic, group, "c") == 2
    heirs = await backend.reclaim_idle(topic, group, "d", HOUR, 10)
    assert [entry.state.suspect for entry in heirs] == [False, False]
    assert not {entry.id for entry in heirs} & {entry.id for entry in taken}
    rest = await backend.read_new(topic, group, "d", 10, NOW)
    assert len({entry.id for entry in (*taken, *heirs, *rest)}) == 5


async def test_a_read_ahead_that_is_blocked_is_ended(
    backend: RedisBackend, topic: str, group: str, admin: "redis.Redis"
) -> None:
    await publish(backend, topic, 2)
    await backend.read_new(topic, group, "c", 2, LONG, ahead=True)
    await blocked(admin)
    async with asyncio.timeout(ENDED):
        assert await backend.stop_reading(topic, group, "c") == 0
    await publish(backend, topic)
    assert admin.xpending(topic, group)["pending"] == 2


async def test_what_an_interrupted_read_left_over_is_handed_back_of_every_stream(
    backend: RedisBackend, topic: str, group: str, admin: "redis.Redis"
) -> None:
    both = (topic, keys.retry(topic, group))
    await backend.create_group(both[1], group)
    reading = asyncio.create_task(backend.read_new(both, group, "c", 10, LONG))
    await blocked(admin)
    await interrupted(reading)
    together = admin.pipeline(transaction=True)
    for stream in both:
        for n in range(3):
            together.xadd(stream, {"payload": n})
    together.execute()
    first = await backend.read_new(both, group, "c", 1, LONG)
    given = sum(admin.xpending(stream, group)["pending"] for stream in both)
    assert given > len(first)  # some are left over
    assert await backend.stop_reading(both, group, "c") == given - len(first)
    back = [entry for stream in both for entry in await backend.reclaim_idle(stream, group, "d", HOUR, 10)]
    assert len(back) == given - len(first)


async def test_stopping_where_nobody_reads_and_stopping_twice_are_nothing(
    backend: RedisBackend, topic: str, group: str
) -> None:
    assert await backend.stop_reading(topic, group, "c") == 0
    await publish(backend, topic, 4)
    await backend.read_new(topic, group, "c", 2, LONG, ahead=True)
    results = await asyncio.gather(*(backend.stop_reading(topic, group, "c") for _ in range(3)))
    assert sorted(results) == [0, 0, 2]
    assert await backend.stop_reading(topic, group, "c") == 0
    with pytest.raises(ConfigurationError):
        await backend.stop_reading("", group, "c")


async def test_a_stop_is_no_end_for_the_consumer(backend: RedisBackend, topic: str, group: str) -> None:
    await publish(backend, topic, 4)
    held = await backend.read_new(topic, group, "c", 1, LONG, ahead=True)
    assert await backend.stop_reading(topic, group, "c") == 1
    again = await backend.read_new(topic, group, "c", 10, LONG)
    assert len(again) == 2
    assert (await backend.settle(topic, group, "c", done=[*held, *again])).ok == 3


async def test_stopping_the_topic_ends_a_read_of_the_topic_with_its_retries(
    backend: RedisBackend, topic: str, group: str, admin: "redis.Redis"
) -> None:
    both = (topic, keys.retry(topic, group))
    await backend.create_group(both[1], group)
    reading = asyncio.create_task(backend.read_new(both, group, "c", 10, LONG))
    other = asyncio.create_task(backend.read_new(both, group, "d", 10, LONG))
    await blocked(admin, 2)
    async with asyncio.timeout(ENDED):
        await backend.stop_reading(topic, group, "c")
        assert await reading == []
    assert not other.done()
    await interrupted(other)


async def test_stopping_at_random_moments_loses_nothing(
    server: Server, backend: RedisBackend, topic: str, group: str, admin: "redis.Redis"
) -> None:
    """Every message is either returned by a read, or handed back, or never delivered; and none is both."""
    dice = random.Random(11)
    seen: list[str] = []
    handed_back = 0
    round_number = 0
    while round_number < 60 or handed_back <= 10 or len(seen) <= 10:
        round_number += 1
        patience = max(1, round_number - 60)  # where an answer takes its time, it is waited for longer and longer
        reading = asyncio.create_task(
            backend.read_new(topic, group, "c", dice.choice([1, 3]), LONG, ahead=dice.random() < 0.7)
        )
        publishing = asyncio.create_task(publish(backend, topic, dice.randint(0, 8)))
        for _ in range(dice.randint(1, 12)):  # once at least, or the read would begin after the stop
            await asyncio.sleep(0)
        await asyncio.wait([reading], timeout=patience * dice.choice([0, 0.001, 0.003, 0.01]))
        if dice.random() < 0.3:
            reading.cancel()
        async with asyncio.timeout(ENDED):
            handed_back += await backend.stop_reading(topic, group, "c")
            with contextlib.suppress(asyncio.CancelledError):
                seen += [entry.id for entry in await reading]
            await publishing
        held = {row["message_id"].decode() for row in admin.xpending_range(topic, group, "-", "+", 10_000)}
        back = admin.xpending_range(topic, group, "-", "+", 10_000, idle=3_600_000)
        assert len(held) == len(seen) + handed_back, round_number
        assert not {row["message_id"].decode() for row in back} & set(seen)
        assert len(back) == handed_back
    assert len(set(seen)) == len(seen)


async def test_a_user_who_may_not_unblock_waits_for_the_read_to_end(
    server: Server, topic: str, admin: "redis.Redis"
) -> None:
    admin.execute_command("ACL", "SETUSER", "mute", "on", "nopass", "~*", "&*", "+@all", "-client")
    url = f"unix://mute:x@{server.socket}"
    try:
        async with await RedisBackend.connect(url) as backend:
            await backend.create_group(topic, "g")
            reading = asyncio.create_task(backend.read_new(topic, "g", "c", 1, LONG))
            await blocked(admin)
            stopping = asyncio.create_task(backend.stop_reading(topic, "g", "c"))
            await asyncio.wait([stopping], timeout=0.3)
            assert not stopping.done()
            await publish(backend, topic)  # is given to the read, which nobody waits for any more
            async with asyncio.timeout(ENDED):
                assert await stopping == 1
                assert await reading == []
            assert len(await backend.reclaim_idle(topic, "g", "d", HOUR, 10)) == 1
    finally:
        admin.execute_command("ACL", "DELUSER", "mute")


@pytest.mark.parametrize("moment", ["before", "unblock", "release"])
async def test_a_connection_that_breaks_meanwhile_costs_nothing_but_the_idle_time(
    wired: RedisBackend, proxy: Proxy, topic: str, admin: "redis.Redis", moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "_PATIENCE_SECONDS", 0.2)
    reading = asyncio.create_task(wired.read_new(topic, "g", "c", 10, LONG))
    await blocked(admin)
    if moment == "release":
        await interrupted(reading)
        admin.xadd(topic, {"payload": "1"})
        await pending(admin, topic, 1)
    proxy.refusing = True
    if moment == "before":
        proxy.cut()
    else:
        proxy.drop_reply_to("UNBLOCK" if moment == "unblock" else "EVALSHA")
    async with asyncio.timeout(ENOUGH):
        assert await wired.stop_reading(topic, "g", "c") == 0
        await asyncio.wait([reading])
    assert moment == "before" or proxy.dropped == 1
    proxy.refusing = False
    async with asyncio.timeout(ENOUGH):
        while admin.info("clients")["blocked_clients"]:
            await asyncio.sleep(0.01)
    admin.xadd(topic, {"payload": "2"})
    got = await wired.reclaim_idle(topic, "g", "d", NOW, 10)
    got += await wired.read_new(topic, "g", "d", 10, LONG)
    assert len(got) == (2 if moment == "release" else 1)


async def test_a_request_to_unblock_that_overtakes_the_read_is_made_again(
    backend: RedisBackend, topic: str, group: str, admin: "redis.Redis", monkeypatch: pytest.MonkeyPatch
) -> None:
    send, swallowed = backend._links.command, 0

    async def too_early_once(doing: str, *words: links.Word) -> object:
        nonlocal swallowed
        swallowed += "UNBLOCK" in words
        return 0 if swallowed == 1 else await send(doing, *words)

    monkeypatch.setattr(backend._links, "command", too_early_once)
    reading = asyncio.create_task(backend.read_new(topic, group, "c", 10, LONG))
    await blocked(admin)
    async with asyncio.timeout(ENDED):
        assert await backend.stop_reading(topic, group, "c") == 0
        assert await reading == []
    assert swallowed >= 2  # again and again, until the answer is here


async def test_a_stop_that_can_reach_nobody_does_not_wait_for_the_read_to_end(
    backend: RedisBackend, topic: str, group: str, admin: "redis.Redis", monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unreachable(doing: str, *words: links.Word) -> object:
        raise ServerUnreachableError(doing)

    reading = asyncio.create_task(backend.read_new(topic, group, "c", 10, LONG))
    await blocked(admin)
    monkeypatch.setattr(backend._links, "command", unreachable)
    async with asyncio.timeout(ENDED):
        assert await backend.stop_reading(topic, group, "c") == 0
        assert await reading == []


async def test_a_stop_that_is_cancelled_leaves_no_blocked_read_behind(
    server: Server, topic: str, admin: "redis.Redis"
) -> None:
    admin.execute_command("ACL", "SETUSER", "mute", "on", "nopass", "~*", "&*", "+@all", "-client")
    try:
        async with await RedisBackend.connect(f"unix://mute:x@{server.socket}") as backend:
            await backend.create_group(topic, "g")
            reading = asyncio.create_task(backend.read_new(topic, "g", "c", 1, LONG))
            await blocked(admin)
            stopping = asyncio.create_task(backend.stop_reading(topic, "g", "c"))
            await asyncio.wait([stopping], timeout=0.1)
            stopping.cancel()
            async with asyncio.timeout(ENDED):
                assert await reading == []
                while admin.info("clients")["blocked_clients"]:
                    await asyncio.sleep(0.01)
    finally:
        admin.execute_command("ACL", "DELUSER", "mute")


async def test_a_stop_on_a_stream_that_vanished_is_no_error(
    backend: RedisBackend, topic: str, group: str, admin: "redis.Redis"
) -> None:
    await publish(backend, topic, 4)
    await backend.read_new(topic, group, "c", 2, LONG, ahead=True)
    await pending(admin, topic, 4)
    admin.delete(topic)
    assert await backend.stop_reading(topic, group, "c") == 0
