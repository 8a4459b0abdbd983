"""The measured process: `python -m benchmarks.child JOB`, where JOB is a `Job` as JSON. Prints what it measured."""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from importlib import import_module
from types import ModuleType
from typing import Any

from benchmarks.job import Job, Ticks
from benchmarks.load import payload

_READY_SECONDS = 30.0


def main(job: Job) -> None:
    side = import_module(f"benchmarks.sides.{job.side}")
    if job.action == "consume":
        side.consume(job, Ticks(job.ticks))
    elif job.action == "publish":
        wall, cpu = time.perf_counter(), time.process_time()
        side.publish(job)
        print(json.dumps({"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}))
    else:
        print(json.dumps({"start": job.run(pace(side, job))}))


async def pace(side: ModuleType, job: Job) -> int:
    """Send `job.messages` at `job.rate` per second to a worker that is awake; returns how many it had had before."""
    ticks = Ticks(job.ticks)
    async with side.sender(job) as send:
        sent = await _wake(send, ticks)
        begin = time.perf_counter()
        for number in range(job.messages):
            await asyncio.sleep(max(0.0, begin + number / job.rate - time.perf_counter()))
            await send(payload(number, time.monotonic_ns()))
        await _until(lambda: ticks.count >= sent + job.messages)
    return sent


async def _wake(send: Callable[[Any], Awaitable[Any]], ticks: Ticks) -> int:
    """Some messages first: connections are opened and code is loaded before the clock starts."""
    sent = 0
    deadline = time.monotonic() + _READY_SECONDS
    while ticks.count < 20:
        await send(payload(sent, time.monotonic_ns()))
        sent += 1
        await asyncio.sleep(0.02)
        if time.monotonic() > deadline:
            raise SystemExit(f"the worker handled {ticks.count} of {sent} messages in {_READY_SECONDS} s")
    await _until(lambda: ticks.count >= sent)
    return sent


async def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _READY_SECONDS
    while not condition():
        await asyncio.sleep(0.02)
        if time.monotonic() > deadline:
            raise SystemExit(f"messages are missing after {_READY_SECONDS} s")


if __name__ == "__main__":
    main(Job.from_json(sys.argv[1]))
