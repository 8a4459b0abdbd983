"""Whatever breaks between us and the server: each call ends with an answer or an error, and the next one heals."""

import asyncio
import contextlib
import gc
import sys
import time
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import redis

from penstock.backend import keys
from penstock.backend.entry import ClaimedMessage, DeadLetter, FetchedEntry, Park, Settled
from penstock.backend.redis import RedisBackend
from penstock.backend.redis.links import COMMAND_SECONDS
from penstock.errors import (
    AckOutOfSequenceError,
    PenstockError,
    PublishUnknownError,
    ServerUnreachableError,
)
from penstock.message.message import Message
from tests.support.proxy import Proxy
from tests.support.servers import Server
from tests.support.waiting import ENOUGH, blocked, healed

NO_WAIT = timedelta(0)
SHORT = timedelta(milliseconds=50)
LONG = timedelta(seconds=30)
HOUR = timedelta(hours=1)


@pytest.fixture(autouse=True)
async def quiet() -> AsyncIterator[None]:
    """No task or future may end with an error that nobody collected."""
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    yield
    gc.collect()
    await asyncio.sleep(0)
    assert complaints == []


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> Callable[[], float]:
    """Called, it makes the time short that a command may take, and gives it: silence is waited for in real time.

    Until then commands have the time that a slow machine needs.
    """

    def hurry() -> float:
        for name, module in list(sys.modules.items()):
            if name.startswith("penstock.backend.redis") and hasattr(module, "COMMAND_SECONDS"):
                monkeypatch.setattr(module, "COMMAND_SECONDS", 0.5)
                monkeypatch.setattr(module, "_PATIENCE_SECONDS", 0.5, raising=False)
        return 0.5

    return hurry


@pytest.fixture
def hasty_on_redis(server: Server, request: pytest.FixtureRequest) -> Callable[[], float]:
    """The real time on one server: once is enough for a test that takes so long."""
    if "valkey" in server.binary:
        return lambda: COMMAND_SECONDS
    hurry: Callable[[], float] = request.getfixturevalue("hasty")
    return hurry


async def leased(backend: RedisBackend, topic: str, count: int = 1) -> list[FetchedEntry]:
    await backend.publish_many(topic, [Message(n) for n in range(count)])
    return await backend.read_new(topic, "g", "c", count, NO_WAIT)


async def test_an_idle_backend_whose_connections_broke_heals_by_itself(
    wired: RedisBackend, proxy: Proxy, topic: str
) -> None:
    await wired.read_new(topic, "g", "c", 1, SHORT)
    before = proxy.connections
    proxy.cut()
    async with asyncio.timeout(ENOUGH):
        while proxy.open_wires:
            await asyncio.sleep(0)
    await asyncio.sleep(0)
    published = await healed(lambda: wired.publish(topic, Message(1)))
    (entry,) = await healed(lambda: wired.read_new(topic, "g", "c", 1, LONG))
    assert entry.id == published
    assert proxy.connections == before + 2


async def test_a_blocked_read_whose_connection_breaks_says_so_and_the_next_one_heals(
    wired: RedisBackend, proxy: Proxy, topic: str, admin: "redis.Redis"
) -> None:
    reading = asyncio.create_task(wired.read_new(topic, "g", "c", 1, LONG))
    await blocked(admin)
    proxy.cut()
    async with asyncio.timeout(9):  # by itself a blocked read ends after 10 s
        with pytest.raises(ServerUnreachableError, match="lost the connection"):
            await reading
    reading = asyncio.create_task(healed(lambda: wired.read_new(topic, "g", "c", 1, LONG)))
    await blocked(admin)
    await healed(lambda: wired.publish(topic, Message(1)))
    assert len(await reading) == 1


@pytest.mark.parametrize("after", [0, 1, 4, 30, 150])
async def test_a_reply_cut_anywhere_leaves_what_was_read_pending_for_a_reclaim(
    wired: RedisBackend, proxy: Proxy, topic: str, admin: "redis.Redis", after: int
) -> None:
    ids = await wired.publish_many(topic, [Message("x" * 100) for _ in range(5)])
    proxy.cut_reply_to("XREADGROUP", after=after)
    with pytest.raises(ServerUnreachableError):
        await wired.read_new(topic, "g", "c", 10, LONG)
    assert (proxy.dropped, proxy.cut_short) == ((0, 1) if after else (1, 0))
    assert admin.xpending(topic, "g")["pending"] == 5
    assert await healed(lambda: wired.read_new(topic, "g", "c", 10, NO_WAIT)) == []
    taken = await wired.reclaim_idle(topic, "g", "c", NO_WAIT, 10)
    assert [entry.id for entry in taken] == ids
    assert await wired.settle(topic, "g", "c", done=taken) == Settled(ok=5)


@pytest.mark.parametrize("after", [1, 3, 12])
async def test_a_publish_whose_reply_is_cut_is_unknown_and_written_once(
    wired: RedisBackend, proxy: Proxy, topic: str, admin: "redis.Redis", after: int
) -> None:
    proxy.cut_reply_to("XADD", after=after)
    with pytest.raises(PublishUnknownError):
        await wired.publish(topic, Message(1))
    assert proxy.cut_short == 1
    assert admin.xlen(topic) == 1


@pytest.mark.parametrize("outcome", ["done", "parked", "dead"])
async def test_settling_again_after_a_lost_reply_finds_it_done(
    wired: RedisBackend, proxy: Proxy, topic: str, admin: "redis.Redis", outcome: str
) -> None:
    warm_up, entry = await leased(wired, topic, 2)
    assert isinstance(warm_up, ClaimedMessage)
    assert isinstance(entry, ClaimedMessage)
    outcomes: dict[str, Callable[[ClaimedMessage], dict[str, Any]]] = {
        "done": lambda one: {"done": [one]},
        "parked": lambda one: {"parked": [Park(one, HOUR, 2)]},
        "dead": lambda one: {"dead": [DeadLetter(one, "why")]},
    }
    assert await wired.settle(topic, "g", "c", **outcomes[outcome](warm_up)) == Settled(ok=1)  # the script is known now
    proxy.drop_reply_to("EVALSHA")
    assert await wired.settle(topic, "g", "c", **outcomes[outcome](entry)) == Settled(gone=1)
    assert proxy.dropped == 1
    assert admin.xpending(topic, "g")["pending"] == 0
    assert admin.zcard(keys.parked(topic, "g")) == (2 if outcome == "parked" else 0)
    assert admin.xlen(keys.dead(topic)) == (2 if outcome == "dead" else 0)


async def test_a_reclaim_whose_reply_is_lost_leaves_the_entries_where_a_reclaim_finds_them(
    wired: RedisBackend, proxy: Proxy, topic: str, admin: "redis.Redis"
) -> None:
    (entry,) = await leased(wired, topic)
    await wired.reclaim_idle(topic, "g", "heir", HOUR, 1)
    proxy.drop_reply_to("EVALSHA")
    with contextlib.suppress(ServerUnreachableError):
        await wired.reclaim_idle(topic, "g", "heir", NO_WAIT, 1)
    assert proxy.dropped == 1
    assert admin.xpending(topic, "g")["consumers"] == [{"name": b"heir", "pending": 1}]
    assert (await wired.settle(topic, "g", "c", done=[entry])).fenced == (entry.id,)
    (again,) = await wired.reclaim_idle(topic, "g", "heir", NO_WAIT, 1)
    assert await wired.settle(topic, "g", "heir", done=[again]) == Settled(ok=1)


async def test_a_promotion_whose_reply_is_lost_happened_once(
    wired: RedisBackend, proxy: Proxy, topic: str, admin: "redis.Redis"
) -> None:
    entries = [entry for entry in await leased(wired, topic, 3) if isinstance(entry, ClaimedMessage)]
    await wired.promote(topic, "g")
    await wired.settle(topic, "g", "c", parked=[Park(entry, NO_WAIT, 2) for entry in entries])
    proxy.drop_reply_to("EVALSHA")
    with contextlib.suppress(ServerUnreachableError):
        await wired.promote(topic, "g")
    assert proxy.dropped == 1
    assert await healed(lambda: wired.promote(topic, "g")) == (0, None)
    assert admin.xlen(keys.retry(topic, "g")) == 3


async def test_every_other_verb_can_simply_be_called_again_after_a_lost_reply(
    wired: RedisBackend, proxy: Proxy, topic: str, admin: "redis.Redis"
) -> None:
    (entry,) = await leased(wired, topic)
    token = await wired.take_turn(topic, "r", "me", HOUR)
    again: dict[str, tuple[str, Callable[[], Any], Any]] = {
        "renew": ("EVALSHA", lambda: wired.renew(topic, "g", "c", [entry.id]), []),
        "release": ("EVALSHA", lambda: wired.release(topic, "g", "c", [entry.id]), []),
        "ack_many": ("XACK", lambda: wired.ack_many(topic, "g", [entry.id]), 0),
        "forget": ("EVALSHA", lambda: wired.forget_consumer(topic, "g", "c"), True),
        "take_turn": ("EVALSHA", lambda: wired.take_turn(topic, "r", "me", HOUR), token),
        "create_group": ("EVALSHA", lambda: wired.create_group(topic, "late"), False),
        "trim": ("EVALSHA", lambda: wired.trim(topic, entry.id), None),
        "leave_turn": ("EVALSHA", lambda: wired.leave_turn(topic, "r", token), None),
    }
    for lost, (name, (command, call, expected)) in enumerate(again.items()):
        if command == "EVALSHA":
            admin.script_load(Path(__file__).parents[2].joinpath(*LUA, f"{SCRIPTS[name]}.lua").read_text())
        proxy.drop_reply_to(command)
        with contextlib.suppress(ServerUnreachableError):
            await call()
        result = await healed(call)
        assert proxy.dropped == lost + 1, name
        assert expected is None or result == expected, name
    assert admin.xlen(topic) == 1
    assert {group["name"] for group in admin.xinfo_groups(topic)} == {b"g", b"late"}


LUA = ("src", "penstock", "backend", "redis", "lua")
SCRIPTS = {
    "renew": "touch", "release": "touch", "forget": "forget", "take_turn": "take_turn", "trim": "trim",
    "leave_turn": "leave_turn", "create_group": "create_group",
}  # fmt: skip


async def test_an_advance_whose_reply_is_lost_counts_once(
    wired: RedisBackend, proxy: Proxy, topic: str, admin: "redis.Redis"
) -> None:
    first, second = (str(one) for one in await wired.publish_many(topic, [Message(1), Message(2)]))
    await wired.create_group(topic, "r")
    token = await wired.take_turn(topic, "r", "me", HOUR)
    assert isinstance(token, int)
    await wired.advance(topic, "r", token, expected="0-0", to=first)
    proxy.drop_reply_to("EVALSHA")
    with pytest.raises((ServerUnreachableError, AckOutOfSequenceError)):
        await wired.advance(topic, "r", token, expected=first, to=second)
    assert proxy.dropped == 1
    with pytest.raises(AckOutOfSequenceError):
        await wired.advance(topic, "r", token, expected=first, to=second)
    (position,) = [group["last-delivered-id"] for group in admin.xinfo_groups(topic) if group["name"] == b"r"]
    assert position.decode() == second


async def test_publish_many_tells_what_was_written_when_the_server_goes_away_half_way(
    hasty: Callable[[], float], wired: RedisBackend, proxy: Proxy, topic: str, admin: "redis.Redis"
) -> None:
    publishing = asyncio.create_task(wired.publish_many(topic, [Message(n) for n in range(20_000)]))
    async with asyncio.timeout(ENOUGH):
        while admin.xlen(topic) < 3000:
            await asyncio.sleep(0)
    seconds = hasty()
    proxy.refusing = True
    proxy.cut()
    began = time.monotonic()
    results = await publishing
    # One wait for the server to come back, not one for every few hundred messages, which would be thirty.
    assert time.monotonic() - began < 15 * seconds
    written = admin.xlen(topic)
    assert 3000 <= written < 20_000  # the fault came half-way
    assert len(results) == 20_000
    kinds = [type(result) for result in results]
    assert set(kinds) == {str, PublishUnknownError, ServerUnreachableError}
    # What was never sent is no riddle: it failed, and may be published again.
    assert kinds.count(str) <= written <= kinds.count(str) + kinds.count(PublishUnknownError)


async def test_silence_ends_a_command_in_time_and_the_backend_heals_when_it_is_over(
    hasty_on_redis: Callable[[], float], wired: RedisBackend, proxy: Proxy, topic: str
) -> None:
    (entry,) = await leased(wired, topic)
    await wired.read_new(topic, "g", "c", 1, SHORT)
    seconds = hasty_on_redis()
    proxy.stall()
    began = time.monotonic()
    reading = asyncio.create_task(wired.read_new(topic, "g", "c", 1, SHORT))
    with pytest.raises(PublishUnknownError):
        await wired.publish(topic, Message(1))
    with pytest.raises(ServerUnreachableError):
        await reading
    # Once more as long as the loop overslept the end of it, which a slow machine has it do.
    assert seconds <= time.monotonic() - began < 2 * seconds + 9
    assert proxy.held >= 2
    proxy.flow()
    assert await healed(lambda: wired.settle(topic, "g", "c", done=[entry])) == Settled(ok=1)
    await healed(lambda: wired.publish(topic, Message(2)))


async def test_a_short_read_in_silence_is_not_held_to_an_earlier_long_ones_deadline(
    hasty: Callable[[], float], wired: RedisBackend, proxy: Proxy, topic: str
) -> None:
    await wired.read_new(topic, "g", "c", 1, SHORT)
    link = wired._seats[topic, "g", "c"]._link
    assert link is not None
    # Else the deadline of the login would still be the next one that a fresh connection looks at.
    assert link._timer is not None
    link._timer.cancel()
    link._timer = None
    await wired.publish(topic, Message(1))
    await wired.read_new(topic, "g", "c", 1, LONG)
    hasty()
    proxy.stall()
    async with asyncio.timeout(9):  # the long one was sent for 10 s
        with pytest.raises(ServerUnreachableError, match="in time"):
            await wired.read_new(topic, "g", "c", 1, SHORT)
    assert proxy.held


async def test_an_event_loop_that_was_blocked_is_no_silent_server(
    hasty: Callable[[], float], wired: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    await wired.publish(topic, Message(1))
    seconds = hasty()
    for turns in (1, 2):  # before it is sent, and after
        publishing = asyncio.create_task(wired.publish(topic, Message(2)))
        for _ in range(turns):
            await asyncio.sleep(0)
        # The fault: a handler that never awaits. As long as it was late, the server has to answer.
        time.sleep(seconds + 0.8)
        assert isinstance(await publishing, str), turns
    assert admin.xlen(topic) == 3


async def test_a_loop_that_is_always_busy_still_notices_a_dead_server(
    hasty: Callable[[], float], wired: RedisBackend, proxy: Proxy, topic: str
) -> None:
    hasty()
    proxy.stall()
    publishing = asyncio.create_task(wired.publish(topic, Message(1)))
    began = time.monotonic()
    while not publishing.done() and time.monotonic() - began < ENOUGH:
        time.sleep(0.2)  # the fault: handlers that hardly ever await
        await asyncio.sleep(0)
    assert proxy.held
    assert isinstance(publishing.exception(), PublishUnknownError)


async def test_many_readers_that_break_together_heal_as_fast_as_one(
    wired: RedisBackend, proxy: Proxy, topic: str, admin: "redis.Redis"
) -> None:
    readers = [asyncio.create_task(read_on(wired, topic, f"c{n}")) for n in range(30)]
    await blocked(admin, 30)
    proxy.refusing = True
    proxy.cut()
    async with asyncio.timeout(ENOUGH):
        while proxy.refused < 30:
            await asyncio.sleep(0.005)
    proxy.refusing = False
    assert wired._links._pace.left < 2  # after thirty failures one by one it would be more
    await healed(lambda: wired.publish(topic, Message(1)))
    for reader in readers:
        reader.cancel()
    await asyncio.gather(*readers, return_exceptions=True)


async def read_on(backend: RedisBackend, topic: str, consumer: str) -> None:
    while True:
        with contextlib.suppress(PenstockError):
            await backend.read_new(topic, "g", consumer, 1, LONG)
