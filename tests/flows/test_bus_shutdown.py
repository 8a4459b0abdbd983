"""Leaving in good order: nothing more is read, what runs may end, the rest goes back at once, and all of it in time."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any

import pytest

from penstock import AckMode, Delivery, Penstock, RedisBackend, Subscription, events
from penstock.backend import keys
from penstock.errors import ConfigurationError
from tests.support.proxy import Proxy
from tests.support.servers import Server
from tests.support.stage import Stage

BOTH = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)
MS = timedelta(milliseconds=1)
IMPATIENT = Subscription(drain=100 * MS)


@BOTH
async def test_running_handlers_end_and_are_settled(stage: Stage) -> None:
    bus, entered, done = stage.bus(), [], []

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        entered.append(event.body["n"])
        await asyncio.sleep(0.3)
        done.append(event.body["n"])
        if event.body["n"] == 1:
            raise ValueError("counts as well")

    await bus.publish_many([{"n": 0}, {"n": 1}])
    run = stage.start(bus)
    await stage.until(lambda: len(entered) == 2)
    stage.app.stop()
    await bus.publish({"n": 2})
    assert not run.done()
    async with asyncio.timeout(20):
        await run
    assert (sorted(entered), sorted(done)) == ([0, 1], [0, 1])
    left, (stopped,) = stage.left(), stage.told(events.Stopped)
    # The third may have come to the reader just before it was stopped.
    assert (left["topic pending"], left["topic unread"]) == (stopped.handed_back, 1 - stopped.handed_back)
    assert (left["parked"], stopped.abandoned) == (1, 0)


@BOTH
async def test_what_was_read_ahead_goes_to_others_at_once(stage: Stage) -> None:
    """Another worker gets it while the first one still drains, long before any lease runs out."""
    bus, entered, leave, seen = stage.bus(), asyncio.Event(), asyncio.Event(), []

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        seen.append(event.body["n"])
        if event.body["n"] == 500:
            entered.set()
            await leave.wait()

    await bus.publish_many([{"n": n} for n in range(1000)])
    run = stage.start(bus, concurrency=1)
    await entered.wait()
    ahead = stage.left()["topic pending"] - 1
    assert ahead > 0, "nothing was read ahead: this test would prove nothing"
    stage.app.stop()
    async with stage.another() as other:
        successor = other.bus(options=Subscription(scan=20 * MS))
        others: list[tuple[int, int]] = []
        successor.on(dict)(lambda event: others.append((event.body["n"], event.attempt)))
        async with other.running(successor):
            await other.until(lambda: len(others) == 499)
            assert not run.done()
            leave.set()
            async with asyncio.timeout(20):
                await run
            await other.settled()
    assert seen == list(range(501))
    assert sorted(others) == [(n, 1) for n in range(501, 1000)]
    # Some of those may have been done by then, and only not been settled yet.
    assert 0 < stage.told(events.Stopped)[0].handed_back <= ahead
    assert sum(one.suspects for one in other.told(events.Reclaimed)) == 0


class HoldingProxy(Proxy):
    """Passes the next request with these words in a row on to the server, and nothing after it, until `flow`."""

    words: tuple[str, ...] = ()

    def hits(self, request: bytes) -> bool:
        row = "".join(f"${len(word)}\r\n{word}\r\n" for word in self.words)
        if self.words and row.encode() in request:
            self.words = ()
            self.stall()
        return False


@pytest.fixture
async def holding(server: Server) -> AsyncIterator[HoldingProxy]:
    async with HoldingProxy(server.socket) as opened:
        yield opened


async def stop_while_held(stage: Stage, proxy: HoldingProxy, run: "asyncio.Task[None]") -> None:
    """Stop it while it waits for the answer to a request that the server has run."""
    await stage.until(lambda: proxy.held)
    stage.app.stop()
    await asyncio.sleep(0.05)  # as slow as the answer is
    proxy.flow()
    async with asyncio.timeout(15):
        await run


async def test_what_was_being_taken_over_when_it_stopped_goes_to_others_at_once(
    stage: Stage, holding: HoldingProxy
) -> None:
    """The server has given it the entries; it must not keep them until their lease runs out."""
    bus = stage.bus()
    bus.on(dict)(lambda event: None)
    async with stage.running(bus):
        await stage.settled()
    await bus.publish_many([{"n": n} for n in range(5)])
    async with await RedisBackend.connect(stage.url) as dead:
        read = await dead.read_new(stage.topic, "g", "handed-back", 5, timedelta(0))
        # The server knows the script from here on, so that the first request is the one that counts.
        assert await dead.reclaim_idle(stage.topic, "g", "handed-back", timedelta(hours=1), 5) == []
        await dead.release(stage.topic, "g", "handed-back", [entry.id for entry in read])
    seen: list[tuple[int, int]] = []
    async with Stage(holding.url, stage.admin, stage.topic) as first:
        taking = first.bus()
        taking.on(dict)(lambda event: seen.append((event.body["n"], event.attempt)))
        holding.words = (stage.topic, keys.steals(stage.topic, "g"), keys.starts(stage.topic, "g"))
        await stop_while_held(first, holding, first.start(taking))
        assert not holding.words, "it was not held: this test would prove nothing"
    successor = stage.bus(options=Subscription(scan=20 * MS))
    successor.on(dict)(lambda event: seen.append((event.body["n"], event.attempt)))
    async with stage.running(successor):
        await stage.settled()
    assert sorted(seen) == [(n, 1) for n in range(5)]
    assert sum(one.suspects for one in stage.told(events.Reclaimed)) == 0


async def test_on_receipt_a_stop_during_the_ack_loses_nothing_in_silence(stage: Stage, holding: HoldingProxy) -> None:
    seen: list[int] = []
    warm = stage.bus(options=Subscription(ack=AckMode.ON_RECEIVE))
    warm.on(dict)(lambda event: seen.append(event.body["n"]))
    async with stage.running(
        warm
    ):  # the server knows the script from here on: the first request is the one that counts
        await warm.publish({"n": -1})
        await stage.until(lambda: seen)
    seen.clear()
    receipts = [await warm.publish({"n": n}) for n in range(5)]
    async with Stage(holding.url, stage.admin, stage.topic) as first:
        bus = first.bus(options=Subscription(ack=AckMode.ON_RECEIVE))
        bus.on(dict)(lambda event: seen.append(event.body["n"]))
        holding.words = (str(receipts[4].entry_id),)
        await stop_while_held(first, holding, first.start(bus))
        assert not holding.words, "it was not held: this test would prove nothing"
        dropped = [one for one in first.told(events.Trouble) if one.scope is events.Scope.DROP]
    left = stage.left()["topic pending"] + stage.left()["topic unread"]
    assert len(seen) + len(dropped) + left == 5
    assert len(seen) == len(set(seen))


@BOTH
async def test_a_handler_that_is_cut_short_by_the_deadline_gets_it_again_without_blame(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.delivery.drain._LEAST_SECONDS", 15.0)  # a busy server may need them to take it back
    bus, entered, cancelled = stage.bus(options=IMPATIENT), asyncio.Event(), []

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        entered.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.append(event.body["n"])
            raise

    await bus.publish({"n": 1})
    run = stage.start(bus)
    await entered.wait()
    stage.app.stop()
    async with asyncio.timeout(20):
        await run
    assert cancelled == [1]
    async with stage.another() as other:
        successor, seen = other.bus(options=Subscription(scan=20 * MS)), []
        successor.on(dict)(lambda event: seen.append((event.body["n"], event.attempt, event.redelivered)))
        async with other.running(successor):
            await other.settled()
    assert seen == [(1, 1, True)]
    assert stage.told(events.Failed) == []


async def test_a_handler_that_will_not_end_does_not_keep_the_worker(stage: Stage) -> None:
    bus, entered, leave = stage.bus(options=IMPATIENT), asyncio.Event(), asyncio.Event()
    ended = asyncio.Event()

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        entered.set()
        while not leave.is_set():
            try:
                await leave.wait()
            except asyncio.CancelledError:
                continue
        ended.set()

    receipt = await bus.publish({"n": 1})
    run = stage.start(bus)
    await entered.wait()
    stage.app.stop()
    async with asyncio.timeout(15):
        await run
    (stopped,) = stage.told(events.Stopped)
    assert (stopped.handed_back, stopped.abandoned) == (0, 1)
    # Still leased: while it goes on here, nobody else shall begin it before the lease has run out.
    (row,) = stage.admin.xpending_range(stage.topic, "g", "-", "+", 10)
    assert row["message_id"].decode() == receipt.entry_id
    assert row["time_since_delivered"] < 20_000
    leave.set()
    await ended.wait()


async def test_a_plain_function_that_still_runs_at_the_deadline_is_not_handed_to_others(stage: Stage) -> None:
    bus, entered, leave = stage.bus(options=IMPATIENT), threading.Event(), threading.Event()

    @bus.on(dict)
    def handle(event: Delivery[Any]) -> None:
        entered.set()
        leave.wait(20)

    try:
        await bus.publish({"n": 1})
        run = stage.start(bus)
        await stage.until(entered.is_set)
        stage.app.stop()
        async with asyncio.timeout(15):
            await run
        (stopped,) = stage.told(events.Stopped)
        assert (stopped.handed_back, stopped.abandoned) == (0, 1)
        (row,) = stage.admin.xpending_range(stage.topic, "g", "-", "+", 10)
        assert row["time_since_delivered"] < 20_000
    finally:
        leave.set()


async def test_an_idle_worker_stops_at_once_and_leaves_no_consumer(stage: Stage) -> None:
    bus = stage.bus()
    bus.on(dict)(lambda event: None)
    seconds: list[float] = []
    for _ in range(3):
        async with stage.running(bus):
            await bus.publish({})
            await stage.settled()
        began = time.monotonic()
        run = stage.start(bus)
        await stage.until(lambda: len(stage.told(events.Started)) % 2 == 0)
        stage.app.stop()
        await run
        seconds.append(time.monotonic() - began)
    assert min(seconds) < 3, "a reader that blocks for seconds was waited for"
    for stream in (stage.topic, keys.retry(stage.topic, "g")):
        assert stage.admin.xinfo_consumers(stream, "g") == []


async def test_cancelling_run_drains_first(stage: Stage) -> None:
    bus, entered, done = stage.bus(), asyncio.Event(), []

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        entered.set()
        await asyncio.sleep(0.3)
        done.append(event.body["n"])

    await bus.publish({"n": 1})
    run = stage.start(bus)
    await entered.wait()
    run.cancel()
    async with asyncio.timeout(20):
        with pytest.raises(asyncio.CancelledError):
            await run
    assert done == [1]
    assert stage.left()["topic pending"] == 0
    assert len(stage.told(events.Stopped)) == 1
    # And the app can be run again.
    async with stage.running(bus):
        await bus.publish({"n": 2})
        await stage.settled()
    assert done == [1, 2]


async def test_a_stop_while_it_starts_is_obeyed(stage: Stage) -> None:
    bus = stage.bus()
    bus.on(dict)(lambda event: None)
    for turns in range(1, 12):
        run = stage.start(bus)
        for _ in range(turns):
            await asyncio.sleep(0)
        stage.app.stop()
        async with asyncio.timeout(20):
            await run
    assert len(stage.told(events.Started)) == len(stage.told(events.Stopped))


async def test_it_runs_once_at_a_time_and_as_often_as_one_likes(stage: Stage) -> None:
    bus, seen = stage.bus(), []
    bus.on(dict)(lambda event: seen.append(event.body["n"]))
    for n in range(3):
        async with stage.running(bus):
            with pytest.raises(ConfigurationError, match="running"):
                await stage.app.run(bus, signals=False)
            await bus.publish({"n": n})
            await stage.settled()
    assert seen == [0, 1, 2]


async def test_all_faces_with_handlers_run_when_none_is_named(stage: Stage) -> None:
    first, second = stage.bus("a"), stage.bus("b")
    stage.bus("without handlers")
    stage.app.bus(stage.topic)
    seen: list[str] = []
    for bus in (first, second):
        bus.on(dict)(lambda event: seen.append(event.group))
    run = stage.start()
    await first.publish({})
    await stage.until(lambda: len(seen) == 2)
    await stage.settled("a", "b")
    stage.app.stop()
    await run
    assert sorted(seen) == ["a", "b"]


async def test_one_face_that_cannot_start_stops_the_others_in_good_order(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, bad = stage.bus(), stage.app.bus(f"{stage.topic}:bad", group="g")
    entered, leave, done = asyncio.Event(), asyncio.Event(), []

    @good.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        entered.set()
        await leave.wait()
        done.append(event.body["n"])

    async def fail_later(*given: Any) -> None:
        await entered.wait()
        try:
            await bad_work(*given)
        finally:
            asyncio.get_running_loop().call_soon(leave.set)

    bad_work = bad.work
    monkeypatch.setattr(bad, "work", fail_later)
    bad.on(dict)(lambda event: None)
    stage.admin.set(f"{stage.topic}:bad", "no stream")
    await good.publish({"n": 1})
    run = stage.start(good, bad)
    await stage.until(run.done)
    assert type(run.exception()).__name__ == "WrongKeyTypeError"
    assert f"{stage.topic}:bad" in str(run.exception())
    assert done == [1]
    assert sum(stage.left().values()) == 0
    assert [(one.topic, one.handed_back, one.abandoned) for one in stage.told(events.Stopped)] == [(stage.topic, 0, 0)]


async def test_a_stop_before_the_run_has_begun_counts_for_it(stage: Stage) -> None:
    bus = stage.bus()
    bus.on(dict)(lambda event: None)
    run = stage.start(bus)
    stage.app.stop()
    async with asyncio.timeout(20):
        await run
    async with stage.running(bus):  # and for no other
        await bus.publish({})
        await stage.settled()
    assert len(stage.told(events.Handled)) == 1


async def test_a_stop_of_what_is_closed_is_forgotten(stage: Stage) -> None:
    bus = stage.bus()
    bus.on(dict)(lambda event: None)
    stage.app.stop()
    await stage.app.aclose()
    stage.app.stop()
    await stage.app.open()
    async with stage.running(bus) as run:
        await bus.publish({})
        await stage.settled()
        assert not run.done()


WORKER = """
import asyncio, sys
from datetime import timedelta
from penstock import Penstock, Subscription

app = Penstock.connect(sys.argv[1])
bus = app.bus(sys.argv[2], group="g", options=Subscription(drain=timedelta(seconds=float(sys.argv[3]))))

@bus.on(dict)
async def handle(event):
    print("start", event.body["n"], flush=True)
    await asyncio.sleep(event.body["seconds"])
    print("end", event.body["n"], flush=True)

@bus.default
def plainly(event):
    import time
    print("start", "thread", flush=True)
    time.sleep(60)

async def main():
    async with app:
        await app.run(bus)
    print("left", flush=True)

asyncio.run(main())
"""


CANCELLED = """
import asyncio, sys
from penstock import Penstock

app = Penstock.connect(sys.argv[1])
bus = app.bus(sys.argv[2], group="g")
entered = asyncio.Event()

@bus.on(dict)
async def handle(event):
    entered.set()
    try:
        await asyncio.sleep(60)
    finally:
        print("cancelled", flush=True)

async def main():
    async with app:
        await bus.publish({})
        run = asyncio.create_task(app.run(bus, signals=False))
        await entered.wait()
        for _ in range(2):
            run.cancel()
            await asyncio.sleep(0.2)
        await asyncio.wait([run], timeout=20)
        print(run.done(), flush=True)

asyncio.run(main())
"""


class Process:
    """A worker in a process of its own, as a supervisor sees it."""

    def __init__(self, script: str, *arguments: str) -> None:
        arguments = (sys.executable, "-c", script, *arguments)
        self.popen = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.lines: list[str] = []
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        assert self.popen.stdout is not None
        for line in self.popen.stdout:
            self.lines.append(line.strip())

    async def ended(self, within: float) -> tuple[int, str]:
        code = await asyncio.to_thread(self.popen.wait, within)
        self._reading.join(5)
        assert self.popen.stderr is not None
        return code, self.popen.stderr.read()

    def close(self) -> None:
        if self.popen.poll() is None:
            os.kill(self.popen.pid, signal.SIGKILL)
        self.popen.wait()
        self._reading.join(5)
        for pipe in (self.popen.stdout, self.popen.stderr):
            if pipe is not None:
                pipe.close()


@pytest.fixture
def process(stage: Stage, request: pytest.FixtureRequest) -> Iterator[Process]:
    opened = Process(WORKER, stage.url, stage.topic, str(getattr(request, "param", 30.0)))
    yield opened
    opened.close()


async def test_cancelled_again_while_it_drains_it_gives_up_and_the_process_ends(stage: Stage) -> None:
    """A task that outlived this, and took cancellation for its handler's, would keep `asyncio.run` from returning."""
    process = Process(CANCELLED, stage.url, stage.topic)
    try:
        assert await process.ended(within=40) == (0, "")
        assert process.lines == ["cancelled", "True"]
    finally:
        process.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_drains_and_exits_with_0(stage: Stage, process: Process, number: signal.Signals) -> None:
    bus = stage.bus()
    await bus.publish_many([{"n": 0, "seconds": 0}, {"n": 1, "seconds": 0.5}])
    await stage.until(lambda: "start 1" in process.lines and "end 0" in process.lines, within=40)
    process.popen.send_signal(number)
    assert await process.ended(within=30) == (0, "")
    assert process.lines[-2:] == ["end 1", "left"]
    assert stage.left() == dict.fromkeys(stage.left(), 0)


@pytest.mark.parametrize("process", [0.2], indirect=True)
async def test_a_signal_ends_the_process_in_time_whatever_its_handlers_do(stage: Stage, process: Process) -> None:
    bus = stage.bus()
    await bus.publish_many([{"n": 0, "seconds": 60}, "in a thread"])
    await stage.until(lambda: {"start 0", "start thread"} <= set(process.lines), within=40)
    process.popen.send_signal(signal.SIGTERM)
    code, errors = await process.ended(within=30)
    assert (code, errors) == (0, "")
    assert process.lines[-1] == "left"


async def test_signals_are_left_alone_where_asked(stage: Stage) -> None:
    bus = stage.bus()
    bus.on(dict)(lambda event: None)
    before = signal.getsignal(signal.SIGTERM)
    async with stage.running(bus):
        assert signal.getsignal(signal.SIGTERM) is before


async def test_a_program_gets_its_own_signal_handlers_back(stage: Stage) -> None:
    bus = stage.bus()
    bus.on(dict)(lambda event: None)
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    caught: list[int] = []
    try:
        for number in before:
            signal.signal(number, lambda number, _: caught.append(number))
        mine = {number: signal.getsignal(number) for number in before}
        run = asyncio.create_task(stage.app.run(bus))
        await stage.until(lambda: stage.told(events.Started))
        os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(20):
            await run
        assert {number: signal.getsignal(number) for number in before} == mine
        assert caught == []
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_it_runs_in_a_thread_and_again_on_another_loop(server: Server, topic: str) -> None:
    """Signals reach the main thread alone; and an app that is declared in a module outlives the loops it runs on."""
    app = Penstock.connect(server.url)
    bus, seen = app.bus(topic, group="g"), []

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        seen.append(event.body["n"])
        app.stop()

    async def main(n: int) -> None:
        async with app, asyncio.timeout(10):
            await bus.publish({"n": n})
            await app.run(bus)

    for n in range(2):
        thread = threading.Thread(target=asyncio.run, args=(main(n),))
        thread.start()
        thread.join(15)
        assert not thread.is_alive()
    asyncio.run(main(2))
    assert seen == [0, 1, 2]


async def test_leaving_the_app_while_it_runs_does_not_hang(server: Server, topic: str) -> None:
    """A mistake, but a likely one: the block ends before the worker was stopped."""
    app = Penstock.connect(server.url)
    bus = app.bus(topic, group="g")
    bus.on(dict)(lambda event: None)
    seen: list[events.Event] = []
    app.listen(seen.append)
    async with app:
        run = asyncio.create_task(app.run(bus, signals=False))
        async with asyncio.timeout(20):
            while not any(isinstance(one, events.Started) for one in seen):
                await asyncio.sleep(0.005)
    app.stop()
    done, _ = await asyncio.wait([run], timeout=20)
    if not done:
        run.cancel()
        await asyncio.wait([run], timeout=5)
    assert done, "run() did not end"
    run.exception()
