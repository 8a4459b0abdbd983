"""The stream manager reads: whatever is there, no more than was asked for, and nothing is lost on the way."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from itertools import count
from typing import Any

import pytest
import redis

from penstock.backend import keys
from penstock.backend.redis import RedisBackend
from penstock.errors import ConfigurationError, EncodeError, MalformedError, WrongKeyTypeError
from penstock.events import DeadLettered, GroupRestored, Lost, PauseChanged, Skipped
from penstock.manager import ConsumerGroupConfig, DLQConfig, MessageStatus, RedisStreamManager, StreamMessage
from penstock.message.fields import EXPIRES_AT
from penstock.message.message import Message
from penstock.message.wire import Wire
from tests.support.managing import GROUP, Managing, numbers
from tests.support.servers import Server
from tests.support.waiting import blocked

BOTH = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)
VALUES: dict[str, Any] = {
    "text": "hello", "digits": "123", "number": 123, "float": 1.5, "exponent": "1e5", "yes": True, "word": "true",
    "nothing": None, "null": "null", "list": [1, "1", None], "object": {"a": {"b": []}}, "empty": "", "quoted": '"x"',
}  # fmt: skip


@pytest.fixture
async def managing(server: Server, admin: "redis.Redis", topic: str) -> AsyncIterator[Managing]:
    async with Managing(server, admin, topic) as opened:
        yield opened


def add_like_another_manager(admin: "redis.Redis", stream: str, data: dict[str, Any], **marks: Any) -> str:
    """As the documented system's own code writes: JSON for dicts and lists, else `str`."""
    fields = {key: json.dumps(value) if isinstance(value, dict | list) else str(value) for key, value in data.items()}
    return admin.xadd(stream, fields | {name: str(mark) for name, mark in marks.items()}).decode()  # type: ignore[no-any-return]


@BOTH
@pytest.mark.parametrize("decode_responses", [True, False])
async def test_types_survive_whatever_the_client_decodes(managing: Managing, decode_responses: bool) -> None:
    client = await managing.client(decode_responses=decode_responses)
    manager = await managing.manager(client=client)
    sent = await manager.send_message(managing.first, VALUES)
    (message,) = await manager.read_messages(GROUP)
    assert (message.id, message.data) == (sent, VALUES)
    assert [type(value) for value in message.data.values()] == [type(value) for value in VALUES.values()]
    # And what the caller's own client reads, made into a message by hand, is the same.
    ((entry_id, fields),) = await client.xrange(managing.first)
    by_hand = StreamMessage.from_redis(managing.first, entry_id, fields)
    assert (by_hand.id, by_hand.data, by_hand.timestamp) == (sent, VALUES, message.timestamp)
    assert (by_hand.status, message.status) == (MessageStatus.PENDING, MessageStatus.PROCESSING)


@BOTH
@pytest.mark.parametrize("decode_responses", [True, False])
async def test_what_another_manager_wrote_is_read_with_its_types_and_its_retries(
    managing: Managing, decode_responses: bool
) -> None:
    manager = await managing.manager(client=await managing.client(decode_responses=decode_responses))
    data = {"agent": "cline-1", "task": {"id": 7, "tags": ["a"]}, "steps": [1, 2], "n": 5, "share": 0.5}
    id = add_like_another_manager(managing.admin, managing.first, data, _retry_count=2, _original_id="1-1")
    (message,) = await manager.read_messages(GROUP)
    assert (message.id, message.data, message.retry_count) == (id, data, 2)
    assert await manager.retry_message(message) is True  # the third
    message.error = None
    ((_, due),) = managing.parked()
    assert 230 < due / 1000 - time.time() < 250


async def test_another_client_reads_what_we_wrote(managing: Managing) -> None:
    manager = await managing.manager()
    await manager.send_message(managing.first, {"agent": "cline-1", "task": {"id": 7}, "n": 5})
    ((_, fields),) = managing.admin.xrange(managing.first)
    assert {key: value for key, value in fields.items() if not key.startswith(b"_")} == {
        b"agent": b"cline-1",
        b"task": b'{"id":7}',
        b"n": b"5",
    }


async def test_making_streams_leaves_no_entry_and_that_of_others_is_skipped(managing: Managing) -> None:
    manager = await managing.manager()
    assert managing.admin.xlen(managing.first) == 0
    managing.admin.xadd(managing.first, {"_init": "true"})
    await manager.send_message(managing.first, {"n": 1})
    assert numbers(await manager.read_messages(GROUP)) == [1]
    assert managing.pending() == 1
    assert len(managing.told(Skipped)) == 1


@BOTH
async def test_count_is_for_all_streams_together_and_what_is_left_comes_next(managing: Managing) -> None:
    manager = await managing.manager()
    for n in range(6):
        await manager.send_message(managing.first if n % 2 else managing.second, {"n": n})
    seen: list[int] = []
    for _ in range(3):
        messages = await manager.read_messages(GROUP, count=2, block_ms=0)
        assert len(messages) == 2
        seen += numbers(messages)
    assert sorted(seen) == list(range(6))
    assert await manager.read_messages(GROUP, block_ms=0) == []


async def test_no_count_takes_the_batch_size_and_none_takes_nothing(managing: Managing) -> None:
    manager = await managing.manager(batch_size=3)
    for n in range(5):
        await manager.send_message(managing.first, {"n": n})
    assert await manager.read_messages(GROUP, count=0) == []
    assert managing.pending() == 0
    assert numbers(await manager.read_messages(GROUP)) == [0, 1, 2]


async def test_a_read_waits_as_long_as_it_says(managing: Managing) -> None:
    manager = await managing.manager(block_ms=1000)
    for block_ms, least, most in ((0, 0.0, 0.9), (None, 1.0, None), (100, 0.1, 0.9)):
        seconds: list[float] = []
        for _ in range(1 if most is None else 5):  # a machine may be busy now and then
            began = time.monotonic()
            assert await manager.read_messages(GROUP, block_ms=block_ms) == []
            seconds.append(time.monotonic() - began)
        assert min(seconds) >= least
        assert most is None or min(seconds) < most


@BOTH
@pytest.mark.parametrize("which", ["first", "second"])
async def test_a_waiting_read_wakes_for_any_of_its_streams(managing: Managing, which: str) -> None:
    manager = await managing.manager()
    reading = asyncio.ensure_future(manager._read(GROUP, 1, 40_000))
    await blocked(managing.admin, 2)
    sender = await managing.manager()
    await sender.send_message(getattr(managing, which), {"n": 1})
    async with asyncio.timeout(20):
        (message,) = await reading
    assert message.stream == getattr(managing, which)


async def test_a_waiting_read_takes_no_more_than_it_was_asked_for(managing: Managing) -> None:
    manager, other = await managing.manager(), await managing.manager()
    reading = asyncio.ensure_future(manager._read(GROUP, 2, 40_000))
    await blocked(managing.admin, 2)
    sending = managing.admin.pipeline(transaction=True)
    for n in range(6):
        sending.xadd(managing.first, {"n": n})
    sending.execute()
    assert numbers(await reading) == [0]
    assert managing.pending() == 1
    assert numbers(await other.read_messages(GROUP)) == [1, 2, 3, 4, 5]


async def test_a_read_that_is_cancelled_loses_nothing(managing: Managing) -> None:
    manager = await managing.manager()
    sender = await managing.manager(consumer_id="sender")
    for n in range(30):
        reading = asyncio.ensure_future(manager._read(GROUP, 10, 40_000))
        await blocked(managing.admin, 2)
        sending = asyncio.ensure_future(sender.send_message(managing.first, {"n": n}))
        for _ in range(n % 7):
            await asyncio.sleep(0)
        reading.cancel()
        await asyncio.wait([reading])
        await sending
        if not reading.cancelled():
            seen = numbers(reading.result())
        else:
            seen = numbers(await manager.read_messages(GROUP, block_ms=20_000))
        assert seen == [n]


async def test_iterating_goes_on_and_hands_back_what_was_not_consumed(managing: Managing) -> None:
    manager, other = await managing.manager(), await managing.manager()
    for n in range(3):
        await manager.send_message(managing.first, {"n": n})
    seen: list[int] = []
    async with asyncio.timeout(10):
        async for message in manager.read_messages(GROUP):
            seen.append(message.data["n"])
            await manager.acknowledge(message)
            if len(seen) == 3:  # what is sent from here on is waited for
                await other.send_message(managing.second, {"n": 3})
                await other.send_message(managing.second, {"n": 4})
            if len(seen) == 4:
                break
        while len(seen) < 5:
            seen += numbers(await other.read_messages(GROUP, block_ms=6000))
    assert seen == [0, 1, 2, 3, 4]


async def test_closing_ends_an_iteration_and_gives_the_rest_to_others(managing: Managing) -> None:
    manager, other = await managing.manager(), await managing.manager()
    for n in range(10):
        await manager.send_message(managing.first, {"n": n})
    seen: list[int] = []

    async def follow() -> None:
        async for message in manager.read_messages(GROUP):
            seen.append(message.data["n"])
            await manager.acknowledge(message)
            if len(seen) == 2:
                await asyncio.sleep(3600)

    following = asyncio.create_task(follow())
    async with asyncio.timeout(10):
        while len(seen) < 2:
            await asyncio.sleep(0.002)
        await manager.close()
        following.cancel()
        await asyncio.wait([following])
        assert sorted(numbers(await other.read_messages(GROUP))) == list(range(2, 10))


async def test_closing_ends_a_read_that_waits(managing: Managing) -> None:
    manager = await managing.manager(block_ms=40_000)

    async def follow() -> list[StreamMessage]:
        return [message async for message in manager.read_messages(GROUP)]

    following = asyncio.create_task(follow())
    await blocked(managing.admin, 2)
    async with asyncio.timeout(20):
        await manager.close()
        assert await following == []


async def test_what_waited_too_long_and_was_claimed_is_not_handed_out(managing: Managing) -> None:
    manager = await managing.manager(claim_idle_ms=300)
    other = await managing.manager(claim_idle_ms=300)
    for n in range(3):
        await manager.send_message(managing.first, {"n": n})
    messages = manager.read_messages(GROUP).__aiter__()
    assert (await anext(messages)).data["n"] == 0  # the others wait here
    await asyncio.sleep(0.35)
    assert numbers(await other.claim_pending_messages(GROUP)) == [0, 1, 2]
    sent = await manager.send_message(managing.first, {"n": 3})
    assert (await anext(messages)).id == sent
    await messages.aclose()  # type: ignore[attr-defined]


async def test_what_came_for_a_cancelled_read_and_was_claimed_is_not_handed_out(managing: Managing) -> None:
    manager = await managing.manager(claim_idle_ms=300, streams=[managing.first])
    other = await managing.manager(claim_idle_ms=300, streams=[managing.first])
    reading = asyncio.ensure_future(manager._read(GROUP, 1, 40_000))
    await blocked(managing.admin)
    reading.cancel()
    await asyncio.wait([reading])
    await other.send_message(managing.first, {"n": 0})  # the server still has the read, and answers it
    assert managing.pending() == 1
    await asyncio.sleep(0.35)
    assert numbers(await other.claim_pending_messages(GROUP)) == [0]
    assert await manager.read_messages(GROUP, block_ms=0) == []


async def test_what_waits_here_is_not_claimed_by_ourselves(managing: Managing) -> None:
    manager = await managing.manager(claim_idle_ms=100)
    for n in range(3):
        await manager.send_message(managing.first, {"n": n})
    messages = manager.read_messages(GROUP).__aiter__()
    await anext(messages)  # the others wait here
    await asyncio.sleep(0.15)
    assert numbers(await manager.claim_pending_messages(GROUP)) == [0]
    assert [(await anext(messages)).data["n"] for _ in range(2)] == [1, 2]
    await messages.aclose()  # type: ignore[attr-defined]


async def test_an_entry_that_cannot_be_read_goes_to_the_dead_letters_and_harms_nobody(managing: Managing) -> None:
    manager = await managing.manager()
    await manager.send_message(managing.first, {"n": 0})
    bad = managing.admin.xadd(managing.first, {"n": b"\xff\xfe"}).decode()
    await manager.send_message(managing.first, {"n": 2})
    assert numbers(await manager.read_messages(GROUP)) == [0, 2]
    assert managing.pending() == 2
    (letter,) = [one async for one in await manager.dead_letters(GROUP)]
    assert (letter.entry_id, list(letter.raw)) == (bad, [b"n", b"\xff\xfe"])
    assert [one.entry_id for one in managing.told(DeadLettered)] == [bad]
    with pytest.raises(MalformedError):
        StreamMessage.from_redis(managing.first, bad, {b"n": b"\xff\xfe"})


async def test_a_message_whose_time_is_over_is_not_handed_out(managing: Managing) -> None:
    manager = await managing.manager()
    async with await RedisBackend.connect(managing.server.url, wire=Wire("flat")) as backend:
        await backend.publish(managing.first, Message({"n": 0}, headers={EXPIRES_AT: "2020-01-01T00:00:00Z"}))
    await manager.send_message(managing.first, {"n": 1})
    assert numbers(await manager.read_messages(GROUP)) == [1]
    assert ["expired" in one.reason async for one in await manager.dead_letters(GROUP)] == [True]


async def test_a_retry_stream_that_was_deleted_is_made_again_and_its_loss_is_told(managing: Managing) -> None:
    manager = await managing.manager(streams=[managing.first])
    managing.admin.delete(keys.retry(managing.first, GROUP))
    await manager.send_message(managing.first, {"n": 0})
    async with asyncio.timeout(20):
        seen: list[Any] = []
        while not seen:
            seen = numbers(await manager.read_messages(GROUP, block_ms=500))
    assert "retry stream was deleted" in managing.told(Lost)[0].reason


async def test_a_group_can_be_given_other_streams(managing: Managing) -> None:
    manager = await managing.manager(streams=[managing.first])
    config = ConsumerGroupConfig(GROUP, [managing.second], block_ms=0)
    await manager.create_consumer_group(config)
    config.streams.append("has no effect")
    for stream in (managing.first, managing.second):
        await manager.send_message(stream, {"n": stream})
    assert numbers(await manager.read_messages(GROUP)) == [managing.second]


async def test_without_a_dlq_what_cannot_be_read_stays_pending(managing: Managing) -> None:
    manager = await managing.manager(dlq=DLQConfig(enabled=False))
    managing.admin.xadd(managing.first, {"n": b"\xff\xfe"})
    assert await manager.read_messages(GROUP, block_ms=0) == []
    assert managing.pending() == 1


async def test_a_group_that_vanished_is_made_again(managing: Managing) -> None:
    manager = await managing.manager()
    await manager.send_message(managing.first, {"n": 0})
    (message,) = await manager.read_messages(GROUP)
    await manager.acknowledge(message)
    managing.admin.xgroup_destroy(managing.first, GROUP)
    await manager.send_message(managing.first, {"n": 1})
    async with asyncio.timeout(10):
        seen: list[Any] = []
        while 1 not in seen:
            seen += numbers(await manager.read_messages(GROUP, block_ms=1000))
    assert managing.told(GroupRestored)


async def test_an_error_is_raised_and_what_had_come_is_not_lost(managing: Managing) -> None:
    manager = await managing.manager()
    managing.admin.delete(managing.second)
    managing.admin.rpush(managing.second, "in the way")
    seen: list[Any] = []
    errors: list[str] = []
    sent = count()
    async with asyncio.timeout(20):
        while len(seen) < 3 or len(errors) < 2:
            await manager.send_message(managing.first, {"n": next(sent)})
            try:
                seen += numbers(await manager.read_messages(GROUP, block_ms=50))
            except WrongKeyTypeError as error:
                errors.append(str(error))
    assert seen == list(range(len(seen)))
    assert all(managing.second in error for error in errors)


async def test_a_paused_group_is_given_nothing_until_it_is_resumed(
    managing: Managing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.manager.post.LOOK_SECONDS", 0.05)
    manager = await managing.manager(streams=[managing.first])
    async with await RedisBackend.connect(managing.server.url) as backend:
        await backend.pause(managing.first, GROUP)
        async with asyncio.timeout(20):
            while not managing.told(PauseChanged):
                assert await manager.read_messages(GROUP, block_ms=50) == []
        await manager.send_message(managing.first, {"n": 0})
        assert await manager.read_messages(GROUP, block_ms=100) == []
        assert "paused" in (await manager.get_health())["problems"][0]
        await backend.resume(managing.first, GROUP)
    assert numbers(await manager.read_messages(GROUP, block_ms=20_000)) == [0]


async def test_what_cannot_be_meant_is_refused(managing: Managing) -> None:
    manager = await managing.manager()
    with pytest.raises(ConfigurationError, match="knows no group 'nobody', only"):
        await manager.read_messages("nobody")
    for wrong in (lambda: manager.read_messages(GROUP, count=-1), lambda: manager.read_messages(GROUP, block_ms=-1)):
        with pytest.raises(ConfigurationError, match="at least 0"):
            wrong()
    with pytest.raises(ConfigurationError, match=r"takes a redis\.asyncio\.Redis"):
        await RedisStreamManager(managing.admin).initialize()  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="data"):
        await manager.send_message(managing.first, "text")  # type: ignore[arg-type]
    with pytest.raises(EncodeError, match="_id"):
        await manager.send_message(managing.first, {"_id": 1})
    with pytest.raises(ConfigurationError, match="claim_pending_messages"):
        await manager.claim_pending_messages(GROUP, idle_ms=-1)


@BOTH
async def test_max_len_drops_what_everybody_is_done_with_and_only_force_drops_more(managing: Managing) -> None:
    manager = await managing.manager(streams=[managing.first], batch_size=1000)
    for n in range(350):
        await manager.send_message(managing.first, {"n": n}, max_len=50)
    assert managing.admin.xlen(managing.first) == 350  # nobody has read them
    for message in await manager.read_messages(GROUP, count=300):
        await manager.acknowledge(message)
    for n in range(350, 451):
        await manager.send_message(managing.first, {"n": n}, max_len=50)
    assert 150 <= managing.admin.xlen(managing.first) < 260
    assert numbers(await manager.read_messages(GROUP, count=200)) == list(range(300, 451))
    for n in range(451, 552):
        await manager.send_message(managing.first, {"n": n}, max_len=50, force_trim=True)
    assert 50 <= managing.admin.xlen(managing.first) < 260
    assert managing.pending() == 151
    with pytest.raises(ConfigurationError, match="max_len"):
        await manager.send_message(managing.first, {}, max_len=0)


async def test_a_message_sent_again_under_its_id_is_stored_once(managing: Managing) -> None:
    manager = await managing.manager()
    id = "0198c0de-5a5a-7abc-8def-0123456789ab"
    first = await manager.send_message(managing.first, {"n": 1}, id=id)
    assert await manager.send_message(managing.first, {"n": 1}, id=id) == first
    assert managing.admin.xlen(managing.first) == 1


async def test_health_tells_of_streams_and_groups(managing: Managing) -> None:
    manager = await managing.manager()
    for n in range(3):
        await manager.send_message(managing.first, {"n": n})
    taken, again = await manager.read_messages(GROUP, count=2)
    await manager.send_to_dlq(taken, "why", GROUP)
    await manager.retry_message(again)
    health = await manager.get_health()
    assert health["healthy"]
    stream = health["streams"][managing.first]
    assert (stream["length"], stream["dlq_length"]) == (3, 1)
    group = stream["groups"][GROUP]
    assert (group["lag"], group["lag_state"], group["pending"], group["waiting_for_retry"]) == (1, "exact", 0, 1)
    managing.admin.delete(managing.second, keys.groups(managing.second))
    assert "has no group" in (await manager.get_health())["problems"][0]
