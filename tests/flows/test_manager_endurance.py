"""However it is read, cancelled, dropped or killed: every message of a manager is settled in the end."""

import asyncio
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import redis

from penstock.errors import LeaseLostError, ServerError
from penstock.manager import ConsumerGroupConfig, DLQConfig, RedisStreamManager, StreamMessage
from tests.support.managing import GROUP, Managing, numbers
from tests.support.servers import Server, valkey_binary
from tests.support.waiting import healed

BOTH = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)
MESSAGES = 300

CRASHING = """
import asyncio, os, sys
from penstock.manager import ConsumerGroupConfig, RedisStreamManager

async def main(stream):
    async with RedisStreamManager(consumer_id="same-name") as manager:
        await manager.create_consumer_group(ConsumerGroupConfig("g", [stream]))
        first, second = await manager.read_messages("g", count=2)
        await manager.acknowledge(first)
        os._exit(9)

asyncio.run(main(sys.argv[1]))
"""

PROCESSING = """
import asyncio, sys
from penstock.manager import ConsumerGroupConfig, RedisStreamManager

async def handle(message):
    print("begun", flush=True)
    await asyncio.sleep(0.2)

async def main(stream):
    async with RedisStreamManager() as manager:
        await manager.create_consumer_group(ConsumerGroupConfig("g", [stream]))
        await manager.process("g", handle)
        print("ended", flush=True)

asyncio.run(main(sys.argv[1]))
"""


@pytest.fixture
async def managing(server: Server, admin: "redis.Redis", topic: str) -> AsyncIterator[Managing]:
    async with Managing(server, admin, topic) as opened:
        yield opened


async def some_messages(manager: RedisStreamManager, dice: random.Random) -> list[StreamMessage]:
    """By one of the ways to come by them, now and then interrupted."""
    way = dice.randrange(4)
    found: list[StreamMessage] = []
    try:
        async with asyncio.timeout(0.3 if way else dice.random() * 0.02):
            if way == 0:
                found = await manager.read_messages(GROUP, count=5, block_ms=500)
            elif way == 1:
                found = await manager.read_messages(GROUP, count=dice.randint(1, 7), block_ms=dice.choice([0, 50]))
            elif way == 2:
                found = await manager.claim_pending_messages(GROUP)
            else:
                async for message in manager.read_messages(GROUP, count=10):
                    found.append(message)
                    if dice.random() < 0.4:
                        break
    except TimeoutError:
        pass
    return found


async def work(manager: RedisStreamManager, dice: random.Random, done: Counter[int]) -> None:
    """Until everything is done, by this one or others."""
    while len(done) < MESSAGES:
        for message in await some_messages(manager, dice):
            fate = dice.random()
            try:
                if fate < 0.1 and await manager.retry_message(message):
                    continue
                if fate < 0.13:
                    continue  # forgotten; somebody will claim it
                if await manager.acknowledge(message):
                    done[message.data["n"]] += 1
            except LeaseLostError:
                continue


@BOTH
async def test_every_message_is_settled_once_however_it_was_read(managing: Managing) -> None:
    dlq = DLQConfig(retry_limit=1000, retry_backoff_seconds=0)
    managers = [await managing.manager(dlq=dlq, claim_idle_ms=300) for _ in range(3)]
    done: Counter[int] = Counter()
    async with asyncio.timeout(50), asyncio.TaskGroup() as tasks:
        for number, manager in enumerate(managers):
            tasks.create_task(work(manager, random.Random(number), done))
        for n in range(MESSAGES):
            stream = managing.first if n % 3 else managing.second
            await managers[0].send_message(stream, {"n": n}, max_len=10)
    assert done == Counter(range(MESSAGES))
    for manager in managers:
        await manager.close()
    assert managing.pending(managing.first) == managing.pending(managing.second) == 0
    assert not managing.admin.exists(f"xnai:dlq:{managing.first}", f"xnai:dlq:{managing.second}")


async def test_what_a_killed_process_held_is_claimed_by_its_successor_of_the_same_name(
    managing: Managing, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = await managing.manager(consumer_id="same-name", streams=[managing.first])
    for n in range(3):
        await manager.send_message(managing.first, {"n": n})
    monkeypatch.setenv("PENSTOCK_URL", managing.server.url)
    command = [sys.executable, "-c", CRASHING, managing.first]
    ended = await asyncio.to_thread(subprocess.run, command, check=False, timeout=40)
    assert ended.returncode == 9
    assert numbers(await manager.read_messages(GROUP, block_ms=0)) == [2]
    assert await manager.claim_pending_messages(GROUP) == []  # not idle for a minute yet
    dead, left = [one for one in managing.admin.xinfo_consumers(managing.first, GROUP) if one["pending"]], []
    assert len(dead) == 2
    async with asyncio.timeout(20):
        while not left:
            left = await manager.claim_pending_messages(GROUP, idle_ms=100)
    assert numbers(left)[0] == 1


async def test_a_signal_lets_the_loop_end_what_it_has_begun_and_hand_back_the_rest(
    managing: Managing, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = await managing.manager(streams=[managing.first])
    for n in range(3):
        await manager.send_message(managing.first, {"n": n})
    monkeypatch.setenv("PENSTOCK_URL", managing.server.url)
    started = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROCESSING, managing.first, stdout=asyncio.subprocess.PIPE
    )
    assert started.stdout is not None
    async with asyncio.timeout(50):
        assert await started.stdout.readline() == b"begun\n"
        started.terminate()
        assert (await started.stdout.read()).splitlines()[-1] == b"ended"
        assert await started.wait() == 0
    # Handed back, or never read.
    assert numbers(await manager.read_messages(GROUP)) == [1, 2]


@pytest.fixture
def lasting() -> Iterator[Server]:
    """A server that keeps its data when it is killed."""
    binary = valkey_binary()
    assert binary is not None
    directory = Path(tempfile.mkdtemp(prefix="ps-"))
    started = Server(binary, directory, "--appendonly", "yes", "--appendfsync", "always")
    yield started
    started.stop()
    shutil.rmtree(directory)


async def test_a_server_that_went_away_is_told_of_and_found_again(
    lasting: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_URL", lasting.url)
    async with RedisStreamManager() as manager:
        await manager.create_consumer_group(ConsumerGroupConfig(GROUP, ["s"], block_ms=100))
        await manager.send_message("s", {"n": 0})
        (held,) = await manager.read_messages(GROUP)
        reading = asyncio.ensure_future(manager._read(GROUP, 10, 30_000))
        lasting.kill()
        with pytest.raises(ServerError):
            await reading
        lasting.start()
        sent = await healed(lambda: manager.send_message("s", {"n": 1}), within=20)
        async with asyncio.timeout(10):
            seen: list[str] = []
            while sent not in seen:
                seen += [message.id for message in await manager.read_messages(GROUP)]
        assert await manager.acknowledge(held) is True
