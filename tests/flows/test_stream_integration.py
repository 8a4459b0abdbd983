"""The queue behind a worker's own verbs: enqueue works, dequeue gets the job, an ack empties the pending list."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from penstock import Job, JobStatus, Priority, RedisStreamBackend, Retry
from penstock.backend import keys
from penstock.errors import ConfigurationError, LeaseLostError
from tests.support.stage import Stage

BOTH = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)
SOON = timedelta(seconds=20)
MS = timedelta(milliseconds=1)


def connect(stage: Stage, name: str = "w1", **terms: Any) -> RedisStreamBackend:
    return RedisStreamBackend(stage.url, "workers", name, queue=stage.topic, **terms)


def pending(stage: Stage, stream: str) -> int:
    found: int = stage.admin.xpending(stream, "workers")["pending"]
    return found


@BOTH
async def test_enqueue_dequeue_and_ack(stage: Stage) -> None:
    async with connect(stage) as backend:
        stored = await backend.enqueue(Job(kind="email", payload={"to": "a@example.org"}, priority=Priority.HIGH))
        stream, _, entry_id = (stored.stream_id or "").rpartition("@")
        ((raw_id, fields),) = stage.admin.xrange(stream)
        assert raw_id.decode() == entry_id
        assert fields[b"job_id"].decode() == stored.id
        document = msgspec.json.decode(fields[b"data"])
        assert (document["kind"], document["payload"]) == ("email", {"to": "a@example.org"})

        job = await backend.dequeue(SOON)
        assert job is not None
        assert (job.id, job.kind, job.payload) == (stored.id, "email", {"to": "a@example.org"})
        assert (job.stream_id, job.priority, job.status) == (stored.stream_id, Priority.HIGH, JobStatus.RUNNING)
        assert pending(stage, stream) == 1

        assert await backend.ack_job(job.id, job.stream_id) is True
        assert pending(stage, stream) == 0
        assert stage.admin.xlen(stream) == 0
        assert await backend.ack_job(job.id, job.stream_id) is False
        assert await backend.dequeue() is None


@BOTH
async def test_priorities_come_in_order(stage: Stage) -> None:
    async with connect(stage) as backend:
        await backend.enqueue_batch([Job(kind="k", payload=p.value, priority=p) for p in reversed(Priority)])
        jobs = [await backend.dequeue(SOON) for _ in range(3)]
        assert [job.payload for job in jobs if job] == ["high", "normal", "low"]


@BOTH
async def test_what_a_crashed_consumer_held_is_recovered(stage: Stage) -> None:
    async with connect(stage) as backend:
        await backend.enqueue_batch([Job(kind="k", payload=n) for n in range(3)])
        for _ in range(3):
            assert await backend.dequeue(SOON) is not None
    async with connect(stage, "w2") as backend:
        assert await backend.recover(timedelta(hours=1)) == []
        found = await backend.recover(timedelta(0), count=2)
        assert [(job.payload, job.attempt) for job in found] == [(0, 2), (1, 2)]
        found += await backend.recover(timedelta(0))
        assert sorted(job.payload for job in found) == [0, 1, 2]
        for job in found:
            assert await backend.ack_job(job.id, job.stream_id or "") is True
    assert pending(stage, keys.lane(stage.topic, "normal")) == 0


async def test_a_job_that_failed_comes_again_or_is_given_up(stage: Stage) -> None:
    async with connect(stage, retry=Retry(attempts=2, initial=10 * MS, jitter=False)) as backend:
        await backend.enqueue_batch([Job(kind="k", payload="retry"), Job(kind="k", payload="bury")])
        first, second = await backend.dequeue(SOON), await backend.dequeue(SOON)
        assert first is not None
        assert second is not None
        await backend.retry_job(first)
        await backend.move_to_dlq(second, "no use")
        with pytest.raises(LeaseLostError):
            await backend.move_to_dlq(second, "twice")
        again = await backend.dequeue(SOON)
        assert again is not None
        assert (again.id, again.attempt) == (first.id, 2)
        assert (await backend.get_job(second.id)).error == "no use"
        stats = await backend.get_stats()
        assert (stats.queue_depth, stats.active_jobs, stats.dlq_depth) == (0, 1, 1)
        await backend.retry_job(again, reason="still not")
        assert (await backend.get_job(first.id)).status is JobStatus.DEAD


async def test_a_scheduled_job_and_progress_are_seen(stage: Stage) -> None:
    async with connect(stage) as backend:
        due = datetime.now(UTC) + timedelta(hours=1)
        later = await backend.enqueue(Job(kind="k", payload=1, due=due))
        assert later.status is JobStatus.SCHEDULED
        now = await backend.enqueue(Job(kind="k", payload=2, metadata={"tenant": "a"}))
        assert (await backend.get_stats()).queue_depth == 2
        job = await backend.dequeue(SOON)
        assert job is not None
        assert (job.id, job.metadata) == (now.id, {"tenant": "a"})
        await backend.update_progress(job.id, 50, "half")
        await stage.until(lambda: stage.admin.keys(f"*{job.id}"))
        seen = await backend.get_job(job.id)
        assert (seen.progress, seen.message, seen.status) == (50, "half", JobStatus.RUNNING)
        with pytest.raises(LeaseLostError):
            await backend.update_progress(later.id, 1)


async def test_nonsense_is_refused(stage: Stage) -> None:
    backend = connect(stage)
    with pytest.raises(ConfigurationError, match="not connected"):
        await backend.dequeue()
    async with backend:
        with pytest.raises(ConfigurationError, match="stream_id"):
            await backend.ack_job("x", "elsewhere@1-1")
        with pytest.raises(ConfigurationError, match="Job"):
            await backend.enqueue({"kind": "k"})  # type: ignore[arg-type]
        (refused,) = await backend.enqueue_batch([Job(payload=1)])
        assert "kind" in str(refused)
