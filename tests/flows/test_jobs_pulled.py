"""Jobs for those who ask for them: leased one by one, settled by hand, and back when nobody settles them."""

import asyncio
import time
from datetime import timedelta
from typing import Any

import pytest

from penstock import JobDelivery, JobStatus, Priority, Reject, Retry, Snooze, events
from penstock.backend import keys
from penstock.backend.entry import Helping
from penstock.backend.redis.lanes import Lanes
from penstock.backend.redis.seat import Wish
from penstock.errors import LeaseLostError
from penstock.jobs.queue import JobQueue
from tests.support.stage import Stage

BOTH = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)
HIGH, NORMAL, LOW = Priority
MS = timedelta(milliseconds=1)
SECOND = timedelta(seconds=1)


def pending(stage: Stage, queue: JobQueue) -> int:
    found = 0
    for lane in queue.topics:
        for stream in (lane, keys.retry(lane, "workers")):
            found += stage.admin.xpending(stream, "workers")["pending"] if stage.admin.exists(stream) else 0
    return found


async def got(queue: JobQueue, timeout: timedelta = 20 * SECOND) -> JobDelivery[Any]:
    job = await queue.dequeue(timeout)
    assert job is not None
    return job


@BOTH
async def test_one_job_at_a_time_the_urgent_first(stage: Stage) -> None:
    queue = stage.jobs()
    for priority in (LOW, HIGH, NORMAL):
        await queue.enqueue_many([{"p": priority.value, "n": n} for n in range(2)], priority=priority)
    seen = []
    for _ in range(6):
        job = await got(queue)
        assert pending(stage, queue) == 1
        seen.append((job.body["p"], job.body["n"], job.priority.value, job.attempt))
        await job.ack()
    assert seen == [(p, n, p, 1) for p in ("high", "normal", "low") for n in (0, 1)]
    assert await queue.dequeue() is None
    assert [stage.admin.xlen(lane) for lane in queue.topics] == [0, 0, 0]


@BOTH
async def test_it_waits_for_a_job_and_for_what_becomes_due(stage: Stage) -> None:
    queue = stage.jobs()
    waiting = asyncio.create_task(queue.dequeue(40 * SECOND))
    await asyncio.sleep(0.05)
    await queue.enqueue({"n": 1})
    async with asyncio.timeout(20):
        first = await waiting
    assert first is not None
    await first.retry(10 * MS)
    again = await got(queue)
    assert (again.body, again.attempt, again.id) == ({"n": 1}, 1, first.id)
    await again.ack()


@BOTH
async def test_what_nobody_settles_comes_back_when_its_lease_is_over(stage: Stage) -> None:
    queue = stage.jobs(lease=200 * MS, retry=Retry(attempts=3))
    handle = await queue.enqueue({})
    first = await got(queue)
    async with stage.another() as elsewhere:
        assert await elsewhere.jobs(retry=Retry(attempts=3)).dequeue() is None  # who leaves it alone for longer
        other = elsewhere.jobs(lease=200 * MS, retry=Retry(attempts=3))
        second = await got(other)
        assert (second.id, second.attempt, second.redelivered) == (first.id, 2, True)
        with pytest.raises(LeaseLostError):
            await first.ack()
        third = await got(queue)
        assert third.attempt == 3
        async with asyncio.timeout(20):
            while await handle.status() is not JobStatus.DEAD:  # begun once more than it may be, it is given up
                assert await queue.dequeue(SECOND) is None
    assert "begun 3 times" in (await handle.info()).error


async def test_what_comes_with_more_than_was_asked_for_is_put_back(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read that waits has one entry of each lane at most; here none is read in any other way."""

    async def wait_at_once(
        self: Lanes, lanes: Any, group: str, consumer: str, helping: Helping, *_: Any, **how: Any
    ) -> Any:
        seat = self._lane_seat(lanes, group, consumer)
        return self._bound(seat, await self._waited(seat, Wish(1, 0, helping), 100))

    monkeypatch.setattr(Lanes, "read_lanes", wait_at_once)
    queue, seen = stage.jobs(), list[str]()
    for priority in Priority:
        await queue.enqueue({"p": priority.value}, priority=priority)
    for _ in range(3):
        job = await got(queue)
        await stage.until(lambda: pending(stage, queue) == 1)
        seen.append(job.body["p"])
        await job.ack()
    assert seen == ["high", "normal", "low"]


async def test_what_cannot_be_read_is_passed_by(stage: Stage) -> None:
    queue = stage.jobs()
    stage.admin.xadd(queue.lanes[HIGH], {"payload": "{"})
    await queue.enqueue({"n": 1})
    first, second = await queue.dequeue(SECOND), await queue.dequeue(SECOND)
    assert [job.body for job in (first, second) if job is not None] == [{"n": 1}]
    await stage.until(lambda: stage.admin.xlen(keys.dead(queue.lanes[HIGH])) == 1)


@BOTH
async def test_a_block_settles_its_job(stage: Stage) -> None:
    queue = stage.jobs(retry=Retry(attempts=2, initial=10 * MS, jitter=False))
    handles = {n: await queue.enqueue({"n": n}) for n in ("good", "bad", "hopeless", "later", "by hand")}
    async with queue.take() as job:
        assert job is not None
        assert job.body == {"n": "good"}
    with pytest.raises(ValueError, match="oh"):
        async with queue.take() as job:
            raise ValueError("oh")
    async with queue.take() as job:
        raise Reject("no use")
    async with queue.take() as job:
        raise Snooze(timedelta(hours=1))
    async with queue.take() as job:
        assert job is not None
        await job.ack()
    assert {n: await handle.status() for n, handle in handles.items()} == {
        "good": JobStatus.SUCCEEDED,
        "bad": JobStatus.FAILED,
        "hopeless": JobStatus.DEAD,
        "later": JobStatus.SCHEDULED,
        "by hand": JobStatus.SUCCEEDED,
    }
    with pytest.raises(ValueError, match="attempt 2 of bad"):
        async with queue.take(20 * SECOND) as job:
            raise ValueError(f"attempt {job.attempt} of {job.body['n']}")
    assert await handles["bad"].status() is JobStatus.DEAD
    async with queue.take() as nothing:
        assert nothing is None


def wait_for_renewals(stage: Stage, lane: str, count: int) -> None:
    """Returns when the lease of the one job that is pending there was renewed so often."""
    last, deadline = 0, time.monotonic() + 20
    while count:
        (row,) = stage.admin.xpending_range(lane, "workers", "-", "+", 10)
        count -= row["time_since_delivered"] < last
        last = row["time_since_delivered"]
        assert time.monotonic() < deadline, "nobody renews it"
        time.sleep(0.01)


async def test_a_block_keeps_its_lease_even_if_it_blocks_the_loop(stage: Stage) -> None:
    lease = timedelta(seconds=1.5)
    queue = stage.jobs(lease=lease)
    await queue.enqueue({})
    async with stage.another() as elsewhere:
        other = elsewhere.jobs(lease=lease)
        async with queue.take() as job:
            assert job is not None
            wait_for_renewals(stage, queue.lanes[NORMAL], 2)  # and the loop stands still
            assert await other.dequeue(500 * MS) is None
            job.progress(50, "half")
            await stage.until(lambda: stage.admin.keys(f"*{job.id}"))
    assert pending(stage, queue) == 0


async def test_a_block_that_is_cancelled_hands_its_job_back(stage: Stage) -> None:
    queue = stage.jobs()
    handle, entered = await queue.enqueue({}), asyncio.Event()

    async def hold() -> None:
        async with queue.take():
            entered.set()
            await asyncio.sleep(60)

    holding = asyncio.create_task(hold())
    await entered.wait()
    assert await handle.status() is JobStatus.RUNNING
    holding.cancel()
    with pytest.raises(asyncio.CancelledError):
        await holding
    assert await handle.status() is JobStatus.QUEUED
    async with stage.another() as elsewhere:
        again = await got(elsewhere.jobs())
        assert (again.id, again.attempt) == (handle.id, 1)


@BOTH
async def test_a_paused_queue_gives_nothing_to_those_who_ask(stage: Stage) -> None:
    queue = stage.jobs()
    await queue.enqueue({"n": 1})
    await got(queue)  # and nobody settles it
    waiting = asyncio.create_task(queue.dequeue(20 * SECOND))
    await queue.pause()
    await stage.until(lambda: [one.paused for one in stage.told(events.PauseChanged)] == [True] * 3)
    await queue.enqueue({"n": 2})
    async with stage.another() as other:
        late = other.jobs(lease=100 * MS)
        assert await late.dequeue(500 * MS) is None
        assert not waiting.done()
        await queue.resume()
        jobs = [await got(late), await waiting]
    assert [job.body["n"] for job in jobs if job is not None] == [1, 2]


@BOTH
async def test_handlers_and_those_who_ask_share_a_queue(stage: Stage) -> None:
    queue, done = stage.jobs(), list[int]()

    @queue.on(dict)
    async def do(job: JobDelivery[Any]) -> None:
        done.append(job.body["n"])
        await asyncio.sleep(0.001)

    await queue.enqueue_many([{"n": n} for n in range(200)])
    async with stage.running(queue, concurrency=2):
        while (job := await queue.dequeue()) is not None:
            done.append(job.body["n"])
            await job.ack()
        await stage.all_done(queue)
    assert sorted(done) == list(range(200))
    assert stage.told(events.Fenced) == []
