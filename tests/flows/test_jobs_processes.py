"""Handlers in processes of their own: what they do there is their own affair, and never the end of a worker."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock import JobHandle, JobQueue, JobStatus, Message, Priority, events
from penstock.errors import ConfigurationError, JobDeadError
from penstock.jobs.processes import HandlerProcesses
from tests.support import crunching
from tests.support.stage import Stage

SOON = timedelta(seconds=40)


@asynccontextmanager
async def crunchers(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, size: int = 2, *, results: bool = True, impatient: bool = False
) -> AsyncIterator[JobQueue]:
    """A worker of the queue, with so many processes for its handlers."""
    monkeypatch.setenv(crunching.QUEUE, stage.topic)
    monkeypatch.setenv(crunching.RESULTS, "kept" if results else "dropped")
    command = (sys.executable, "-m", "penstock.cli.job_process", "tests.support.crunching:app")
    stage.app.processes = HandlerProcesses(size, command)
    queue = crunching.declare(stage.app, stage.topic, results=results, impatient=impatient)
    try:
        async with stage.running(queue):
            yield queue
    finally:
        stage.app.processes.close()


async def came_to(job: JobHandle, status: JobStatus) -> None:
    async with asyncio.timeout(40):
        while await job.status() is not status:
            await asyncio.sleep(0.005)


async def told_of(job: JobHandle) -> int:
    """The process that its handler speaks of."""
    async with asyncio.timeout(40):
        while not (info := await job.info()).message.startswith("in process"):
            await asyncio.sleep(0.01)
    return int(info.message.rpartition(" ")[2])


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def test_a_handler_runs_elsewhere_and_knows_its_job(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    async with crunchers(stage, monkeypatch) as queue:
        job = await queue.enqueue(Message({"do": "facts"}, headers={"tenant": "a"}), priority=Priority.LOW)
        pid, *facts = await job.result(SOON)
        assert pid != os.getpid()
        assert facts == [job.id, 1, stage.topic, "low", {"tenant": "a"}]
        numbers = [await queue.enqueue({"do": "compute"}) for _ in range(6)]
        assert {await one.result(SOON) for one in numbers} == {sum(range(10**6))}
        pids = {(await (await queue.enqueue({"do": "facts"})).result(SOON))[0] for _ in range(4)}
        assert len(pids) <= 2


async def test_what_it_raises_counts_as_if_raised_here(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    async with crunchers(stage, monkeypatch) as queue:
        wrong, never, later = [await queue.enqueue({"do": do}) for do in ("raise", "reject", "snooze")]
        with pytest.raises(JobDeadError, match="given up: ValueError: no such thing"):
            await wrong.result(SOON)
        with pytest.raises(JobDeadError, match="given up: never"):
            await never.result(SOON)
        assert await later.result(SOON) == "snooze"
        (letter,) = [one async for one in queue.dead if one.id == wrong.id]
        assert "in crunch" in letter.traceback
    assert [one.attempt for one in stage.told(events.Failed) if one.id == wrong.id] == [1, 2]


@pytest.mark.parametrize(("do", "why"), [("odd", "cannot be written"), ("large", "the limit is 1048576")])
async def test_a_result_that_cannot_be_kept_gives_the_job_up_at_once(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, do: str, why: str
) -> None:
    async with crunchers(stage, monkeypatch) as queue:
        job = await queue.enqueue({"do": do})
        with pytest.raises(JobDeadError, match=f"returned cannot be kept: .*{why}"):
            await job.result(SOON)
        assert (await job.info()).attempt == 1


async def test_a_result_that_nobody_wants_may_be_anything(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    async with crunchers(stage, monkeypatch, results=False) as queue:
        assert await (await queue.enqueue({"do": "odd"})).result(SOON) is None


@pytest.mark.parametrize(("do", "how"), [("exit", "left with exit code 5"), ("killed", "was ended by SIGKILL")])
async def test_a_job_that_kills_its_process_is_dead_after_its_budget(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, do: str, how: str
) -> None:
    async with crunchers(stage, monkeypatch) as queue:
        innocent = [await queue.enqueue({"do": "compute"}) for _ in range(10)]
        job = await queue.enqueue({"do": do}, priority=Priority.HIGH)
        with pytest.raises(JobDeadError, match=how):
            await job.result(SOON)
        for one in innocent:
            await one.result(SOON)
    assert {one.id for one in stage.told(events.Failed)} == {job.id}
    assert (await job.info()).attempt == 2


async def test_a_job_that_killed_its_process_once_is_done_in_another(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with crunchers(stage, monkeypatch, size=1) as queue:
        assert await (await queue.enqueue({"do": "exit once"})).result(SOON) == "exit once"


async def test_a_handler_that_hangs_is_killed_at_its_timeout(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    async with crunchers(stage, monkeypatch, size=1, impatient=True) as queue:
        job = await queue.enqueue({"do": "hang"})
        pid = await told_of(job)
        behind = await queue.enqueue({"do": "compute"})
        with pytest.raises(JobDeadError, match="HandlerTimeoutError"):
            await job.result(SOON)
        assert await behind.result(SOON) == sum(range(10**6))
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    assert stage.told(events.HandlerStuck) == []


async def test_what_a_handler_has_started_is_killed_with_it(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    async with crunchers(stage, monkeypatch, size=1, impatient=True) as queue:
        child = await told_of(await queue.enqueue({"do": "child that hangs"}))
        assert is_running(child)
        await stage.until(lambda: stage.told(events.Failed), within=20)
        await stage.until(lambda: not is_running(child))


async def test_a_process_that_leaves_others_behind_is_known_to_be_dead(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with crunchers(stage, monkeypatch, size=1) as queue:
        job = await queue.enqueue({"do": "child that stays"})
        child = await told_of(job)
        with pytest.raises(JobDeadError, match="left with exit code 5"):
            await job.result(SOON)
        os.kill(child, signal.SIGKILL)


async def test_a_job_that_is_cancelled_is_asked_to_end(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    async with crunchers(stage, monkeypatch, size=1) as queue:
        job = await queue.enqueue({"do": "watch"})
        await came_to(job, JobStatus.RUNNING)
        assert await job.cancel() is JobStatus.RUNNING
        await came_to(job, JobStatus.CANCELLED)
        assert await (await queue.enqueue({"do": "compute"})).result(SOON) == sum(range(10**6))
    assert stage.told(events.Failed) == []


async def test_processes_end_with_their_worker(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    async with crunchers(stage, monkeypatch) as queue:
        pid = (await (await queue.enqueue({"do": "facts"})).result(SOON))[0]
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        await asyncio.sleep(0.01)
    pytest.fail(f"process {pid} is still there")


async def test_without_processes_such_a_queue_does_not_run(stage: Stage) -> None:
    queue = crunching.declare(stage.app, stage.topic)
    with pytest.raises(ConfigurationError, match="penstock run --processes"):
        await stage.app.run(queue, signals=False)


async def test_a_process_is_for_plain_functions(stage: Stage) -> None:
    async def handle(job: Any) -> None: ...

    with pytest.raises(ConfigurationError, match="plain function"):
        stage.jobs().on(dict, process=True)(handle)


async def test_nothing_outlives_a_worker_that_is_killed(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(crunching.QUEUE, stage.topic)
    monkeypatch.setenv("PENSTOCK_URL", stage.url)
    command = (sys.executable, "-c", "from penstock.cli.main import main; main()", "run")
    worker = await asyncio.create_subprocess_exec(*command, "tests.support.crunching:app", "--processes", "1")
    try:
        child = await told_of(await crunching.declare(stage.app, stage.topic).enqueue({"do": "child that hangs"}))
    finally:
        worker.kill()
        await worker.wait()
    await stage.until(lambda: not is_running(child))
