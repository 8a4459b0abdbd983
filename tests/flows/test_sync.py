"""The blocking front: many threads, one loop; errors, interrupts, forks and endings as a caller meets them."""

import asyncio
import contextvars
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
import redis

from penstock import JobDelivery, JobStatus, Message, Priority
from penstock.app import Penstock as AsyncPenstock
from penstock.bus.publisher import Receipt
from penstock.delivery.outcome import Reject
from penstock.errors import (
    ConfigurationError,
    EncodeError,
    JobCancelledError,
    PenstockError,
    ServerUnreachableError,
)
from penstock.sync import Penstock
from penstock.testing import drain
from tests.support.servers import Server, free_port

THREAD = "penstock-sync"


@pytest.fixture
def app(server: Server, admin: "redis.Redis") -> Iterator[Penstock]:
    admin.flushall()
    with Penstock.connect(server.url) as opened:
        yield opened


def loop_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == THREAD]


def wait_until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline, f"not within 30 s: {what}"
        time.sleep(0.005)


def make_dead(url: str, topic: str, bodies: list[dict[str, int]]) -> None:
    """Let group g give up these messages."""

    async def reject() -> None:
        app = AsyncPenstock.connect(url)
        bus = app.bus(topic, group="g")

        @bus.on(dict)
        async def refuse(delivery: object) -> None:
            raise Reject("no")

        async with app:
            await bus.publish_many(bodies)
            await drain(app, bus)

    asyncio.run(reject())


def test_what_is_published_is_on_the_server_when_the_call_returns(admin: "redis.Redis", app: Penstock) -> None:
    receipt = app.bus("orders").publish({"order": 1}, key="o-1", headers={"a": "b"})
    ((entry_id, fields),) = admin.xrange("orders")
    assert entry_id.decode() == receipt.entry_id
    assert fields[b"id"].decode() == receipt.id
    assert (fields[b"payload"], fields[b"key"]) == (b'{"order":1}', b"o-1")


def test_many_threads_at_once_share_writes(admin: "redis.Redis", app: Penstock) -> None:
    bus, threads, each = app.bus("orders"), 40, 25

    def reads() -> int:
        return int(admin.info("stats")["total_reads_processed"])

    bus.publish({})
    before = reads()
    with ThreadPoolExecutor(threads) as pool:
        receipts = list(pool.map(lambda n: bus.publish({"n": n}), range(threads * each)))
    after = reads()
    assert len({receipt.entry_id for receipt in receipts}) == admin.xlen("orders") - 1 == threads * each
    assert len(loop_threads()) == 1
    # One after the other would need a read of the server's for every message.
    assert after - before < 0.8 * threads * each


def test_errors_surface_as_they_are(app: Penstock) -> None:
    bus = app.bus("orders")
    with pytest.raises(EncodeError):
        bus.publish(object())
    with pytest.raises(ConfigurationError, match="only publishes"):
        bus.dead  # noqa: B018
    results = bus.publish_many([{"n": 1}, object(), {"n": 3}])
    assert [type(one) for one in results] == [Receipt, EncodeError, Receipt]


def test_a_server_that_is_not_there_is_said_at_once_and_leaves_no_thread() -> None:
    with (
        pytest.raises(ServerUnreachableError, match="is the server up"),
        Penstock.connect(f"redis://127.0.0.1:{free_port()}"),
    ):
        pytest.fail("it connected")
    assert not loop_threads()


def test_publish_many_takes_from_the_iterable_in_the_callers_thread(admin: "redis.Redis", app: Penstock) -> None:
    source, copy = app.bus("source"), app.bus("copy")
    takers = set()

    def bodies() -> Iterator[Message[dict[str, int]]]:
        for n in range(2500):
            takers.add(threading.current_thread())
            if n % 1000 == 0:
                source.publish({"n": n})  # the same app, while its publish_many waits for more
            yield Message({"n": n})

    results = copy.publish_many(bodies())
    assert takers == {threading.current_thread()}
    assert [result.entry_id.encode() for result in results] == [id for id, _ in admin.xrange("copy")]  # type: ignore[union-attr]
    assert (len(results), admin.xlen("source")) == (2500, 3)
    assert copy.publish_many([]) == []


def test_dead_letters_are_listed_replayed_and_purged(server: Server, app: Penstock) -> None:
    make_dead(server.url, "orders", [{"n": n} for n in range(250)])
    dead = app.bus("orders", group="g").dead
    letters = list(dead)
    assert len({letter.id for letter in letters}) == dead.count() == 250
    assert {letter.reason for letter in letters} == {"no"}
    assert dead.get(letters[7].id or "") == letters[7]
    assert dead.get("nobody") is None
    chosen = {letter.id for letter in letters[:3]}
    report = dead.replay(where=lambda letter: letter.id in chosen)
    assert (report.matched, report.replayed) == (3, 3)
    assert dead.purge(ids=letters[3].id or "") == 1
    assert dead.edit(letters[5], {"n": 0}) is not None
    assert dead.edit(letters[5], {"n": 0}) is None
    assert dead.count() == 245
    assert next(iter(dead)).id == letters[4].id  # an iteration that is not brought to its end


def test_a_filter_that_calls_the_app_is_told_instead_of_waiting_for_ever(server: Server, app: Penstock) -> None:
    make_dead(server.url, "orders", [{}])
    bus = app.bus("orders", group="g")
    with pytest.raises(ConfigurationError, match="from its own loop thread"):
        bus.dead.purge(where=lambda letter: bool(bus.publish({})))
    assert bus.dead.count() == 1


def test_pause_and_resume_reach_the_group(admin: "redis.Redis", app: Penstock) -> None:
    bus = app.bus("orders", group="g")
    bus.pause()
    assert admin.smembers("penstock:{orders}:orders:paused") == {b"g"}
    bus.resume()
    assert not admin.exists("penstock:{orders}:orders:paused")


def test_context_variables_of_the_caller_are_seen(app: Penstock) -> None:
    """A trace lives in them."""
    current = contextvars.ContextVar("current", default="nothing")

    async def look() -> str:
        return current.get()

    current.set("span")
    assert app._call(look) == "span"


def test_ctrl_c_ends_the_call_and_leaves_the_app_usable(server: Server, app: Penstock) -> None:
    bus = app.bus("orders")
    bus.publish({})

    async def tasks() -> int:
        return len(asyncio.all_tasks())

    at_rest = app._call(tasks)
    os.kill(server.pid, signal.SIGSTOP)  # no answer comes: whoever publishes waits
    try:
        loop = app._thread._loop  # type: ignore[union-attr]

        def interrupt() -> None:
            wait_until(lambda: len(asyncio.all_tasks(loop)) >= at_rest, "the call has begun")
            time.sleep(0.1)  # and who made it waits
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=interrupt).start()
        with pytest.raises(KeyboardInterrupt):
            bus.publish({"interrupted": True})
        assert app._call(tasks) == at_rest
    finally:
        os.kill(server.pid, signal.SIGCONT)
    assert bus.publish({}).entry_id


def test_a_forked_child_is_told_and_the_parent_goes_on(server: Server) -> None:
    script = (
        "import os, sys\n"
        "from penstock.sync import Penstock\n"
        "with Penstock.connect(sys.argv[1]) as app:\n"
        "    bus = app.bus('forked')\n"
        "    bus.publish({})\n"
        "    if not os.fork():\n"
        "        for use in (lambda: bus.publish({}), app.open, lambda: list(app.bus('x', group='g').dead)):\n"
        "            try: use()\n"
        "            except Exception as error: print(type(error).__name__, error, flush=True)\n"
        "        app.close()\n"
        "        os._exit(0)\n"
        "    _, status = os.wait()\n"
        "    print('child', status, 'parent', bus.publish({}).entry_id is not None)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, server.url], capture_output=True, text=True, timeout=30, check=True
    )
    *told, last = done.stdout.splitlines()
    assert len(told) == 3
    assert all(line.startswith("ConfigurationError") and "was forked from it" in line for line in told)
    assert last == "child 0 parent True"


def test_closing_ends_the_thread_and_every_call_that_waits(server: Server) -> None:
    app = Penstock.connect(server.url).open()
    bus = app.bus("orders")
    bus.publish({})
    os.kill(server.pid, signal.SIGSTOP)
    outcomes: list[BaseException | Receipt] = []

    def publish() -> None:
        try:
            outcomes.append(bus.publish({}))
        except PenstockError as error:
            outcomes.append(error)

    waiting = [threading.Thread(target=publish) for _ in range(5)]
    try:
        for thread in waiting:
            thread.start()
        loop = app._thread._loop  # type: ignore[union-attr]
        wait_until(lambda: len(asyncio.all_tasks(loop)) >= 6, "all of them wait")
        app.close()
    finally:
        os.kill(server.pid, signal.SIGCONT)
    for thread in waiting:
        thread.join(10)
    assert [isinstance(one, PenstockError) for one in outcomes] == [True] * 5
    assert not loop_threads()
    app.close()
    with pytest.raises(ConfigurationError, match="not connected"):
        bus.publish({})
    with app:  # opened again, it is as good as new
        assert bus.publish({}).entry_id
    assert not loop_threads()


def test_jobs_are_enqueued_watched_and_cancelled_without_a_loop(server: Server, app: Penstock) -> None:
    queue = app.jobs("mails")

    def work() -> None:
        async def run() -> None:
            async with AsyncPenstock.connect(server.url) as worker:
                jobs = worker.jobs("mails")

                @jobs.on(dict)
                async def send(job: JobDelivery[dict[str, int]]) -> int:
                    return 2 * job.body["n"]

                running = asyncio.create_task(worker.run(jobs, signals=False))
                await asyncio.to_thread(stop.wait)
                worker.stop()
                await running

        asyncio.run(run())

    later = queue.enqueue({"n": 9}, delay=timedelta(hours=1), unique_key="nine")
    assert queue.enqueue({"n": 9}, unique_key="nine").id == later.id
    assert [job.id for job in queue.unfinished(JobStatus.SCHEDULED)] == [later.id]
    assert (later.status(), later.cancel()) == (JobStatus.SCHEDULED, JobStatus.CANCELLED)
    stop, working = threading.Event(), ThreadPoolExecutor(1)
    done = working.submit(work)
    try:
        first = queue.enqueue({"n": 1}, priority=Priority.HIGH)
        assert first.result(timedelta(seconds=10)) == 2
        many = queue.enqueue_many([{"n": n} for n in range(5)])
        assert [job.result(timedelta(seconds=10)) for job in many] == [0, 2, 4, 6, 8]  # type: ignore[union-attr]
        queue.drain(timedelta(seconds=10))
        assert queue.job(first.id).info().result == 2
        assert queue.stats().is_idle
        with pytest.raises(JobCancelledError):
            later.result()
    finally:
        stop.set()
        done.result()
        working.shutdown()
