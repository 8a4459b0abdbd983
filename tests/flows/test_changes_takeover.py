"""Several processes stand by for one reader: one takes over when another that has the turn dies, freezes or leaves."""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from penstock import Penstock
from penstock.backend import keys
from penstock.errors import LeaseLostError
from penstock.events import HandlerStuck, LeaseLost, Started
from penstock.options import ChangeOptions
from tests.support.forked import ROOT
from tests.support.proxy import Proxy
from tests.support.sequential import Line, Program, Setup, lines
from tests.support.stage import Stage
from tests.support.tailing import publish

LEASE = 0.6
KEPT = 1.5
"""A lease that a process keeps although its machine is busy for a second."""


class Readers:
    """Processes that read one stream, and what they wrote down."""

    def __init__(self, stage: Stage, path: Path) -> None:
        self._stage = stage
        self.path = path
        self.programs: list[Program] = []

    async def start(self, **setup: object) -> Program:
        """One more; it has connected when this returns."""
        program = Program(Setup(str(self.path), self._stage.topic, **{"lease": LEASE} | setup), self._stage.url)
        self.programs.append(program)
        await self.until(lambda: any(line.what == "ready" and line.pid == program.pid for line in self.lines()))
        return program

    def lines(self, *kinds: str, pid: int = 0) -> list[Line]:
        return [line for line in lines(self.path) if line.what in (kinds or (line.what,)) and pid in (0, line.pid)]

    async def until(self, condition: Callable[[], object], within: float = 20) -> None:
        async with asyncio.timeout(within):
            while not condition():
                await asyncio.sleep(0.01)


@pytest.fixture
def readers(stage: Stage) -> Iterator[Readers]:
    with tempfile.TemporaryDirectory(prefix="ps-") as directory:
        opened = Readers(stage, Path(directory) / "log")
        try:
            yield opened
        finally:
            for program in opened.programs:
                program.end()


async def two(readers: Readers, stage: Stage, **setup: object) -> tuple[Program, Program]:
    """The one that has the turn, and one that stands by."""
    holder = await readers.start(**setup)
    await readers.until(lambda: stage.admin.hget(keys.turn(stage.topic, "ledger"), "holder"))
    return holder, await readers.start(**setup)


async def test_who_is_killed_is_followed_after_its_lease(stage: Stage, readers: Readers) -> None:
    holder, other = await two(readers, stage, work=0.02, lease=KEPT)
    await publish(stage, *range(20))
    await readers.until(lambda: len(readers.lines("acked", pid=holder.pid)) >= 5)
    killed = holder.signal(signal.SIGKILL)
    await readers.until(lambda: readers.lines("start", pid=other.pid))
    first = readers.lines("start", pid=other.pid)[0]
    assert first.at - killed > 0
    await readers.until(lambda: len({line.id for line in readers.lines("acked")}) == 20)
    acked = readers.lines("acked")
    assert [line.body["n"] for line in acked] == list(range(20))
    assert len({line.token for line in acked}) == 2
    assert [line.token for line in acked] == sorted(line.token for line in acked)


async def test_who_leaves_is_followed_at_once(stage: Stage, readers: Readers) -> None:
    holder, other = await two(readers, stage, work=0.01, lease=60.0)
    await publish(stage, *range(10))
    await readers.until(lambda: len(readers.lines("acked")) >= 10)
    holder.signal(signal.SIGTERM)
    await publish(stage, 10)
    await readers.until(lambda: readers.lines("start", pid=other.pid))  # long before any lease runs out
    assert holder.process.wait(20) == 0


async def test_who_was_frozen_past_its_lease_acknowledges_nothing(stage: Stage, readers: Readers) -> None:
    holder, other = await two(readers, stage, work=0.1, lease=KEPT)
    await publish(stage, *range(12))
    frozen = await frozen_at_work(readers, holder, work=0.1)
    await readers.until(lambda: len(readers.lines("acked", pid=other.pid)) >= 3)
    holder.signal(signal.SIGCONT)
    await readers.until(lambda: len({line.id for line in readers.lines("acked")}) == 12)
    acked = readers.lines("acked")
    assert [line.body["n"] for line in acked] == list(range(12)), "each counted once, in order"
    begun = [line for line in readers.lines("start", pid=holder.pid) if line.at < frozen]
    settled = {line.id for line in readers.lines("acked", "lost", pid=holder.pid)}
    assert {line.id for line in begun} <= settled
    assert readers.lines("lost", pid=holder.pid)


async def frozen_at_work(readers: Readers, holder: Program, work: float) -> float:
    """Freeze it while it works on a message, and not between two; gives when."""
    async with asyncio.timeout(20):
        while True:
            await readers.until(lambda: readers.lines("start", pid=holder.pid))
            holder.signal(signal.SIGSTOP)
            await readers.until(lambda: is_stopped(holder.pid))
            frozen, last = time.monotonic(), readers.lines(pid=holder.pid)[-1]
            if last.what == "start" and frozen < last.at + work:
                return frozen
            holder.signal(signal.SIGCONT)
            await asyncio.sleep(0.01)


def is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


async def test_who_blocks_its_event_loop_keeps_the_turn(stage: Stage, readers: Readers) -> None:
    await publish(stage, 0)
    holder, other = await two(readers, stage, work=1.5, lease=3.0, block=True)  # renewed every second
    await readers.until(lambda: readers.lines("start"))
    kept: set[bytes] = set()

    def is_done() -> bool:
        kept.add(stage.admin.hget(keys.turn(stage.topic, "ledger"), "until"))
        return bool(readers.lines("acked"))

    await readers.until(is_done)
    assert len(kept) > 1, "it was not renewed while the event loop stood still"
    assert [line.pid for line in readers.lines("start")] == [holder.pid]
    assert not readers.lines("start", pid=other.pid)


FORKED = """
import asyncio, os, sys
from penstock import Penstock

app = Penstock.connect(sys.argv[1])
changes = app.changes(sys.argv[2], reader="ledger")

async def read():
    async with app, changes:
        async for change in changes:
            os.write(1, f"{change.body['n']}\\n".encode())
            await asyncio.sleep(0.01)
            await change.ack()

os.fork()
asyncio.run(read())
"""


async def test_processes_that_were_forked_from_one_that_made_the_stream_take_turns(stage: Stage) -> None:
    await publish(stage, *range(40))
    forked = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", FORKED, stage.url, stage.topic),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    given: list[int] = []
    try:
        assert forked.stdout is not None
        async with asyncio.timeout(40):
            while not given or given[-1] < 39:
                given.append(int(await forked.stdout.readline()))
    finally:
        os.killpg(forked.pid, signal.SIGKILL)
        await forked.wait()
    assert given == list(range(40)), "each was given once, to one of them"


async def test_what_was_read_ahead_is_not_given_once_the_lease_may_have_run_out(stage: Stage) -> None:
    await publish(stage, *range(5))
    async with stage.app.changes(stage.topic, reader="ledger") as changes, stage.another() as other:
        first = await changes.recv()
        assert first is not None
        await first.ack()
        tenure = changes._reading.tenure
        assert tenure is not None
        await stage.until(lambda: len(tenure.ahead) == 4)
        stage.admin.hset(keys.turn(stage.topic, "ledger"), "until", 1)
        async with other.app.changes(stage.topic, reader="ledger") as successor:
            theirs = await successor.recv()
            assert theirs is not None
            tenure.turn.until = 0  # as it is for a process that was frozen: nobody has told it yet
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await changes.recv()
            await theirs.ack()
        async with asyncio.timeout(20):
            again = await changes.recv()
        assert again is not None
        assert (again.body["n"], again.token > theirs.token > first.token) == (2, True)


async def test_who_is_closed_while_it_asks_for_the_turn_leaves_it_to_others(stage: Stage, proxy: Proxy) -> None:
    await publish(stage, 0)
    async with Penstock.connect(proxy.url) as app:
        holder, asking = (one.changes(stage.topic, reader="ledger") for one in (stage.app, app))
        assert await holder.recv() is not None
        waiting = asyncio.create_task(asking.recv())
        await stage.until(lambda: asking._reading._unsubscriptions is not None)
        proxy.stall()
        before = proxy.held
        await stage.until(lambda: proxy.held > before)  # it asks, and the server does not know yet
        await holder.aclose()
        closing = asyncio.create_task(asking.aclose())
        await asyncio.sleep(0.05)
        proxy.flow()
        await closing
        assert await waiting is None
        assert not stage.admin.hget(keys.turn(stage.topic, "ledger"), "holder")
        async with asyncio.timeout(20), stage.app.changes(stage.topic, reader="ledger") as changes:
            assert await changes.recv() is not None


async def test_who_does_nothing_for_long_loses_the_turn_and_is_told(stage: Stage) -> None:
    await publish(stage, 0)
    short = {"lease": timedelta(seconds=0.3), "options": ChangeOptions(timeout=timedelta(seconds=0.2))}
    async with stage.another() as other:
        stuck = stage.app.changes(stage.topic, reader="ledger", **short)
        old = await stuck.recv()
        assert old is not None
        async with other.app.changes(stage.topic, reader="ledger", **short) as changes, asyncio.timeout(20):
            new = await changes.recv()
            assert new is not None
            assert (new.entry_id, new.token > old.token) == (old.entry_id, True)
            with pytest.raises(LeaseLostError):
                await old.ack()
            await new.ack()
    assert [one.entry_id for one in stage.told(HandlerStuck)] == [old.entry_id]
    assert [one.entry_ids for one in stage.told(LeaseLost)] == [(old.entry_id,)]


HUNG = """
import asyncio, sys, time
from datetime import timedelta
from penstock import ChangeOptions, Penstock

async def main():
    options, lease = ChangeOptions(timeout=timedelta(seconds=0.5)), timedelta(seconds=0.6)
    async with Penstock.connect(sys.argv[1]) as app:
        async with app.changes(sys.argv[2], reader="ledger", lease=lease, options=options) as changes:
            waiting = asyncio.create_task(changes.recv())
            await asyncio.sleep(1.5)
            print("hangs", flush=True)
            time.sleep(60)

asyncio.run(main())
"""


async def test_an_event_loop_that_hangs_while_it_waits_for_a_message_does_not_keep_the_turn(stage: Stage) -> None:
    hung = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", HUNG, stage.url, stage.topic),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert hung.stdout is not None
        await hung.stdout.readline()
        assert stage.admin.hget(keys.turn(stage.topic, "ledger"), "holder"), "waiting for long is a sign of life"
        await publish(stage, 0)
        async with asyncio.timeout(20), stage.app.changes(stage.topic, reader="ledger") as changes:
            assert await changes.recv() is not None
    finally:
        hung.kill()
        await hung.wait()


async def test_only_one_of_many_reads_at_a_time_and_all_get_their_turn(stage: Stage) -> None:
    await publish(stage, *range(40))
    served: list[tuple[int, int]] = []
    active = 0

    async def one(number: int) -> None:
        nonlocal active
        async with stage.another() as other:
            changes = other.app.changes(stage.topic, reader="ledger")
            for _ in range(5):
                change = await changes.recv()
                assert change is not None
                active += 1
                assert active == 1
                await asyncio.sleep(0)
                served.append((change.body["n"], number))
                active -= 1
                await change.ack()
            await changes.aclose()

    async with asyncio.timeout(20):
        await asyncio.gather(*(one(number) for number in range(8)))
    assert [number for number, _ in served] == list(range(40))
    assert len({name for _, name in served}) == 8
    assert not stage.told(Started)  # nobody of this app


IDLE = """
    import asyncio, sys, time
    from penstock import Penstock
    from penstock.errors import ChangeStreamError

    async def ask(changes):
        while True:
            try:
                await changes.recv()
            except ChangeStreamError:
                pass

    async def main(url, topic):
        async with Penstock.connect(url, logs=None) as app, Penstock.connect(url, logs=None) as other:
            idle, standing_by = app.changes(topic, reader="r"), other.changes(topic, reader="r")
            unacked, refused = app.changes(topic + ":one", reader="r"), app.changes(topic + ":no", reader="r")
            tasks = [asyncio.create_task(ask(one)) for one in (idle, standing_by, unacked, refused)]
            await asyncio.sleep(0.7)
            began, used = time.monotonic(), time.process_time()
            await asyncio.sleep(2)
            print((time.process_time() - used) / (time.monotonic() - began))
            for task in tasks:
                task.cancel()

    asyncio.run(main(*sys.argv[1:]))
"""


async def test_idle_standing_by_unacknowledged_and_refused_readers_together_use_hardly_any_cpu(stage: Stage) -> None:
    stage.admin.xadd(f"{stage.topic}:one", {"payload": "1"})
    stage.admin.set(f"{stage.topic}:no", "no stream")
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", textwrap.dedent(IDLE), stage.url, stage.topic],
        cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True, timeout=50,
    )  # fmt: skip
    assert float(done.stdout) < 0.02, f"{done.stdout} of a core {done.stderr}"
