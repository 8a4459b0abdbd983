"""What publish says is true: written, not written, or unknown."""

import asyncio
import json
from collections.abc import Iterator
from datetime import timedelta

import pytest
import redis

from penstock.backend import keys
from penstock.backend.entry import Published
from penstock.backend.redis import RedisBackend
from penstock.errors import (
    ConfigurationError,
    EncodeError,
    PublishUnknownError,
    ServerOutOfMemoryError,
    WrongKeyTypeError,
)
from penstock.message.message import Message
from penstock.options import Limits
from tests.support.proxy import Proxy
from tests.support.servers import Server
from tests.support.waiting import ENOUGH

HOUR = timedelta(hours=1)


async def test_a_message_is_stored_as_seed_002_describes_it(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    message = Message({"content": "hi"})
    entry_id = await backend.publish(topic, message)
    ((stored_id, fields),) = admin.xrange(topic)
    assert stored_id.decode() == entry_id
    assert fields[b"id"].decode() == message.id
    assert json.loads(fields[b"payload"]) == {"content": "hi"}


async def test_concurrent_publishers_keep_their_order_and_share_writes(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    messages = [Message(n) for n in range(500)]
    before = admin.info("stats")["total_reads_processed"]
    ids = await asyncio.gather(*(backend.publish(topic, message) for message in messages))
    reads = admin.info("stats")["total_reads_processed"] - before
    stored = admin.xrange(topic)
    assert [entry_id.decode() for entry_id, _ in stored] == ids
    assert [json.loads(fields[b"payload"]) for _, fields in stored] == list(range(500))
    assert reads < 50


async def test_publish_many_gives_one_result_each_and_never_fails_fast(backend: RedisBackend, topic: str) -> None:
    bodies: list[object] = [*range(700), float("nan"), *range(700)]
    results = await backend.publish_many(topic, [Message(body) for body in bodies])
    assert isinstance(results[700], EncodeError)
    ids = [result for result in results if isinstance(result, str)]
    assert len(ids) == 1400
    stored = await backend.read_range(topic, "-", "+", 2000)
    assert [entry.id for entry in stored] == ids


async def test_a_generator_is_not_run_far_ahead_of_the_server(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    ahead: list[int] = []

    def messages() -> Iterator[Message[int]]:
        for number in range(8000):
            if number % 500 == 0:
                ahead.append(number - admin.xlen(topic))
            yield Message(number)

    results = await backend.publish_many(topic, messages())
    assert len(results) == admin.xlen(topic) == 8000
    assert max(ahead) <= 2000


async def test_publishing_nothing_writes_nothing(backend: RedisBackend, topic: str, admin: "redis.Redis") -> None:
    assert await backend.publish_many(topic, []) == []
    assert await backend.publish_once(topic, [], window=HOUR) == []
    assert not admin.exists(topic)


async def test_a_payload_over_the_limit_is_not_sent(backend: RedisBackend, topic: str, admin: "redis.Redis") -> None:
    with pytest.raises(EncodeError, match="limit"):
        await backend.publish(topic, Message("x" * Limits().payload_bytes))
    assert not admin.exists(topic)


async def test_publishing_once_writes_one_entry_per_id(backend: RedisBackend, topic: str, admin: "redis.Redis") -> None:
    a, b = Message("a"), Message("b")
    (first,) = await backend.publish_once(topic, [a], window=HOUR)
    again = await backend.publish_once(topic, [a, b, a], window=HOUR)
    assert not first.duplicate
    assert [(one.entry_id == first.entry_id, one.duplicate) for one in again] == [
        (True, True), (False, False), (True, True)
    ]  # fmt: skip
    assert admin.xlen(topic) == 2


async def test_the_same_message_twice_in_one_batch_is_written_once(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    a = Message("a")
    first, second = await backend.publish_once(topic, [a, a], window=HOUR)
    assert (first.duplicate, second.duplicate) == (False, True)
    assert first.entry_id == second.entry_id
    assert admin.xlen(topic) == 1


async def test_concurrent_publishers_of_one_id_write_it_once(server: Server, topic: str, admin: "redis.Redis") -> None:
    message = Message("once")
    backends = [await RedisBackend.connect(server.url) for _ in range(4)]
    results = await asyncio.gather(
        *(backend.publish_once(topic, [message], window=HOUR) for backend in backends for _ in range(10))
    )
    assert sum(not one.duplicate for (one,) in results) == 1
    assert len({one.entry_id for (one,) in results}) == 1
    assert admin.xlen(topic) == 1
    for backend in backends:
        await backend.aclose()


async def test_the_dedupe_note_expires_with_its_window(backend: RedisBackend, topic: str, admin: "redis.Redis") -> None:
    message = Message("a")
    await backend.publish_once(topic, [message], window=timedelta(seconds=90))
    assert 80_000 < admin.pttl(keys.once(topic, message.id)) <= 90_000


async def test_a_batch_of_once_with_one_bad_dedupe_key_writes_nothing(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    good, bad = Message("good"), Message("bad")
    admin.lpush(keys.once(topic, bad.id), "not ours")
    with pytest.raises(WrongKeyTypeError):
        await backend.publish_once(topic, [good, bad], window=HOUR)
    assert not admin.exists(topic)


async def test_publishing_to_another_kind_of_key_says_so_and_changes_nothing(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    admin.set(topic, "mine")
    with pytest.raises(WrongKeyTypeError, match=topic):
        await backend.publish(topic, Message(1))
    with pytest.raises(WrongKeyTypeError, match=topic):
        await backend.publish_once(topic, [Message(1)], window=HOUR)
    (result,) = await backend.publish_many(topic, [Message(1)])
    assert isinstance(result, WrongKeyTypeError)
    assert admin.get(topic) == b"mine"


@pytest.mark.parametrize("name", ["with space", "a{b}{c}", "a{}", "ümlaut", "semi;colon", "a*b", "[a]"])
async def test_a_stream_of_an_odd_name_is_used_but_never_created(
    backend: RedisBackend, admin: "redis.Redis", name: str, topic: str
) -> None:
    name = f"{topic} {name}"
    with pytest.raises(ConfigurationError, match="cannot be created"):
        await backend.publish(name, Message(1))
    with pytest.raises(ConfigurationError, match="cannot be created"):
        await backend.publish_once(name, [Message(1)], window=HOUR)
    with pytest.raises(ConfigurationError, match="cannot be created"):
        await backend.create_group(name, "g")
    assert not admin.exists(name)
    admin.xadd(name, {"payload": "1"})
    await backend.publish(name, Message(2))
    await backend.publish_once(name, [Message(3)], window=HOUR)
    assert await backend.create_group(name, "g") is True
    assert len(await backend.read_new(name, "g", "c", 10, timedelta(0))) == 3


@pytest.mark.parametrize("name", ["", "a\nb", "a\x00b", "penstock:{a}:a:dead", "x" * 1025])
async def test_a_name_that_can_be_no_topic_never_reaches_the_server(backend: RedisBackend, name: str) -> None:
    with pytest.raises(ConfigurationError):
        await backend.publish(name, Message(1))


async def test_a_full_server_refuses_to_store_and_loses_nothing(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    await backend.create_group(topic, "g")
    await backend.publish_many(topic, [Message(n) for n in range(3)])
    entries = await backend.read_new(topic, "g", "a", 2, timedelta(0))
    admin.config_set("maxmemory", 1)
    try:
        with pytest.raises(ServerOutOfMemoryError):
            await backend.publish(topic, Message(9))
        with pytest.raises(ServerOutOfMemoryError):
            await backend.publish_once(topic, [Message(9)], window=HOUR)
        more = await backend.read_new(topic, "g", "a", 2, timedelta(0))
        assert (await backend.settle(topic, "g", "a", done=[*entries, *more])).ok == 3
    finally:
        admin.config_set("maxmemory", 0)
    assert admin.xlen(topic) == 3
    assert admin.xpending(topic, "g")["pending"] == 0


async def test_a_lost_reply_makes_a_publish_unknown_and_never_a_second_entry(
    server: Server, topic: str, admin: "redis.Redis"
) -> None:
    async with Proxy(server.socket) as proxy, await RedisBackend.connect(proxy.url) as backend:
        await backend.publish(topic, Message("before"))
        proxy.drop_reply_to("XADD")
        message = Message("perhaps")
        with pytest.raises(PublishUnknownError) as caught:
            await backend.publish(topic, message)
        assert caught.value.id == message.id
        assert proxy.dropped == 1
        await backend.publish(topic, Message("after"))
    assert [json.loads(fields[b"payload"]) for _, fields in admin.xrange(topic)] == ["before", "perhaps", "after"]


async def test_a_lost_reply_to_publish_many_marks_every_message_of_that_write_unknown(
    server: Server, topic: str, admin: "redis.Redis"
) -> None:
    messages = [Message(n) for n in range(10)]
    async with Proxy(server.socket) as proxy, await RedisBackend.connect(proxy.url) as backend:
        await backend.publish(topic, Message("before"))
        proxy.drop_reply_to("XADD")
        results = await backend.publish_many(topic, messages)
    assert [result.id for result in results if isinstance(result, PublishUnknownError)] == [m.id for m in messages]
    assert admin.xlen(topic) == 11


async def test_publishing_once_survives_a_lost_reply_with_one_entry(
    server: Server, topic: str, admin: "redis.Redis"
) -> None:
    async with Proxy(server.socket) as proxy, await RedisBackend.connect(proxy.url) as backend:
        await backend.publish_once(topic, [Message("before")], window=HOUR)
        proxy.drop_reply_to("EVALSHA")
        (published,) = await backend.publish_once(topic, [Message("once")], window=HOUR)
        assert proxy.dropped == 1
    assert published.duplicate  # written by the try whose reply was lost
    assert admin.xlen(topic) == 2


async def once_each(backend: RedisBackend, topic: str, messages: list[Message[int]]) -> list[object]:
    calls = (backend.publish_once(topic, [message], window=HOUR) for message in messages)
    return await asyncio.gather(*calls, return_exceptions=True)


def script_calls(admin: "redis.Redis") -> int:
    stats = admin.info("commandstats")
    return int(stats.get("cmdstat_evalsha", {}).get("calls", 0))


async def test_concurrent_callers_of_once_share_a_script_call_and_keep_their_order(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    messages = [Message(n) for n in range(350)]
    await backend.publish_once(topic, messages[:1], window=HOUR)
    admin.config_resetstat()
    results = await once_each(backend, topic, messages)
    assert script_calls(admin) == 7  # as soon as 50 messages are together, the server can begin
    stored = admin.xrange(topic)
    assert [json.loads(fields[b"payload"]) for _, fields in stored] == list(range(350))
    assert results == [[Published(id.decode(), duplicate=not n)] for n, (id, _) in enumerate(stored)]


async def test_callers_of_other_streams_and_windows_have_calls_of_their_own(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    message, minute = Message(1), timedelta(minutes=1)
    await backend.publish_once(topic, [Message(0)])
    admin.config_resetstat()
    (first,), (other,), (again,) = await asyncio.gather(
        backend.publish_once(topic, [message], window=minute),
        backend.publish_once(topic + ":other", [message], window=minute),
        backend.publish_once(topic, [message], window=HOUR),
    )
    assert script_calls(admin) == 3
    assert (first.duplicate, other.duplicate, again.duplicate) == (False, False, True)
    assert admin.pttl(keys.once(topic, message.id)) <= 60_000


async def test_what_belongs_to_one_caller_of_once_stays_together(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    blocks = [[Message((block, n)) for n in range(size)] for block, size in enumerate([60, 30, 20, 100, 1, 250])]
    await backend.publish_once(topic, [Message(0)])
    admin.config_resetstat()
    results = await asyncio.gather(*(backend.publish_once(topic, block) for block in blocks))
    assert [len(result) for result in results] == [len(block) for block in blocks]
    # 60; 30 and 20; 100; 1; and 250 in three steps.
    assert script_calls(admin) == 7
    order = [json.loads(fields[b"payload"])[0] for _, fields in admin.xrange(topic)[1:]]
    assert order == [0] * 60 + [1] * 30 + [2] * 20 + [3] * 100 + [4] + [5] * 250


async def test_large_messages_of_concurrent_callers_are_not_sent_in_one_call(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    await backend.publish_once(topic, [Message(0)])
    admin.config_resetstat()
    await asyncio.gather(*(backend.publish_once(topic, [Message("x" * 400_000)]) for _ in range(6)))
    assert script_calls(admin) == 3
    assert admin.xlen(topic) == 7


async def test_one_callers_fault_is_not_anothers(backend: RedisBackend, topic: str, admin: "redis.Redis") -> None:
    messages = [Message(n) for n in range(20)]
    admin.lpush(keys.once(topic, messages[7].id), "not ours")
    results = await once_each(backend, topic, messages)
    assert isinstance(results[7], WrongKeyTypeError)
    assert all(isinstance(result, list) for n, result in enumerate(results) if n != 7)
    assert [json.loads(fields[b"payload"]) for _, fields in admin.xrange(topic)] == [*range(7), *range(8, 20)]


async def test_a_caller_of_once_that_gives_up_before_there_is_a_server_sends_nothing(
    wired: RedisBackend, proxy: Proxy, topic: str, admin: "redis.Redis"
) -> None:
    proxy.refusing = True
    proxy.cut()
    async with asyncio.timeout(ENOUGH):
        while wired._links._shared is not None and wired._links._shared.is_open:
            await asyncio.sleep(0.001)
        tasks = [asyncio.create_task(wired.publish_once(topic, [Message(n)])) for n in range(3)]
        while not proxy.refused:
            await asyncio.sleep(0.001)
        tasks[1].cancel()
        await asyncio.wait([tasks[1]])
        proxy.refusing = False
        results = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(results[1], asyncio.CancelledError)
    assert [json.loads(fields[b"payload"]) for _, fields in admin.xrange(topic)] == [0, 2]


async def test_a_caller_of_once_that_gives_up_late_leaves_the_others_their_answer(
    wired: RedisBackend, proxy: Proxy, topic: str, admin: "redis.Redis"
) -> None:
    proxy.stall()
    tasks = [asyncio.create_task(wired.publish_once(topic, [Message(n)])) for n in range(3)]
    async with asyncio.timeout(ENOUGH):
        while not proxy.held:
            await asyncio.sleep(0.001)
        tasks[1].cancel()
        proxy.flow()
        results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(result) for result in results] == [list, asyncio.CancelledError, list]
    assert admin.xlen(topic) == 3


async def test_each_caller_of_once_is_told_of_its_own_message_that_nobody_knows(
    server: Server, topic: str, admin: "redis.Redis"
) -> None:
    messages = [Message(n) for n in range(5)]
    async with Proxy(server.socket) as proxy, await RedisBackend.connect(proxy.url) as backend:
        await backend.publish_once(topic, [Message("before")])
        proxy.refusing = True
        proxy.drop_reply_to("EVALSHA")
        results = await once_each(backend, topic, messages)
        assert proxy.dropped == 1
    unknown = [result.id for result in results if isinstance(result, PublishUnknownError)]
    assert unknown == [message.id for message in messages]
    assert admin.xlen(topic) == 6
