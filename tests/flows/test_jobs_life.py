"""A job's life, as others see it: told from where the job is, with its progress, its result, and why it failed."""

import asyncio
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from penstock import JobDelivery, JobOptions, JobStatus, Message, Priority, Reject, Retry, Snooze, events
from penstock.backend import keys
from penstock.errors import ConfigurationError, JobDeadError, JobNotFoundError
from penstock.jobs.job import JobHandle
from tests.support.stage import Stage

BOTH = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)
HIGH, NORMAL, LOW = Priority
MS = timedelta(milliseconds=1)
SOON = timedelta(seconds=10)


@dataclass
class Resize:
    image: str
    width: int = 100


async def came_to(job: JobHandle, status: JobStatus) -> None:
    async with asyncio.timeout(10):
        while (now := await job.status()) is not status:
            await asyncio.sleep(0.005)
    assert now is status


@BOTH
async def test_every_status_is_where_the_job_is(stage: Stage) -> None:
    queue, gate = stage.jobs(retry=Retry(attempts=2, initial=400 * MS, jitter=False)), asyncio.Event()

    @queue.on(Resize)
    async def resize(job: JobDelivery[Resize]) -> dict[str, Any]:
        if job.body.image == "broken":
            raise ValueError(f"no. {job.attempt}")
        await gate.wait()
        return {"size": job.body.width}

    good = await queue.enqueue(Resize("a.png", 7), priority=HIGH)
    broken = await queue.enqueue(Resize("broken"))
    later = await queue.enqueue(Resize("b.png"), delay=500 * MS, priority=LOW)
    assert [await job.status() for job in (good, broken, later)] == [
        JobStatus.QUEUED,
        JobStatus.QUEUED,
        JobStatus.SCHEDULED,
    ]
    async with stage.running(queue):
        await came_to(good, JobStatus.RUNNING)
        await came_to(broken, JobStatus.FAILED)
        failed = await broken.info()
        assert (failed.attempt, failed.error, failed.payload) == (2, "ValueError: no. 1", Resize("broken"))
        assert failed.due is not None
        await came_to(later, JobStatus.RUNNING)
        await came_to(broken, JobStatus.DEAD)
        running = await good.info()
        assert (running.kind, running.priority, running.attempt) == ("Resize", HIGH, 1)
        assert running.worker == stage.told(events.Started)[0].consumer
        gate.set()
        assert await good.result(SOON) == {"size": 7}
        assert await later.result(SOON) == {"size": 100}
        with pytest.raises(JobDeadError, match=r"given up: ValueError: no\. 2"):
            await broken.result(SOON)
    assert [await job.status() for job in (good, broken, later)] == [
        JobStatus.SUCCEEDED,
        JobStatus.DEAD,
        JobStatus.SUCCEEDED,
    ]
    dead = await broken.info()
    assert (dead.attempt, dead.max_attempts, dead.kind, dead.priority) == (2, 2, "Resize", NORMAL)


@BOTH
async def test_a_replayed_job_is_found_where_it_is_then(stage: Stage) -> None:
    queue, works = stage.jobs(retry=Retry(attempts=1)), False

    @queue.on(dict)
    async def do(job: JobDelivery[Any]) -> str:
        if not works:
            raise ValueError
        return "at last"

    job = await queue.enqueue({})
    async with stage.running(queue):
        await came_to(job, JobStatus.DEAD)
    await queue.dead.replay()
    assert await job.status() is JobStatus.QUEUED
    works = True
    async with stage.running(queue):
        assert await job.result(SOON) == "at last"


@BOTH
async def test_a_job_is_found_by_its_id_wherever_it_is(stage: Stage) -> None:
    queue = stage.jobs(retry=Retry(2, timedelta(hours=1), timedelta(hours=1), jitter=False))
    gate = asyncio.Event()

    @queue.on(dict)
    async def do(job: JobDelivery[Any]) -> Any:
        if job.body["n"] == "fails":
            raise ValueError
        if job.body["n"] == "rejected":
            raise Reject("no")
        await gate.wait()
        return job.body["n"]

    await queue.enqueue_many([{"n": n} for n in range(150)], priority=LOW)
    jobs = {n: await queue.enqueue({"n": n}, priority=HIGH) for n in ("fails", "rejected", "runs")}
    jobs["later"] = await queue.enqueue({"n": "later"}, at=datetime.now(UTC) + timedelta(days=40))
    jobs["queued"] = await queue.enqueue({"n": "queued"}, priority=LOW)
    async with stage.running(queue, concurrency=1):
        await came_to(jobs["runs"], JobStatus.RUNNING)
        found = {n: await queue.job(job.id) for n, job in jobs.items()}
        assert {n: (await job.info()).payload for n, job in found.items()} == {n: {"n": n} for n in jobs}
        assert {n: await job.status() for n, job in found.items()} == {
            "fails": JobStatus.FAILED,
            "rejected": JobStatus.DEAD,
            "runs": JobStatus.RUNNING,
            "later": JobStatus.SCHEDULED,
            "queued": JobStatus.QUEUED,
        }
        gate.set()
        assert await found["runs"].result(SOON) == "runs"
    assert await (await queue.job(jobs["runs"].id)).status() is JobStatus.SUCCEEDED
    with pytest.raises(JobNotFoundError, match="knows no job"):
        await queue.job(Message({}).id)
    with pytest.raises(ConfigurationError, match="UUID"):
        await queue.job("nonsense")


async def test_many_jobs_that_are_due_together_are_told_apart(stage: Stage) -> None:
    queue, at = stage.jobs(), datetime.now(UTC) + timedelta(hours=1)
    jobs = await queue.enqueue_many([{"n": n} for n in range(300)], at=at)
    for n in (0, 1, 150, 298, 299):
        info = await jobs[n].info()  # type: ignore[union-attr]
        assert (info.status, info.payload) == (JobStatus.SCHEDULED, {"n": n})
        assert info.due is not None
        assert abs(info.due - at) < 2 * MS


@BOTH
async def test_progress_is_seen_while_it_runs(stage: Stage) -> None:
    queue, more, gate = stage.jobs(), asyncio.Event(), asyncio.Event()

    @queue.on(dict)
    async def do(job: JobDelivery[Any]) -> None:
        job.progress(40, "nearly half")
        await more.wait()
        job.progress(90, "nearly all")
        await gate.wait()

    @queue.on(Resize)
    def in_a_thread(job: JobDelivery[Resize]) -> str:
        job.progress(70, "in a thread")
        while not gate.is_set():
            time.sleep(0.01)
        return job.queue + " " + job.priority.value

    async with stage.running(queue):
        before = datetime.now(UTC)
        first, second = await queue.enqueue({}), await queue.enqueue(Resize("x"), priority=LOW)
        expectations = ((first, (40, "nearly half")), (second, (70, "in a thread")), (first, (90, "nearly all")))
        for job, expected in expectations:
            async with asyncio.timeout(20):
                while ((info := await job.info()).progress, info.message) != expected:
                    await asyncio.sleep(0.01)
            if job is second:
                more.set()
            assert info.started_at is not None
            assert before - 5 * MS <= info.started_at <= datetime.now(UTC) + 5 * MS
        gate.set()
        assert await first.result(SOON) is None
        assert await second.result(SOON) == f"{stage.topic} low"
    assert (await second.info()).progress == 70


@pytest.mark.parametrize("percent", [-1, 101, 0.5, True, "half"])
async def test_progress_out_of_bounds_fails_where_it_is_said(stage: Stage, percent: Any) -> None:
    queue = stage.jobs(retry=Retry(attempts=1))

    @queue.on(dict)
    async def do(job: JobDelivery[Any]) -> None:
        job.progress(percent)

    job = await queue.enqueue({})
    async with stage.running(queue):
        with pytest.raises(JobDeadError, match="from 0 to 100"):
            await job.result(SOON)


@BOTH
async def test_a_plain_job_leaves_no_key_behind_and_the_others_expire(stage: Stage) -> None:
    queue = stage.jobs(options=JobOptions(keep=timedelta(seconds=20)))

    @queue.on(dict)
    async def do(job: JobDelivery[Any]) -> Any:
        return job.body.get("result")

    records = keys.record(keys.queue_home(stage.topic, queue.topics[0]), "") + "*"
    async with stage.running(queue):
        await queue.enqueue_many([{}] * 100)
        await stage.all_done(queue)
        assert stage.admin.keys(records) == []
        kept = await queue.enqueue({"result": [1, "two", None]})
        assert await kept.result(SOON) == [1, "two", None]
        (record,) = stage.admin.keys(records)
        assert 0 < stage.admin.pttl(record) <= 20_000
        later = await queue.enqueue({}, delay=timedelta(seconds=30))
        record = keys.record(keys.queue_home(stage.topic, queue.topics[0]), later.id)
        assert stage.admin.pttl(record) > 30_000  # for as long as it may wait
        assert await later.run_now()
        await later.result(SOON)
        assert 0 < stage.admin.pttl(record) <= 20_000


async def test_a_result_that_is_stored_does_not_make_a_job_done(stage: Stage) -> None:
    """Its worker may die between the two, and then it runs once more."""
    queue, seen = stage.jobs(), list[JobStatus]()

    @queue.on(dict)
    async def do(job: JobDelivery[Any]) -> str:
        return "early"

    job = await queue.enqueue({})
    async with stage.running(queue):
        real = stage.app.backend.__class__.complete

        async def slow(self: Any, *args: Any, **how: Any) -> Any:
            seen.append(await job.status())
            return await real(self, *args, **how)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(stage.app.backend.__class__, "complete", slow)
            assert await job.result(SOON) == "early"
    assert seen == [JobStatus.RUNNING]


class Odd:
    """Nothing JSON knows."""


@pytest.mark.parametrize(
    ("result", "why"), [("x" * 2_000_000, "the limit is 1048576"), (Odd(), "cannot be written"), (float("nan"), "NaN")]
)
async def test_a_result_that_cannot_be_kept_gives_the_job_up_and_says_why(stage: Stage, result: Any, why: str) -> None:
    queue, calls = stage.jobs(), 0

    @queue.on(dict)
    async def do(job: JobDelivery[Any]) -> Any:
        nonlocal calls
        calls += 1
        return result

    job = await queue.enqueue({})
    async with stage.running(queue):
        with pytest.raises(JobDeadError, match=f"returned cannot be kept: .*{why}"):
            await job.result(SOON)
    assert calls == 1


async def test_results_that_nobody_wants_are_dropped(stage: Stage) -> None:
    queue = stage.jobs(options=JobOptions(results=False))

    @queue.on(dict)
    async def do(job: JobDelivery[Any]) -> Any:
        return object()

    job = await queue.enqueue({})
    async with stage.running(queue):
        assert await job.result(SOON) is None


async def test_waiting_for_a_result_ends_in_time(stage: Stage) -> None:
    job = await stage.jobs().enqueue({})
    with pytest.raises(TimeoutError):
        await job.result(50 * MS)


async def test_what_is_put_off_is_scheduled_and_what_is_said_beside_the_body_is_kept(stage: Stage) -> None:
    queue = stage.jobs()

    @queue.on(dict)
    async def do(job: JobDelivery[Any]) -> Any:
        if job.fence == 1:
            raise Snooze(timedelta(hours=1))
        return job.metadata

    job = await queue.enqueue(Message({}, headers={"tenant": "a"}))
    async with stage.running(queue):
        await came_to(job, JobStatus.SCHEDULED)
        assert (await job.info()).metadata == {"tenant": "a"}


async def test_a_kind_may_be_any_type(stage: Stage) -> None:
    class Mail(msgspec.Struct):
        to: str

    queue = stage.jobs()

    @queue.on(Mail)
    async def send(job: JobDelivery[Mail]) -> str:
        return job.body.to

    job = await queue.enqueue(Mail("a@example.org"))
    assert job.kind == "Mail"
    async with stage.running(queue):
        assert await job.result(SOON) == "a@example.org"
