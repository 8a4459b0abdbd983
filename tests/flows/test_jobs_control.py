"""Jobs under control: cancelled, hastened, moved, held to one of a kind, to so many at once, to so many a second."""

import asyncio
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from penstock import (
    JobDelivery,
    JobHandle,
    JobOptions,
    JobStatus,
    Message,
    Priority,
    Rate,
    Reject,
    Retry,
    Unique,
    events,
)
from penstock.backend import keys
from penstock.backend.entry import Helping
from penstock.backend.redis.lanes import Lanes
from penstock.backend.redis.seat import Wish
from penstock.errors import ConfigurationError, JobCancelledError
from penstock.jobs.queue import JobQueue
from tests.support.stage import Stage

BOTH = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)
HIGH, NORMAL, LOW = Priority
MS = timedelta(milliseconds=1)
SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)
SOON = timedelta(seconds=20)
NEVER = Retry(3, HOUR, HOUR, jitter=False)


async def came_to(job: JobHandle, status: JobStatus) -> None:
    async with asyncio.timeout(30):
        while await job.status() is not status:
            await asyncio.sleep(0.005)


def noting(queue: JobQueue, seen: list[Any]) -> None:
    @queue.on(dict)
    async def do(job: JobDelivery[Any]) -> None:
        seen.append(job.body["n"])
        if job.body.get("fails"):
            raise ValueError("no")


def losses(stage: Stage) -> list[events.Event]:
    return [one for one in stage.events if isinstance(one, (events.Lost, events.Trouble))]


@BOTH
async def test_a_queued_job_that_is_cancelled_is_never_begun(stage: Stage) -> None:
    queue, seen = stage.jobs(), list[Any]()
    noting(queue, seen)
    jobs = [await queue.enqueue({"n": n}, priority=LOW) for n in range(10)]
    assert [await jobs[n].cancel() for n in (0, 3, 9)] == [JobStatus.CANCELLED] * 3
    assert await jobs[3].status() is JobStatus.CANCELLED
    async with stage.running(queue):
        await stage.all_done(queue)
        with pytest.raises(JobCancelledError):
            await jobs[9].result(SOON)
        assert await jobs[3].cancel() is JobStatus.CANCELLED
        assert await jobs[1].cancel() is JobStatus.SUCCEEDED
    assert sorted(seen) == [1, 2, 4, 5, 6, 7, 8]
    assert losses(stage) == []
    assert stage.admin.exists(keys.recalled(keys.queue_home(stage.topic, queue.topics[0]))) == 0


@BOTH
async def test_a_job_that_waits_for_its_time_is_cancelled_or_done_now(stage: Stage) -> None:
    queue, seen = stage.jobs(retry=NEVER), list[Any]()
    noting(queue, seen)
    cancelled, hastened = await queue.enqueue({"n": 1}, delay=HOUR), await queue.enqueue({"n": 2}, delay=HOUR)
    failed = await queue.enqueue({"n": 3, "fails": True}, priority=HIGH)
    async with stage.running(queue):
        await came_to(failed, JobStatus.FAILED)
        assert await cancelled.cancel() is JobStatus.CANCELLED
        assert await cancelled.run_now() is False
        assert await hastened.retry() is False
        assert await hastened.status() is JobStatus.SCHEDULED
        assert await hastened.run_now() is True
        await hastened.result(SOON)
        assert await failed.retry() is True
        await stage.until(lambda: seen.count(3) == 2)
        await came_to(failed, JobStatus.FAILED)
        assert await failed.cancel() is JobStatus.CANCELLED
        assert await hastened.retry() is False
    assert sorted(seen) == [2, 3, 3]
    assert await cancelled.status() is await failed.status() is JobStatus.CANCELLED


@BOTH
async def test_a_dead_job_is_tried_again_with_all_its_attempts(stage: Stage) -> None:
    queue, seen, works = stage.jobs(), list[int](), False

    @queue.on(dict)
    async def do(job: JobDelivery[Any]) -> str:
        seen.append(job.attempt)
        if not works:
            raise Reject("no")
        return "yes"

    job = await queue.enqueue({})
    async with stage.running(queue):
        await came_to(job, JobStatus.DEAD)
        works = True
        assert await job.retry() is True
        assert await job.result(SOON) == "yes"
    assert seen == [1, 1]


@BOTH
async def test_a_running_job_is_told_to_end(stage: Stage) -> None:
    queue, cleaned = stage.jobs(), list[str]()

    @queue.on(dict)
    async def do(job: JobDelivery[Any]) -> None:
        try:
            await asyncio.sleep(30)
        finally:
            cleaned.append("async")

    @queue.default
    def in_a_thread(job: JobDelivery[Any]) -> None:
        while True:
            time.sleep(0.01)
            try:
                job.check()
            except JobCancelledError:
                cleaned.append("thread")
                raise

    async with stage.running(queue):
        first, second = await queue.enqueue({}), await queue.enqueue(Message([1]))
        for job in (first, second):
            await came_to(job, JobStatus.RUNNING)
            assert await job.cancel() is JobStatus.RUNNING
        for job in (first, second):
            await came_to(job, JobStatus.CANCELLED)
        await stage.all_done(queue)
    assert sorted(cleaned) == ["async", "thread"]
    assert [one for one in stage.events if isinstance(one, (events.Failed, events.DeadLettered, events.Trouble))] == []


async def test_a_job_that_does_not_look_is_done_to_its_end(stage: Stage) -> None:
    """And it keeps its thread until then."""
    queue, seen, go_on = stage.jobs(options=JobOptions(threads=1)), list[Any](), threading.Event()

    @queue.on(dict)
    def stubborn(job: JobDelivery[Any]) -> bool:
        seen.append(job.body["n"])
        while not job.is_cancelled and job.body["n"] == 1:
            time.sleep(0.01)
        seen.append("told")
        go_on.wait(10)
        return job.is_cancelled

    async with stage.running(queue):
        job = await queue.enqueue({"n": 1})
        await came_to(job, JobStatus.RUNNING)
        await job.cancel()
        await queue.enqueue({"n": 2})
        await stage.until(lambda: "told" in seen)
        await asyncio.sleep(0.2)
        assert seen == [1, "told"]
        go_on.set()
        assert await job.result(SOON) is True
        await stage.all_done(queue)


@BOTH
async def test_a_job_gets_another_priority(stage: Stage) -> None:
    queue, seen = stage.jobs(retry=NEVER), list[Any]()
    noting(queue, seen)
    jobs = [await queue.enqueue({"n": n}, priority=LOW) for n in range(3)]
    later = await queue.enqueue({"n": 9}, delay=HOUR)
    assert await jobs[2].set_priority(HIGH) is True
    assert await jobs[2].set_priority(HIGH) is False
    assert await later.set_priority(LOW) is True
    infos = [await job.info() for job in (*jobs, later)]
    assert [info.priority for info in infos] == [LOW, LOW, HIGH, LOW]
    assert [info.status for info in infos] == [JobStatus.QUEUED] * 3 + [JobStatus.SCHEDULED]
    assert (await (await queue.job(jobs[2].id)).info()).payload == {"n": 2}
    async with stage.running(queue, concurrency=1):
        await stage.until(lambda: len(seen) == 3)
        assert await jobs[2].set_priority(LOW) is False
        assert await later.run_now() is True
        await stage.all_done(queue)
    assert seen == [2, 0, 1, 9]
    assert losses(stage) == []
    with pytest.raises(ConfigurationError, match="Priority"):
        await later.set_priority("high")  # type: ignore[arg-type]


@BOTH
async def test_what_is_recalled_is_not_begun_by_those_who_wait_either(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read that waits may bring what was recalled a moment before; here none is read in any other way."""

    async def wait_at_once(
        self: Lanes, lanes: Any, group: str, consumer: str, helping: Helping, *_: Any, **how: Any
    ) -> Any:
        seat = self._lane_seat(lanes, group, consumer)
        return self._bound(seat, await self._waited(seat, Wish(1, 0, helping), 100))

    monkeypatch.setattr(Lanes, "read_lanes", wait_at_once)
    queue, seen = stage.jobs(), list[Any]()
    noting(queue, seen)
    jobs = [await queue.enqueue({"n": n}, priority=list(Priority)[n % 3]) for n in range(9)]
    for n in (0, 4, 8):
        assert await jobs[n].cancel() is JobStatus.CANCELLED
    async with stage.running(queue):
        await stage.all_done(queue)
    assert sorted(seen) == [1, 2, 3, 5, 6, 7]


@BOTH
async def test_a_job_is_either_cancelled_or_begun(stage: Stage) -> None:
    queue, seen = stage.jobs(), list[Any]()
    noting(queue, seen)
    async with stage.running(queue):
        verdicts = []
        for n in range(50):
            job = await queue.enqueue({"n": n}, priority=list(Priority)[n % 3])
            verdicts.append(await job.cancel())
        await stage.all_done(queue)
    cancelled = {n for n, verdict in enumerate(verdicts) if verdict is JobStatus.CANCELLED}
    assert cancelled.isdisjoint(seen)
    assert cancelled | set(seen) == set(range(50))


@BOTH
async def test_one_job_stands_for_all_of_its_key_until_it_is_done(stage: Stage) -> None:
    queue, gate, seen = stage.jobs(), asyncio.Event(), list[Any]()

    @queue.on(dict)
    async def do(job: JobDelivery[Any]) -> Any:
        seen.append(job.body["n"])
        await gate.wait()
        return job.body["n"]

    first = await queue.enqueue({"n": 1}, unique_key="report")
    second = await queue.enqueue({"n": 2}, unique_key="report", priority=HIGH)
    other = await queue.enqueue({"n": 3}, unique_key="another")
    assert (second.id, second.id == other.id) == (first.id, False)
    async with stage.running(queue):
        await came_to(first, JobStatus.RUNNING)
        assert (await queue.enqueue({"n": 4}, unique_key="report")).id == first.id
        gate.set()
        assert await second.result(SOON) == 1
        await came_to(other, JobStatus.SUCCEEDED)
        again = await queue.enqueue({"n": 5}, unique_key="report")
        assert again.id != first.id
        assert await again.result(SOON) == 5
        home = keys.queue_home(stage.topic, queue.topics[0])
        await stage.until(lambda: not stage.admin.exists(keys.unique(home, "report")))
    assert sorted(seen) == [1, 3, 5]


@BOTH
async def test_while_queued_means_until_it_is_begun(stage: Stage) -> None:
    queue, gate = stage.jobs(), asyncio.Event()

    @queue.on(dict)
    async def do(job: JobDelivery[Any]) -> None:
        await gate.wait()

    ids = [
        (await queue.enqueue({}, unique_key="k", unique=Unique.WHILE_QUEUED, delay=delay)).id
        for delay in (50 * MS, None, HOUR)
    ]
    assert len(set(ids)) == 1
    async with stage.running(queue):
        first = await queue.job(ids[0])
        await came_to(first, JobStatus.RUNNING)
        second = await queue.enqueue({}, unique_key="k", unique=Unique.WHILE_QUEUED)
        assert second.id != first.id
        gate.set()
        await stage.all_done(queue)


@BOTH
async def test_a_window_counts_whatever_became_of_the_job(stage: Stage) -> None:
    queue, seen = stage.jobs(), list[Any]()
    noting(queue, seen)
    async with stage.running(queue):
        first = await queue.enqueue({"n": 1}, unique_key="k", unique=SOON)
        await first.result(SOON)
        second = await queue.enqueue({"n": 2}, unique_key="k", unique=SOON)
        assert second.id == first.id
        assert await second.status() is JobStatus.SUCCEEDED
        window = keys.unique(keys.queue_home(stage.topic, queue.topics[0]), "k")
        assert 0 < stage.admin.pttl(window) <= 1000 * SOON.total_seconds()
        stage.admin.pexpire(window, 1)  # as if the time was over
        await stage.until(lambda: not stage.admin.exists(window))
        third = await queue.enqueue({"n": 3}, unique_key="k", unique=SOON)
        assert third.id != first.id
        await third.result(SOON)
    assert seen == [1, 3]


@BOTH
async def test_a_job_that_is_enqueued_twice_is_where_it_was_put_first(stage: Stage) -> None:
    queue, message = stage.jobs(), Message({"n": 1})
    first = await queue.enqueue(message, unique_key="k", unique=HOUR, priority=LOW)
    again = await queue.enqueue(message, unique_key="k", unique=HOUR, priority=HIGH)
    assert (again.id, again.priority, again.entry_id) == (first.id, LOW, first.entry_id)
    later = Message({"n": 2})
    scheduled = await queue.enqueue(later, unique_key="l", unique=HOUR, priority=LOW, delay=HOUR)
    now = await queue.enqueue(later, unique_key="l", unique=HOUR)
    assert (now.priority, now.entry_id, now.due) == (LOW, None, scheduled.due)
    assert await again.cancel() is await now.cancel() is JobStatus.CANCELLED


async def test_of_many_who_enqueue_at_the_same_time_one_does(stage: Stage) -> None:
    queue = stage.jobs()
    async with stage.another() as elsewhere:
        queues = [queue, elsewhere.jobs()]
        jobs = await asyncio.gather(*[queues[n % 2].enqueue({"n": n}, unique_key="one") for n in range(50)])
    assert len({job.id for job in jobs}) == 1
    assert sum(stage.admin.xlen(lane) for lane in queue.topics) == 1


async def test_a_cancelled_or_dead_job_stands_for_nothing(stage: Stage) -> None:
    queue = stage.jobs()

    @queue.on(dict)
    async def do(job: JobDelivery[Any]) -> None:
        raise Reject("no")

    first = await queue.enqueue({}, unique_key="k")
    await first.cancel()
    second = await queue.enqueue({}, unique_key="k")
    async with stage.running(queue):
        await came_to(second, JobStatus.DEAD)
    third = await queue.enqueue({}, unique_key="k")
    assert len({first.id, second.id, third.id}) == 3


class Gauge:
    """How many run at the same time, and when each began."""

    def __init__(self) -> None:
        self.now = self.most = 0
        self.begun: list[float] = []

    def handler(self, seconds: float) -> Callable[[JobDelivery[Any]], Any]:
        async def do(job: JobDelivery[Any]) -> None:
            self.begun.append(time.monotonic())
            self.now += 1
            self.most = max(self.most, self.now)
            await asyncio.sleep(seconds)
            self.now -= 1

        return do


@BOTH
async def test_a_limit_counts_for_all_workers_together(stage: Stage) -> None:
    options, gauge = JobOptions(limit=3), Gauge()
    queue = stage.jobs(options=options)
    queue.on(dict)(gauge.handler(0.02))
    async with stage.another() as elsewhere:
        other = elsewhere.jobs(options=options)
        other.on(dict)(gauge.handler(0.02))
        async with stage.running(queue, concurrency=10), elsewhere.running(other, concurrency=10):
            for priority in Priority:
                await queue.enqueue_many([{}] * 10, priority=priority)
            await stage.all_done(queue)
            # Idle again: what comes now is begun soon, and counted too.
            await queue.enqueue_many([{}] * 6)
            await stage.until(lambda: len(gauge.begun) == 36)
            await stage.all_done(queue)
    assert gauge.most == 3


@BOTH
async def test_a_rate_counts_for_all_workers_together(stage: Stage) -> None:
    options, gauge = JobOptions(rate=Rate(20, SECOND, burst=5)), Gauge()
    queue = stage.jobs(options=options)
    queue.on(dict)(gauge.handler(0))
    async with stage.another() as elsewhere:
        other = elsewhere.jobs(options=options)
        other.on(dict)(gauge.handler(0))
        async with stage.running(queue), elsewhere.running(other):
            start = time.monotonic()
            await queue.enqueue_many([{}] * 25)
            await stage.all_done(queue)
    # Five at once, the other twenty one by one: a second in all, however late each of them is begun.
    assert len(gauge.begun) == 25
    for count, moment in enumerate(sorted(gauge.begun), start=1):
        assert count <= 5 + 20 * (moment - start + 0.05), "more than may be begun by then"


async def test_draining_waits_for_what_is_queued_or_runs(stage: Stage) -> None:
    queue, gate = stage.jobs(), asyncio.Event()

    @queue.on(dict)
    async def do(job: JobDelivery[Any]) -> None:
        await gate.wait()

    await queue.enqueue_many([{}] * 5)
    await queue.enqueue({}, delay=HOUR)
    async with stage.running(queue, concurrency=2):
        await stage.until(lambda: stage.admin.xpending(queue.lanes[NORMAL], "workers")["pending"] == 2)
        stats = await queue.stats()
        assert (stats.active_jobs, stats.lanes[NORMAL].queued, stats.lanes[NORMAL].scheduled) == (2, 3, 1)
        gate.set()
        await queue.drain(SOON)
        gate.clear()
        await queue.enqueue({})
        await stage.until(lambda: stage.admin.xpending(queue.lanes[NORMAL], "workers")["pending"] == 1)
        with pytest.raises(TimeoutError):
            await queue.drain(200 * MS)
        gate.set()
        await queue.drain(SOON)
    assert (await queue.stats()).queue_depth == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"limit": 0}, "limit"),
        ({"rate": 5}, "Rate"),
        ({"bound": 1}, "bound"),
        ({"keep": timedelta(0)}, "keep"),
        ({"timeout": 5}, "timeout"),
    ],
)
def test_bad_options_fail_where_they_are_written(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        JobOptions(**options)
    with pytest.raises(ConfigurationError):
        Rate(0)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"priority": "high"}, "priority must be Priority"),
        ({"delay": -SECOND}, "delay"),
        ({"delay": 5}, "delay"),
        ({"at": "tomorrow"}, "datetime with an offset"),
        ({"delay": SECOND, "at": "x"}, "not both"),
        ({"unique_key": ""}, "unique"),
        ({"unique_key": "k", "unique": "done"}, "unique"),
        ({"unique_key": "k", "unique": timedelta(0)}, "unique"),
    ],
)
async def test_a_bad_call_fails_at_the_call(stage: Stage, how: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        await stage.jobs().enqueue({}, **how)
    assert stage.admin.keys(f"*{stage.topic}*") == []


@BOTH
async def test_a_word_to_end_says_nothing_to_the_attempt_that_is_asked_for_after_the_job_died(stage: Stage) -> None:
    queue, begun = stage.jobs(retry=Retry(1)), list[bool]()
    told, ends = threading.Event(), threading.Event()

    @queue.on(dict)
    def do(job: JobDelivery[Any]) -> None:
        begun.append(job.is_cancelled)
        if len(begun) == 1:
            while not job.is_cancelled:
                time.sleep(0.05)
            told.set()
            ends.wait(10)
            raise ValueError("dies all the same")
        time.sleep(2.5)  # long enough for a word to come
        job.check()

    job = await queue.enqueue({"n": 1})
    async with stage.running(queue):
        await stage.until(lambda: begun)
        await job.cancel()
        await stage.until(told.is_set)
        ends.set()
        await _status(job, JobStatus.DEAD)
        assert await job.retry()
        await _status(job, JobStatus.SUCCEEDED)
    assert begun == [False, False]


async def _status(job: JobHandle, wanted: JobStatus) -> None:
    async with asyncio.timeout(30):
        while await job.status() is not wanted:
            await asyncio.sleep(0.02)


@BOTH
async def test_a_queued_job_is_found_by_an_id_that_tells_no_time(stage: Stage) -> None:
    queue, id = stage.jobs(), str(uuid4())
    await queue.enqueue_many([{"n": n} for n in range(20)])
    await queue.enqueue(Message({"n": 20}, id=id))
    await queue.enqueue_many([{"n": n} for n in range(20)])
    assert await (await queue.job(id)).status() is JobStatus.QUEUED


async def test_what_is_not_done_is_listed_by_status(stage: Stage) -> None:
    queue = stage.jobs(retry=NEVER)
    begun, go = asyncio.Event(), asyncio.Event()

    @queue.on(dict)
    async def do(job: JobDelivery[Any]) -> None:
        match job.body["n"]:
            case "runs":
                begun.set()
                await go.wait()
            case "fails":
                raise ValueError("no luck")
            case "dies":
                raise Reject("no use")

    async with stage.running(queue, concurrency=1):
        for n in ("done", "fails", "dies"):
            await queue.enqueue({"n": n}, priority=HIGH)
        await stage.until(lambda: stage.told(events.DeadLettered))
        await queue.enqueue(Message({"n": "runs"}, type="T"))
        await begun.wait()
        await queue.enqueue({"n": "waits"}, delay=HOUR)
        for n in range(3):
            job = await queue.enqueue({"n": n}, priority=LOW)
        await job.cancel()
        listed = await queue.unfinished()
        assert [(job.payload["n"], job.status, job.priority) for job in listed] == [
            ("runs", JobStatus.RUNNING, NORMAL),
            (0, JobStatus.QUEUED, LOW),
            (1, JobStatus.QUEUED, LOW),
            ("fails", JobStatus.FAILED, HIGH),
            ("waits", JobStatus.SCHEDULED, NORMAL),
            ("dies", JobStatus.DEAD, HIGH),
        ]
        assert {job.payload["n"]: job.error for job in listed if job.error} == {
            "fails": "ValueError: no luck",
            "dies": "no use",
        }
        assert listed[0].kind == "T"
        assert listed[0].worker
        for status in JobStatus:
            assert await queue.unfinished(status) == [job for job in listed if job.status is status]
        assert [job.payload["n"] for job in await queue.unfinished(most=2)] == ["runs", 0]
        go.set()
    with pytest.raises(ConfigurationError, match="most"):
        await queue.unfinished(most=0)


async def test_jobs_that_became_due_again_are_listed_though_their_record_is_gone(stage: Stage) -> None:
    queue = stage.jobs()
    waiting = await queue.enqueue({"n": 1}, delay=HOUR)
    assert await waiting.run_now()
    stage.admin.delete(keys.record(keys.queue_home(stage.topic, queue.topics[0]), waiting.id))
    (job,) = await queue.unfinished()
    assert (job.id, job.status, job.payload) == (waiting.id, JobStatus.QUEUED, {"n": 1})
    assert await queue.unfinished(JobStatus.RUNNING) == []
