"""A read waits as long as it was told to, disturbs nobody, and never loses what it was given."""

import asyncio
import contextlib
import random
import time
from datetime import timedelta

import pytest
import redis

from penstock.backend.entry import FetchedEntry, Settled
from penstock.backend.redis import RedisBackend
from penstock.backend.redis.seat import Seat, Wish
from penstock.errors import ConfigurationError
from penstock.message.message import Message
from tests.support.servers import Server
from tests.support.waiting import ENOUGH, blocked

NO_WAIT = timedelta(0)
LONG = timedelta(seconds=30)
WOKEN = 9.0  # a read that nobody wakes is sent again after 10 s


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


@pytest.fixture
async def group(backend: RedisBackend, topic: str) -> str:
    await backend.create_group(topic, "g")
    return "g"


async def test_an_idle_read_outlasts_every_socket_timeout_and_holds_up_nobody(
    server: Server, backend: RedisBackend, topic: str, group: str, admin: "redis.Redis"
) -> None:
    reading = asyncio.create_task(backend.read_new(topic, group, "patient", 1, LONG))
    await blocked(admin)
    for n in range(50):  # what is sent behind a blocked read is answered when that has ended
        await backend.publish(f"{topic}:other", Message(n))
        await backend.settle(topic, group, "c", done=[])
        await backend.create_group(f"{topic}:other", "g")
        await backend.read_new(f"{topic}:other", "g", "c", 1, NO_WAIT)
    assert not reading.done()
    # redis-py gives up after 5 s. One server is enough for a test that takes so long.
    wait = 6 if "valkey" in server.binary else 1
    began = time.monotonic()
    assert await backend.read_new(topic, group, "idle", 1, seconds(wait)) == []
    assert wait <= time.monotonic() - began < wait + 8  # a read is sent for 10 s at the longest


async def test_a_blocked_read_wakes_when_a_message_comes(
    backend: RedisBackend, topic: str, group: str, admin: "redis.Redis"
) -> None:
    reading = asyncio.create_task(backend.read_new(topic, group, "c", 10, LONG))
    await blocked(admin)
    published = await backend.publish(topic, Message("hi"))
    async with asyncio.timeout(WOKEN):
        assert [entry.id for entry in await reading] == [published]


async def test_no_more_entries_are_taken_than_were_asked_for_and_they_come_in_order(
    backend: RedisBackend, topic: str, group: str, admin: "redis.Redis"
) -> None:
    ids = await backend.publish_many(topic, [Message(n) for n in range(10)])
    seen: list[str] = []
    for count, taken in ((1, 1), (3, 4), (4, 8), (100, 10), (100, 10)):
        seen += [entry.id for entry in await backend.read_new(topic, group, "c", count, NO_WAIT)]
        assert len(seen) == admin.xpending(topic, group)["pending"] == taken
    assert seen == ids


async def test_a_read_that_is_not_to_wait_does_not(backend: RedisBackend, topic: str, group: str) -> None:
    async with asyncio.timeout(WOKEN):
        assert await backend.read_new(topic, group, "c", 1, NO_WAIT) == []
        assert await backend.read_new(topic, group, "c", 1, timedelta(microseconds=1)) == []


@pytest.mark.parametrize(
    ("count", "timeout"),
    [(0, NO_WAIT), (-1, NO_WAIT), (True, NO_WAIT), (1.5, NO_WAIT), (1, seconds(-1)), (1, 1), (1, None)],
)
async def test_a_read_that_cannot_be_meant_is_refused(
    backend: RedisBackend, topic: str, group: str, count: int, timeout: timedelta
) -> None:
    with pytest.raises(ConfigurationError):
        await backend.read_new(topic, group, "c", count, timeout)


async def test_a_cancelled_read_loses_nothing_at_whatever_moment(
    backend: RedisBackend, topic: str, group: str, admin: "redis.Redis"
) -> None:
    """The answer is on its way while the reader is cancelled 0, 1, 2, … turns of the loop later."""
    cancelled = 0
    for turns in range(10):
        reading = asyncio.create_task(backend.read_new(topic, group, "c", 10, LONG))
        await blocked(admin)
        added = admin.xadd(topic, {"payload": "1"}).decode()
        for _ in range(turns):
            await asyncio.sleep(0)
        reading.cancel()
        got: list[FetchedEntry] = []
        try:
            got = await reading
        except asyncio.CancelledError:
            cancelled += 1
        got += await backend.read_new(topic, group, "c", 10, NO_WAIT if got else LONG)
        assert [entry.id for entry in got] == [added], turns
        assert await backend.settle(topic, group, "c", done=got) == Settled(ok=1)
    assert cancelled >= 2


async def test_a_read_cancelled_while_its_connection_is_opened_ends_at_whatever_moment(
    backend: RedisBackend, topic: str, group: str, admin: "redis.Redis"
) -> None:
    """Before Python 3.12 `asyncio.wait_for` forgets a cancellation that comes together with its result."""
    turns = 0
    while not admin.info("clients")["blocked_clients"]:  # by then a connection was opened, and the sweep is complete
        turns += 1
        readings = [asyncio.create_task(backend.read_new(topic, group, f"c{n}", 1, LONG)) for n in range(5)]
        for _ in range(turns):
            await asyncio.sleep(0)
        for reading in readings:
            reading.cancel()
        await asyncio.wait(readings, timeout=ENOUGH)
        assert all(reading.cancelled() for reading in readings), turns


@pytest.mark.parametrize("ahead", [False, True])
async def test_readers_cancelled_at_random_see_every_message_once_and_in_order(
    backend: RedisBackend, topic: str, group: str, *, ahead: bool
) -> None:
    dice = random.Random(7)
    publishing = asyncio.create_task(publish_slowly(backend, topic, 400))
    seen: list[str] = []
    cancelled = 0
    async with asyncio.timeout(40):
        while len(seen) < 400:
            wait = seconds(dice.choice([0, 0.001, 0.05]))
            reading = asyncio.create_task(
                backend.read_new(topic, group, "c", dice.choice([1, 3, 50]), wait, ahead=ahead)
            )
            await asyncio.wait([reading], timeout=dice.choice([0, 0.0005, 0.002, 0.2]))
            reading.cancel()
            try:
                seen += [entry.id for entry in await reading]
            except asyncio.CancelledError:
                cancelled += 1
    assert seen == await publishing
    assert cancelled > 10
    assert await backend.read_new(topic, group, "c", 10, NO_WAIT) == []


async def publish_slowly(backend: RedisBackend, topic: str, count: int) -> list[str]:
    ids = []
    for n in range(count):
        ids.append(await backend.publish(topic, Message(n)))
        if n % 7 == 0:
            await asyncio.sleep(0.001)
    return ids


async def test_what_an_interrupted_read_left_over_is_fenced_as_of_that_read(
    backend: RedisBackend, topic: str, group: str, admin: "redis.Redis"
) -> None:
    reading = asyncio.create_task(backend.read_new(topic, group, "c", 10, LONG))
    await blocked(admin)
    reading.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await reading
    together = admin.pipeline(transaction=True)
    for n in range(3):
        together.xadd(topic, {"payload": n})
    together.execute()
    (first,) = await backend.read_new(topic, group, "c", 1, LONG)
    assert admin.xpending(topic, group)["pending"] == 3  # so two are left over
    stolen = await backend.reclaim_idle(topic, group, "thief", NO_WAIT, 10, running=[first.id])
    assert len(stolen) == 2
    assert await backend.settle(topic, group, "c", done=[first]) == Settled(ok=1)
    rest = await backend.read_new(topic, group, "c", 10, NO_WAIT)
    result = await backend.settle(topic, group, "c", done=rest)
    assert result.ok == 0
    assert admin.xpending(topic, group)["consumers"] == [{"name": b"thief", "pending": 2}]


async def test_reads_of_one_consumer_at_the_same_time_share_what_comes_and_keep_their_own_time(
    backend: RedisBackend, topic: str, group: str, admin: "redis.Redis"
) -> None:
    patient = asyncio.create_task(backend.read_new(topic, group, "c", 1, LONG))
    await blocked(admin)
    async with asyncio.timeout(WOKEN):
        assert await backend.read_new(topic, group, "c", 1, seconds(0.1)) == []
        assert await backend.read_new(topic, group, "c", 1, NO_WAIT) == []
    others = [asyncio.create_task(backend.read_new(topic, group, "c", 1, LONG)) for _ in range(4)]
    ids = await backend.publish_many(topic, [Message(n) for n in range(5)])
    async with asyncio.timeout(WOKEN):
        pages = [await reading for reading in (patient, *others)]
    assert {entry.id for page in pages for entry in page} == set(ids)
    assert sum(len(page) for page in pages) == 5


async def test_fifty_consumers_share_a_topic_and_give_their_connections_back(
    server: Server, topic: str, admin: "redis.Redis"
) -> None:
    before = admin.info("clients")["connected_clients"]
    async with await RedisBackend.connect(server.url) as backend:
        await backend.create_group(topic, "g")
        readings = [asyncio.create_task(backend.read_new(topic, "g", f"c{n}", 1, LONG)) for n in range(50)]
        await blocked(admin, 50)
        assert admin.info("clients")["connected_clients"] - before <= 51
        ids = await backend.publish_many(topic, [Message(n) for n in range(50)])
        async with asyncio.timeout(WOKEN):
            pages = await asyncio.gather(*readings)
        assert {entry.id for page in pages for entry in page} == set(ids)
        assert [len(page) for page in pages] == [1] * 50
        assert len(await asyncio.gather(*(backend.forget_consumer(topic, "g", f"c{n}") for n in range(25)))) == 25
    async with asyncio.timeout(ENOUGH):
        while admin.info("clients")["connected_clients"] > before:
            await asyncio.sleep(0.01)


async def test_a_forgotten_consumer_gives_its_connection_back(
    backend: RedisBackend, topic: str, group: str, admin: "redis.Redis"
) -> None:
    before = admin.info("clients")["connected_clients"]
    for n in range(10):
        await backend.read_new(topic, group, f"c{n}", 1, timedelta(milliseconds=1))
        assert await backend.forget_consumer(topic, group, f"c{n}") is True
    async with asyncio.timeout(ENOUGH):
        while admin.info("clients")["connected_clients"] > before:
            await asyncio.sleep(0.01)
    assert admin.xinfo_consumers(topic, group) == []


async def test_reading_ahead_keeps_order_and_loses_nothing_when_its_time_is_up(
    backend: RedisBackend, topic: str, group: str, admin: "redis.Redis"
) -> None:
    ids = await backend.publish_many(topic, [Message(n) for n in range(25)])
    seen: list[str] = []
    for _ in range(3):
        seen += [entry.id for entry in await backend.read_new(topic, group, "c", 10, LONG, ahead=True)]
    assert seen == ids
    async with asyncio.timeout(WOKEN):
        assert await backend.read_new(topic, group, "c", 10, seconds(0.05), ahead=True) == []
    late = await backend.publish(topic, Message("late"))
    assert [entry.id for entry in await backend.read_new(topic, group, "c", 10, LONG)] == [late]


async def test_what_was_read_ahead_and_stolen_is_fenced(
    backend: RedisBackend, topic: str, group: str, admin: "redis.Redis"
) -> None:
    await backend.publish_many(topic, [Message(n) for n in range(4)])
    first = await backend.read_new(topic, group, "c", 2, LONG, ahead=True)
    async with asyncio.timeout(ENOUGH):
        while admin.xpending(topic, group)["pending"] < 4:
            await asyncio.sleep(0.005)
    stolen = await backend.reclaim_idle(topic, group, "thief", NO_WAIT, 10, running=[entry.id for entry in first])
    assert await backend.settle(topic, group, "c", done=first) == Settled(ok=2)
    second = await backend.read_new(topic, group, "c", 2, NO_WAIT)
    assert [entry.id for entry in second] == [entry.id for entry in stolen]
    result = await backend.settle(topic, group, "c", done=second)
    assert result == Settled(fenced=tuple(entry.id for entry in second))


async def test_waiting_for_another_read_of_the_consumer_is_waiting_too(
    backend: RedisBackend, topic: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    requests = Seat._requests

    def noted(seat: Seat, wish: Wish) -> list[bytes]:
        asked.append(wish.block_ms)
        return requests(seat, wish)

    monkeypatch.setattr(Seat, "_requests", noted)
    first = backend.read_new(topic, group, "c", 1, seconds(0.6))
    second = backend.read_new(topic, group, "c", 1, seconds(0.7))
    assert await asyncio.gather(first, second) == [[], []]
    # What is left when the first has ended; none, if its own time is up by then.
    assert asked[0] == 600
    assert max(asked[1:], default=0) <= 110
