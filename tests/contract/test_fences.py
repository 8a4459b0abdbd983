"""Settling is fast only where nothing can have been taken, and never acts on what another consumer holds."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest
import redis

from penstock.backend import keys
from penstock.backend.entry import ClaimedMessage, DeadLetter, Park, Settled
from penstock.backend.redis import RedisBackend, reading
from penstock.errors import AckOutOfSequenceError, ServerUnreachableError
from penstock.message.message import Message
from tests.support.proxy import Proxy
from tests.support.servers import Server
from tests.support.waiting import ENOUGH, blocked

NOW = timedelta(0)
SOON = timedelta(seconds=10)
HOUR = timedelta(hours=1)


@pytest.fixture
async def group(backend: RedisBackend, topic: str) -> str:
    await backend.create_group(topic, "g")
    return "g"


async def publish(backend: RedisBackend, topic: str, count: int = 1) -> None:
    await backend.publish_many(topic, [Message(number) for number in range(count)])


async def looks(admin: "redis.Redis", settling: Awaitable[Settled]) -> tuple[Settled, int]:
    """The result, and at how many single entries the server had to look for it."""
    admin.config_resetstat()
    result = await settling
    calls: int = admin.info("commandstats").get("cmdstat_xpending", {}).get("calls", 0)
    return result, calls


async def blocked_read_then_cancelled(backend: RedisBackend, topic: str, count: int, admin: "redis.Redis") -> None:
    """The consumer `a` waits for entries and is cancelled; the server still waits for it."""
    waiting = asyncio.create_task(backend.read_new(topic, "g", "a", count, timedelta(minutes=1)))
    await blocked(admin)
    waiting.cancel()
    await asyncio.wait([waiting])


async def test_entries_read_before_and_after_a_theft_are_looked_at_when_settled_together(
    backend: RedisBackend, topic: str, group: str
) -> None:
    await publish(backend, topic, 3)
    before = await backend.read_new(topic, group, "a", 2, NOW)
    await backend.reclaim_idle(topic, group, "b", NOW, 1)
    await backend.settle(topic, group, "a", done=before[1:])
    after = await backend.read_new(topic, group, "a", 1, NOW)
    result = await backend.settle(topic, group, "a", done=[*after, before[0]])
    assert result == Settled(ok=1, fenced=(before[0].id,))


async def test_entries_read_in_two_lives_of_the_counter_are_looked_at_when_settled_together(
    backend: RedisBackend, topic: str, group: str, admin: "redis.Redis"
) -> None:
    # A life starts at a random number, so the older fence is as likely to be the smaller one as the larger.
    for number in range(12):
        await publish(backend, topic, 3)
        before = await backend.read_new(topic, group, "a", 2, NOW)
        (taken,) = await backend.reclaim_idle(topic, group, "b", NOW, 1)
        admin.delete(keys.steals(topic, group))
        await backend.settle(topic, group, "a", done=before[1:])
        after = await backend.read_new(topic, group, "a", 1, NOW)
        result = await backend.settle(topic, group, "a", done=[*after, before[0]])
        assert result == Settled(ok=1, fenced=(taken.id,)), number
        assert await backend.settle(topic, group, "b", done=[taken]) == Settled(ok=1)


async def test_a_counter_that_was_removed_never_comes_back_with_a_value_it_had(
    server: Server, backend: RedisBackend, topic: str, group: str
) -> None:
    async with await RedisBackend.connect(server.url) as other:
        for number in range(4):
            await publish(backend, topic)
            entries = await backend.read_new(topic, group, "robbed", 1, NOW)
            taken = await other.reclaim_idle(topic, group, "thief", NOW, 1)
            result = await backend.settle(topic, group, "robbed", done=entries)
            assert result == Settled(fenced=(entries[0].id,)), number
            await other.settle(topic, group, "thief", done=taken)
            assert await other.forget_consumer(topic, group, "robbed") is True


async def test_settling_is_fast_again_after_the_counters_were_deleted(
    backend: RedisBackend, topic: str, group: str, admin: "redis.Redis"
) -> None:
    await publish(backend, topic, 2)
    first = await backend.read_new(topic, group, "a", 1, NOW)
    admin.delete(keys.steals(topic, group))
    assert await looks(admin, backend.settle(topic, group, "a", done=first)) == (Settled(ok=1), 1)
    second = await backend.read_new(topic, group, "a", 1, NOW)
    assert await looks(admin, backend.settle(topic, group, "a", done=second)) == (Settled(ok=1), 0)


async def test_what_was_read_ahead_settles_without_a_look_at_each(
    backend: RedisBackend, topic: str, group: str, admin: "redis.Redis"
) -> None:
    await publish(backend, topic, 4)
    for _ in range(2):
        entries = await backend.read_new(topic, group, "a", 2, SOON, ahead=True)
        assert await looks(admin, backend.settle(topic, group, "a", done=entries)) == (Settled(ok=2), 0)


async def test_a_consumer_of_a_topic_and_its_retries_settles_both_without_a_look_at_each(
    backend: RedisBackend, topic: str, group: str, admin: "redis.Redis"
) -> None:
    await publish(backend, topic, 2)
    first, second = await backend.read_new(topic, group, "a", 2, NOW)
    assert isinstance(first, ClaimedMessage)
    await backend.settle(topic, group, "a", parked=[Park(first, NOW, 2)])
    await backend.promote(topic, group)
    retry = keys.retry(topic, group)
    again = await backend.read_new(retry, group, "a", 1, NOW)
    assert await looks(admin, backend.settle(topic, group, "a", done=[second])) == (Settled(ok=1), 0)
    assert await looks(admin, backend.settle(retry, group, "a", done=again)) == (Settled(ok=1), 0)


async def before_the_first(steal: Callable[[], Awaitable[None]], read: Callable[[], Awaitable[None]]) -> None:
    await steal()
    await read()


async def after_the_first(steal: Callable[[], Awaitable[None]], read: Callable[[], Awaitable[None]]) -> None:
    await read()
    await steal()


@pytest.mark.parametrize("order", [before_the_first, after_the_first])
async def test_what_an_interrupted_read_was_given_is_fenced_if_it_was_stolen_before_it_was_seen(
    backend: RedisBackend, topic: str, group: str, admin: "redis.Redis",
    order: Callable[[Callable[[], Awaitable[None]], Callable[[], Awaitable[None]]], Awaitable[None]],
) -> None:  # fmt: skip
    await publish(backend, topic)
    earlier = await backend.read_new(topic, group, "a", 1, NOW)
    await blocked_read_then_cancelled(backend, topic, 4, admin)
    given = await backend.publish_once(topic, [Message(number) for number in range(4)], window=HOUR)

    async def steal() -> None:
        assert len(await backend.reclaim_idle(topic, group, "b", NOW, 10)) == 5
        await backend.settle(topic, group, "a", done=earlier)  # shows the consumer its new counter

    async def read() -> None:
        assert len(await backend.read_new(topic, group, "a", 1, SOON)) == 1

    await order(steal, read)
    rest = await backend.read_new(topic, group, "a", 10, NOW)
    ids = tuple(one.entry_id for one in given[1:])
    assert await backend.settle(topic, group, "a", done=rest) == Settled(fenced=ids)


@pytest.mark.parametrize("robbed", [False, True])
async def test_what_is_lost_and_held_by_another_is_not_completed_by_who_was_told(
    backend: RedisBackend, topic: str, group: str, admin: "redis.Redis", *, robbed: bool
) -> None:
    await publish(backend, topic, 2)
    if robbed:
        await backend.read_new(topic, group, "told", 1, NOW)
        await backend.reclaim_idle(topic, group, "holder", NOW, 1)
    holds, *_ = reversed(await backend.read_new(topic, group, "holder", 2, NOW))
    admin.xdel(topic, holds.id)
    lost = (await backend.reclaim_idle(topic, group, "told", NOW, 2))[-1]
    assert lost.id == holds.id
    assert await backend.settle(topic, group, "told", done=[lost]) == Settled(fenced=(holds.id,))
    assert await backend.settle(topic, group, "told", dead=[DeadLetter(lost, "lost")]) == Settled(ok=1)


async def test_parking_a_delivery_twice_in_one_call_stores_it_once(
    backend: RedisBackend, topic: str, group: str, admin: "redis.Redis"
) -> None:
    await publish(backend, topic)
    (entry,) = await backend.read_new(topic, group, "a", 1, NOW)
    assert isinstance(entry, ClaimedMessage)
    parks = [Park(entry, NOW, 2), Park(entry, HOUR, 3)]
    assert await backend.settle(topic, group, "a", parked=parks) == Settled(ok=1, gone=1)
    assert admin.zcard(keys.parked(topic, group)) == 1


async def test_a_retry_group_that_was_destroyed_comes_back_with_all_that_waited(
    backend: RedisBackend, topic: str, group: str, admin: "redis.Redis"
) -> None:
    retry = keys.retry(topic, group)
    await publish(backend, topic, 2)
    for entry in await backend.read_new(topic, group, "a", 2, NOW):
        assert isinstance(entry, ClaimedMessage)
        await backend.settle(topic, group, "a", parked=[Park(entry, NOW, 2)])
        await backend.promote(topic, group)
        if entry.message.body == 0:
            admin.xgroup_destroy(retry, group)
    assert len(await backend.read_new(retry, group, "a", 10, NOW)) == 2


async def test_a_read_waits_for_its_whole_timeout_however_long_one_request_may_block(
    backend: RedisBackend, topic: str, group: str, monkeypatch: pytest.MonkeyPatch, admin: "redis.Redis"
) -> None:
    monkeypatch.setattr(reading, "LONGEST_BLOCK_MS", 20)
    admin.config_resetstat()
    waiting = asyncio.create_task(backend.read_new(topic, group, "a", 1, HOUR))
    async with asyncio.timeout(ENOUGH):
        while admin.info("commandstats").get("cmdstat_xreadgroup", {}).get("calls", 0) < 3:
            await asyncio.sleep(0.005)
    await publish(backend, topic)
    assert len(await waiting) == 1


async def test_more_ids_than_one_command_takes_are_all_acked(backend: RedisBackend, topic: str, group: str) -> None:
    await publish(backend, topic, 2500)
    ids = [entry.id for entry in await backend.read_new(topic, group, "a", 2500, NOW)]
    assert await backend.ack_many(topic, group, ids) == 2500


async def test_a_lost_reply_to_an_advance_is_never_taken_for_a_step_out_of_sequence(
    server: Server, backend: RedisBackend, topic: str, group: str
) -> None:
    first, second = [await backend.publish(topic, Message(number)) for number in range(2)]
    async with Proxy(server.socket) as proxy, await RedisBackend.connect(proxy.url) as far:
        token = await far.take_turn(topic, group, "a", HOUR)
        assert isinstance(token, int)
        await far.advance(topic, group, token, expected="0-0", to=first)
        proxy.drop_reply_to("EVALSHA")
        with pytest.raises(ServerUnreachableError):
            await far.advance(topic, group, token, expected=first, to=second)
    with pytest.raises(AckOutOfSequenceError):  # it did move
        await backend.advance(topic, group, token, expected=first, to=second)


async def test_a_new_token_is_larger_even_if_the_servers_clock_was_set_back(
    backend: RedisBackend, topic: str, group: str, admin: "redis.Redis"
) -> None:
    token = await backend.take_turn(topic, group, "a", HOUR)
    assert isinstance(token, int)
    ahead = 4 * token  # as if it had been taken long after now
    admin.hset(keys.turn(topic, group), mapping={"token": ahead, "until": 1})
    assert await backend.take_turn(topic, group, "b", HOUR) == ahead + 1
