"""A job that has moved is known for as long as it waits, however short its record is kept once it is done."""

import asyncio
from datetime import timedelta

import pytest

from penstock import JobOptions, JobStatus, Priority
from tests.support.stage import Stage

BOTH = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)
SHORT = JobOptions(keep=timedelta(seconds=1))
SOON = timedelta(milliseconds=10)


async def outlast_records() -> None:
    await asyncio.sleep(1.3)


@BOTH
async def test_a_job_that_waits_after_it_has_moved_is_not_taken_for_done(stage: Stage) -> None:
    queue = stage.jobs(options=SHORT)
    moved = await queue.enqueue({"n": 1}, priority=Priority.LOW)
    assert await moved.set_priority(Priority.HIGH)
    overdue = await queue.enqueue({"n": 2}, delay=SOON)
    hastened = await queue.enqueue({"n": 3}, delay=timedelta(hours=1))
    assert await hastened.run_now()
    await outlast_records()
    assert await moved.status() is JobStatus.QUEUED
    assert await overdue.status() is JobStatus.SCHEDULED
    assert await hastened.status() is JobStatus.QUEUED


@BOTH
async def test_a_job_that_waits_after_it_has_moved_stands_for_its_key(stage: Stage) -> None:
    queue = stage.jobs(options=SHORT)
    moved = await queue.enqueue({"n": 1}, unique_key="moved", priority=Priority.LOW)
    assert await moved.set_priority(Priority.HIGH)
    overdue = await queue.enqueue({"n": 2}, unique_key="overdue", delay=SOON)
    await outlast_records()
    assert (await queue.enqueue({"n": 3}, unique_key="moved")).id == moved.id
    assert (await queue.enqueue({"n": 4}, unique_key="overdue")).id == overdue.id
