"""The manager's processing loop: the document's, done right."""

import asyncio
import threading
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
import redis

from penstock import Snooze
from penstock.backend import keys
from penstock.errors import ConfigurationError
from penstock.manager import DLQConfig, MessageStatus, RedisStreamManager, StreamMessage
from tests.support.managing import GROUP, Managing
from tests.support.servers import Server

BOTH = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)
AT_ONCE = DLQConfig(retry_limit=2, retry_backoff_seconds=0)


@pytest.fixture
async def managing(server: Server, admin: "redis.Redis", topic: str) -> AsyncIterator[Managing]:
    async with Managing(server, admin, topic) as opened:
        yield opened


async def until(condition: Any) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.002)


@BOTH
async def test_what_the_handler_returns_from_is_done_and_what_it_raises_is_retried(managing: Managing) -> None:
    manager = await managing.manager(dlq=AT_ONCE)
    tried: list[tuple[Any, int, str]] = []

    async def handle(message: StreamMessage) -> None:
        tried.append((message.data["n"], message.retry_count, message.stream))
        assert message.status is MessageStatus.PROCESSING
        if message.data["n"] == "bad":
            raise ValueError("it is bad")

    running = asyncio.create_task(manager.process(GROUP, handle, signals=False))
    await manager.send_message(managing.first, {"n": "good"})
    await manager.send_message(managing.second, {"n": "bad"})
    dlq = f"xnai:dlq:{managing.second}"
    await until(lambda: managing.admin.xlen(dlq))
    await manager.close()
    await running
    assert [one for one in tried if one[0] == "good"] == [("good", 0, managing.first)]
    assert [one for one in tried if one[0] == "bad"] == [("bad", n, managing.second) for n in range(3)]
    assert managing.pending(managing.first) == managing.pending(managing.second) == 0
    stats = await manager.get_stats()
    assert (stats["messages_read"], stats["messages_acknowledged"]) == (4, 1)
    assert (stats["messages_failed"], stats["dlq_entries"]) == (3, 1)
    (letter,) = [one async for one in await manager.dead_letters(GROUP)]
    assert (letter.reason, letter.attempts, letter.error) == ("ValueError: it is bad", 3, "builtins.ValueError")


async def test_retries_of_another_manager_count(managing: Managing) -> None:
    manager = await managing.manager(dlq=AT_ONCE)
    managing.admin.xadd(managing.first, {"n": "1", "_retry_count": "2", "_original_id": "1-1"})
    tried: list[int] = []

    async def handle(message: StreamMessage) -> None:
        tried.append(message.retry_count)
        raise ValueError("no")

    running = asyncio.create_task(manager.process(GROUP, handle, signals=False))
    await until(lambda: managing.admin.xlen(f"xnai:dlq:{managing.first}"))
    await manager.close()
    await running
    assert tried == [2]


async def test_a_plain_function_runs_in_a_thread_and_may_put_a_message_off(managing: Managing) -> None:
    manager = await managing.manager(dlq=DLQConfig(retry_limit=0))
    threads: list[bool] = []

    def handle(message: StreamMessage) -> None:
        threads.append(threading.current_thread() is threading.main_thread())
        if len(threads) == 1:
            raise Snooze(timedelta(milliseconds=5))

    running = asyncio.create_task(manager.process(GROUP, handle, signals=False))
    await manager.send_message(managing.first, {"n": 1})
    await until(lambda: len(threads) == 2)
    await manager.close()
    await running
    assert threads == [False, False]
    assert not managing.admin.exists(f"xnai:dlq:{managing.first}")


async def test_what_others_left_is_taken_over_and_bad_entries_do_not_stop_it(managing: Managing) -> None:
    manager = await managing.manager(dlq=AT_ONCE)
    left = await manager.send_message(managing.first, {"n": "left"})
    managing.abandon(left)
    managing.admin.xadd(managing.first, {"n": b"\xff"})
    seen: list[Any] = []

    async def handle(message: StreamMessage) -> None:
        seen.append(message.data["n"])

    running = asyncio.create_task(manager.process(GROUP, handle, signals=False))
    await manager.send_message(managing.first, {"n": "new"})
    await until(lambda: sorted(seen) == ["left", "new"] and managing.admin.xlen(f"xnai:dlq:{managing.first}"))
    await manager.close()
    await running
    assert managing.pending() == 0


async def test_closing_lets_what_runs_end_and_gives_the_rest_to_others(managing: Managing) -> None:
    manager, other = await managing.manager(), await managing.manager()
    begun, go = asyncio.Event(), asyncio.Event()
    ended: list[Any] = []

    async def handle(message: StreamMessage) -> None:
        begun.set()
        await go.wait()
        ended.append(message.data["n"])

    for n in range(5):
        await manager.send_message(managing.first, {"n": n})
    running = asyncio.create_task(manager.process(GROUP, handle, signals=False))
    await begun.wait()
    closing = asyncio.create_task(manager.close())
    await until(lambda: not [one for one in other_pending(managing) if one["time_since_delivered"] < 10_000_000][1:])
    go.set()
    async with asyncio.timeout(10):
        await asyncio.gather(closing, running)
        assert ended == [0]
        rest = await other.read_messages(GROUP)
    assert sorted(message.data["n"] for message in rest) == [1, 2, 3, 4]
    assert not managing.admin.xlen(keys.dead(managing.first))


def other_pending(managing: Managing) -> "list[dict[str, Any]]":
    return managing.admin.xpending_range(managing.first, GROUP, "-", "+", 10)  # type: ignore[no-any-return]


async def test_a_cancelled_loop_ends_in_good_order(managing: Managing) -> None:
    manager = await managing.manager()
    begun = asyncio.Event()

    async def handle(message: StreamMessage) -> None:
        begun.set()
        await asyncio.sleep(0.05)

    await manager.send_message(managing.first, {"n": 1})
    running = asyncio.create_task(manager.process(GROUP, handle, signals=False))
    await begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert managing.pending() == 0


async def test_what_cannot_be_meant_is_refused(managing: Managing) -> None:
    manager = await managing.manager(dlq=DLQConfig(enabled=False))
    with pytest.raises(ConfigurationError, match="enabled=True"):
        await manager.process(GROUP, print)
    fine = await managing.manager()
    with pytest.raises(ConfigurationError, match="a handler is a function"):
        await fine.process(GROUP, "print")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="concurrency"):
        await fine.process(GROUP, print, concurrency=0)
    with pytest.raises(ConfigurationError, match="no group"):
        await fine.process("nobody", print)


async def test_a_manager_can_be_opened_again_after_it_was_closed(managing: Managing) -> None:
    manager = RedisStreamManager(await managing.client())
    for n in range(2):
        async with manager:
            await manager.send_message(managing.first, {"n": n})
    assert managing.admin.xlen(managing.first) == 2
