"""What becomes of a message that was read: done, again later in its group, or a dead letter; and what others left."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
import redis

from penstock.backend import keys
from penstock.errors import ConfigurationError, LeaseLostError, WrongKeyTypeError
from penstock.events import DeadLettered, DeadLettersDropped
from penstock.manager import ConsumerGroupConfig, DLQConfig, MessageStatus, RedisStreamManager, StreamMessage
from tests.support.managing import GROUP, Managing, numbers, taken
from tests.support.servers import Server

BOTH = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)
AT_ONCE = DLQConfig(retry_backoff_seconds=0)


@pytest.fixture
async def managing(server: Server, admin: "redis.Redis", topic: str) -> AsyncIterator[Managing]:
    async with Managing(server, admin, topic) as opened:
        yield opened


async def next_of(manager: RedisStreamManager) -> StreamMessage:
    (message,) = await manager.read_messages(GROUP, count=1, block_ms=20_000)
    return message


def due_in(managing: Managing) -> float:
    ((_, due),) = managing.parked()
    return due / 1000 - time.time()


def make_due(managing: Managing) -> None:
    ((parcel, _),) = managing.parked()
    managing.admin.zadd(keys.parked(managing.first, GROUP), {parcel: 0})


@BOTH
async def test_a_retry_waits_on_the_server_doubles_and_ends_at_the_limit(
    managing: Managing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.delivery.promoter._POLL_SECONDS", 0.02)
    manager = await managing.manager()
    message = await taken(manager, managing.first, {"deep": [True, None]})
    for retry, seconds in enumerate((60, 120, 240), 1):
        message.error = f"attempt {retry}"
        assert await manager.retry_message(message) is True
        assert (message.status, message.retry_count) == (MessageStatus.RETRY, retry)
        assert 0.6 * seconds < due_in(managing) <= seconds
        assert (managing.pending(), managing.admin.xlen(managing.first)) == (0, 1)
        assert await manager.read_messages(GROUP, block_ms=0) == []
        make_due(managing)
        if retry == 2:  # it is on the server, whoever has put it there
            await manager.close()
            manager = await managing.manager()
        again = await next_of(manager)
        assert (again.id, again.stream, again.data) == (message.id, managing.first, {"n": {"deep": [True, None]}})
        assert (again.retry_count, again.status) == (retry, MessageStatus.PROCESSING)
        message = again
    assert await manager.retry_message(message) is False
    assert message.status is MessageStatus.FAILED
    assert await manager.send_to_dlq(message, "no more", GROUP) is True
    (letter,) = [one async for one in await manager.dead_letters(GROUP)]
    assert (letter.attempts, letter.entry_id, letter.reason) == (4, message.id, "no more")
    assert await manager.read_messages(GROUP, block_ms=0) == []


async def test_a_retry_comes_back_while_a_read_waits_and_to_its_own_group_alone(managing: Managing) -> None:
    manager, other = await managing.manager(dlq=AT_ONCE), await managing.manager()
    await other.create_consumer_group(ConsumerGroupConfig("other", [managing.first]))
    message = await taken(manager, managing.first)
    assert len(await other.read_messages("other", block_ms=0)) == 1
    reading = asyncio.ensure_future(other._read(GROUP, 1, 40_000))
    await manager.retry_message(message)
    async with asyncio.timeout(20):
        (again,) = await reading
    assert (again.id, again.retry_count) == (message.id, 1)
    assert await other.read_messages("other", block_ms=0) == []
    assert await other.acknowledge(again) is True
    assert managing.admin.xlen(keys.retry(managing.first, GROUP)) == 0


@BOTH
async def test_acknowledging_twice_is_told_and_what_another_one_holds_is_refused(managing: Managing) -> None:
    manager, other = await managing.manager(), await managing.manager()
    message = await taken(manager, managing.first)
    assert await manager.acknowledge(message, GROUP) is True
    assert await manager.acknowledge(message, GROUP) is False
    stolen = await taken(manager, managing.first)
    (mine,) = await other.claim_pending_messages(GROUP, idle_ms=0)
    for act in (manager.acknowledge, manager.retry_message):
        with pytest.raises(LeaseLostError, match="another consumer of group 'g' has claimed it"):
            await act(stolen)
    with pytest.raises(LeaseLostError):
        await manager.send_to_dlq(stolen, "late", GROUP)
    assert managing.admin.xlen(f"xnai:dlq:{managing.first}") == 0
    assert managing.pending() == 1
    assert await other.acknowledge(mine, GROUP) is True
    with pytest.raises(LeaseLostError, match="before"):
        await other.retry_message(mine)


async def test_a_message_made_by_hand_knows_no_group(managing: Managing) -> None:
    manager = await managing.manager()
    sent = await manager.send_message(managing.first, {"n": 1})
    ((_, ((raw_id, fields),)),) = managing.admin.xreadgroup(GROUP, "by hand", {managing.first: ">"})
    message = StreamMessage.from_redis(managing.first, raw_id, fields)
    assert message.id == sent
    with pytest.raises(ConfigurationError, match="made by hand"):
        await manager.retry_message(message)
    with pytest.raises(ConfigurationError, match="name its group"):
        await manager.acknowledge(message)
    assert await manager.send_to_dlq(message, "by hand", GROUP) is True
    assert managing.pending() == 0
    (letter,) = [one async for one in await manager.dead_letters(GROUP)]
    assert (letter.entry_id, letter.reason) == (sent, "by hand")
    assert await manager.acknowledge(message, GROUP) is False
    other = await taken(manager, managing.first)
    with pytest.raises(ConfigurationError, match="read for group 'g', not for 'other'"):
        await manager.acknowledge(other, "other")


async def test_without_a_group_the_original_stays_pending(managing: Managing) -> None:
    manager = await managing.manager()
    message = await taken(manager, managing.first)
    assert await manager.send_to_dlq(message, "a copy") is True
    assert (managing.pending(), managing.admin.xlen(f"xnai:dlq:{managing.first}")) == (1, 1)
    assert message.status is MessageStatus.DLQ


async def test_without_a_dlq_nothing_is_moved(managing: Managing) -> None:
    manager = await managing.manager(dlq=DLQConfig(enabled=False))
    message = await taken(manager, managing.first)
    assert await manager.send_to_dlq(message, "why", GROUP) is False
    assert (managing.pending(), message.status) == (1, MessageStatus.PROCESSING)


@BOTH
async def test_dead_letters_are_where_they_were_asked_for_and_no_more_than_that(managing: Managing) -> None:
    prefix = f"{managing.first}:dead"
    manager = await managing.manager(dlq=DLQConfig(dlq_prefix=prefix, max_len=3))
    for n in range(8):
        await manager.send_to_dlq(await taken(manager, managing.first, n), f"reason {n}", GROUP)
    assert managing.admin.xlen(f"{prefix}:{managing.first}") == 3
    assert [one.reason async for one in await manager.dead_letters(GROUP)] == [f"reason {n}" for n in (5, 6, 7)]
    assert not managing.admin.exists(keys.dead(managing.first))
    assert sum(event.count for event in managing.told(DeadLettersDropped)) == 5


async def test_dead_letters_that_are_too_old_fall_off(managing: Managing) -> None:
    manager = await managing.manager(dlq=DLQConfig(max_retention_seconds=100))
    now, dlq = int(time.time() * 1000), f"xnai:dlq:{managing.first}"
    for age in (300_000, 200_000, 50_000):
        managing.admin.xadd(dlq, {"age": age}, id=f"{now - age}-0")
    await manager.send_to_dlq(await taken(manager, managing.first), "new", GROUP)
    assert [int(id.decode().partition("-")[0]) - now > -100_000 for id, _ in managing.admin.xrange(dlq)] == [True, True]


async def test_a_dead_letter_can_be_replayed_to_its_group(managing: Managing) -> None:
    manager = await managing.manager()
    message = await taken(manager, managing.first, {"types": [1, "1"]})
    await manager.send_to_dlq(message, "why", GROUP)
    report = await (await manager.dead_letters(GROUP)).replay()
    assert report.replayed == 1
    again = await next_of(manager)
    assert (again.id, again.data, again.retry_count) == (message.id, message.data, 0)
    assert managing.admin.xlen(f"xnai:dlq:{managing.first}") == 0


@BOTH
async def test_claiming_finds_what_is_idle_behind_thousands_that_are_not(managing: Managing) -> None:
    manager = await managing.manager()
    pipe = managing.admin.pipeline()
    for n in range(4500):
        pipe.xadd(managing.first, {"n": n})
    pipe.execute()
    entries = managing.admin.xreadgroup(GROUP, "busy", {managing.first: ">"}, count=5000)[0][1]
    last = entries[-1][0].decode()
    assert await manager.claim_pending_messages(GROUP) == []
    managing.abandon(last, consumer="busy", idle=61_000)
    (message,) = await manager.claim_pending_messages(GROUP)
    assert (message.id, message.data) == (last, {"n": 4499})
    assert await manager.acknowledge(message) is True
    assert await manager.claim_pending_messages(GROUP, idle_ms=60_000) == []
    assert managing.pending() == 4499


async def test_claiming_takes_no_more_than_it_is_asked_for(managing: Managing) -> None:
    manager = await managing.manager()
    ids = [await manager.send_message(managing.first, {"n": n}) for n in range(5)]
    managing.abandon(*ids)
    assert await manager.claim_pending_messages(GROUP, count=0) == []
    assert numbers(await manager.claim_pending_messages(GROUP, count=2)) == [0, 1]
    assert numbers(await manager.claim_pending_messages(GROUP, count=10)) == [2, 3, 4]
    assert await manager.claim_pending_messages(GROUP) == []  # they are busy now


async def test_calls_at_the_same_time_get_each_message_once(managing: Managing) -> None:
    manager = await managing.manager()
    managing.abandon(*[await manager.send_message(managing.first, {"n": n}) for n in range(20)])
    claimed = await asyncio.gather(*[manager.claim_pending_messages(GROUP, count=4) for _ in range(8)])
    assert sorted(n for messages in claimed for n in numbers(messages)) == list(range(20))
    for n in range(20):
        await manager.send_message(managing.first, {"n": n})
    seen: list[int] = []
    async with asyncio.timeout(20):
        while len(seen) < 20:
            read = await asyncio.gather(*[manager.read_messages(GROUP, count=4, block_ms=50) for _ in range(8)])
            seen += [n for messages in read for n in numbers(messages)]
    assert sorted(seen) == list(range(20))


async def test_a_stream_that_cannot_be_claimed_from_is_told_of_and_does_not_hide_the_others(managing: Managing) -> None:
    manager = await managing.manager(streams=[managing.second, managing.first])
    sent = await manager.send_message(managing.first, {"n": 0})
    managing.abandon(sent)
    managing.admin.delete(managing.second)
    managing.admin.rpush(managing.second, "in the way")
    with pytest.raises(WrongKeyTypeError, match="second"):
        await manager.claim_pending_messages(GROUP)
    assert numbers(await manager.claim_pending_messages(GROUP)) == [0]
    managing.admin.delete(managing.second)
    managing.admin.xgroup_destroy(managing.first, GROUP)
    assert await manager.claim_pending_messages(GROUP) == []


async def test_a_retry_that_was_left_lying_can_be_claimed(managing: Managing) -> None:
    manager, other = await managing.manager(dlq=AT_ONCE), await managing.manager(dlq=AT_ONCE)
    message = await taken(manager, managing.first)
    await manager.retry_message(message)
    again = await next_of(manager)
    (claimed,) = await other.claim_pending_messages(GROUP, idle_ms=0)
    assert (claimed.id, claimed.stream, claimed.retry_count) == (again.id, managing.first, 1)
    assert await other.acknowledge(claimed) is True


@BOTH
async def test_what_kills_its_consumers_ends_in_the_dead_letters_and_its_neighbours_do_not(managing: Managing) -> None:
    """Every consumer dies of the poison, holding whatever else it had claimed."""
    manager = await managing.manager()
    ids = [await manager.send_message(managing.first, {"n": n}) for n in range(3)]
    poison = ids[1]
    managing.abandon(*ids)
    handled: list[int] = []
    for life in range(20):
        dying = await managing.manager(consumer_id=f"life-{life}")
        claimed = await dying.claim_pending_messages(GROUP)
        if not claimed:
            break
        for message in claimed:
            if message.id == poison:
                held = managing.admin.xpending_range(managing.first, GROUP, "-", "+", 10)
                managing.abandon(*[one["message_id"].decode() for one in held], consumer="dead")
                break
            assert await dying.acknowledge(message) is True
            handled.append(message.data["n"])
    assert sorted(handled) == [0, 2]
    (letter,) = [one async for one in await manager.dead_letters(GROUP)]
    assert (letter.entry_id, letter.attempts) == (poison, 4)
    assert "consumers that died" in letter.reason
    assert [one.entry_id for one in managing.told(DeadLettered)] == [poison]
    assert managing.pending() == 0


async def test_one_that_was_claimed_before_comes_alone_and_takes_nothing_from_the_others(managing: Managing) -> None:
    manager, other = await managing.manager(), await managing.manager()
    first, second, third = [await manager.send_message(managing.first, {"n": n}) for n in range(3)]
    managing.abandon(first, second, third, idle=0)
    managing.abandon(second)
    assert numbers(await other.claim_pending_messages(GROUP)) == [1]
    managing.abandon(first, second, third)
    assert numbers(await manager.claim_pending_messages(GROUP)) == [0]
    assert numbers(await manager.claim_pending_messages(GROUP)) == [1]
    assert numbers(await manager.claim_pending_messages(GROUP)) == [2]
    assert await manager.claim_pending_messages(GROUP) == []


async def test_what_was_trimmed_while_it_was_held_is_reported(managing: Managing) -> None:
    manager = await managing.manager()
    message = await taken(manager, managing.first)
    managing.admin.xtrim(managing.first, maxlen=0, approximate=False)
    assert await manager.claim_pending_messages(GROUP, idle_ms=0) == []
    (letter,) = [one async for one in await manager.dead_letters(GROUP)]
    assert letter.entry_id == message.id
    assert "trimmed" in letter.reason
