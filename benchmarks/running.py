"""Starting a measured process, watching it from the outside, and ending it."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import raw
from benchmarks.contestants import Contestant
from benchmarks.ground import Ground
from benchmarks.job import GROUP, TOPIC, Job, Ticks
from benchmarks.machine import busy_seconds, cpu_seconds, resident_mb, wait_until_quiet

_ROOT = Path(__file__).parent.parent
_OURS = ("bus", "jobs")
_LOOK_SECONDS = 0.001
_PATIENCE_SECONDS = 180.0


@dataclass(frozen=True)
class Consumed:
    """From the first handled message to the last ack."""

    rate: float
    worker_us: float
    server_us: float
    rss_mb: float

    others: float
    """Cores that something else was using meanwhile."""


@dataclass(frozen=True)
class _Look:
    clock: float
    count: int
    worker: float
    server: float
    machine: float


class Worker:
    """A consuming process and its counter."""

    def __init__(self, place: Ground, one: Contestant, ticks: Ticks, process: "subprocess.Popen[bytes]") -> None:
        self.place = place
        self.one = one
        self.ticks = ticks
        self.process = process

    def look(self) -> _Look:
        clock, count = time.perf_counter(), self.ticks.count
        return _Look(clock, count, cpu_seconds(self.process.pid), cpu_seconds(self.place.pid), busy_seconds())

    def wait_for(self, count: int) -> None:
        """Until that many messages were handled; raises if the process ends or takes too long."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while self.ticks.count < count:
            time.sleep(_LOOK_SECONDS)
            if self.process.poll() is not None:
                raise RuntimeError(f"{self.one.name} ended with {self.process.returncode} after {self.ticks.count}")
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self.one.name} handled {self.ticks.count} of {count} in {_PATIENCE_SECONDS} s")

    def wait_until_acked(self) -> None:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not self.one.is_idle(self.place.admin):
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self.one.name} did not ack all it handled in {_PATIENCE_SECONDS} s")

    def resident_mb(self) -> float:
        return resident_mb(self.process.pid)


def consume(place: Ground, one: Contestant, messages: int, more: tuple[bytes, ...] = ()) -> Consumed:
    """Fill an empty server, start one worker process, and time it."""
    load(place, one, messages, more)
    return consume_loaded(place, one, messages)


def consume_loaded(place: Ground, one: Contestant, messages: int) -> Consumed:
    """Start one worker process on a server that holds so many messages, and time it."""
    with worker(place, one) as running:
        running.wait_for(1)
        first = running.look()
        running.wait_for(messages)
        running.wait_until_acked()
        last = running.look()
        done, wall = messages - first.count, last.clock - first.clock
        worker_cpu, server_cpu = last.worker - first.worker, last.server - first.server
        return Consumed(
            rate=done / wall,
            worker_us=worker_cpu / done * 1e6,
            server_us=server_cpu / done * 1e6,
            rss_mb=running.resident_mb(),
            others=max(0.0, (last.machine - first.machine - worker_cpu - server_cpu) / wall),
        )


def load(place: Ground, one: Contestant, messages: int, more: tuple[bytes, ...] = ()) -> None:
    """An empty server, a group, and `messages` that `one` can read; `more` are fields beside id and payload."""
    place.empty()
    place.admin.xgroup_create(TOPIC, GROUP, "0", mkstream=True)
    if one.own_load:
        call(one, Job(one.side, "publish", place.url, one.mode, messages, uvloop=one.uvloop))
    else:
        asyncio.run(raw.publish(place.url, TOPIC, messages, 1000, more))


@contextmanager
def worker(place: Ground, one: Contestant, *, latency: int = 0, followers: int = 0) -> Iterator[Worker]:
    """A process that consumes; `latency` messages are timed one by one. `followers` is how many it is to have."""
    wait_until_quiet()
    with tempfile.TemporaryDirectory(prefix="bench-") as directory:
        ticks = Ticks(f"{directory}/ticks", slots=latency + 1)
        told = {"latency": latency > 0, "uvloop": one.uvloop, "followers": followers}
        job = Job(one.side, "consume", place.url, one.mode, 0, ticks.path, **told)
        errors = Path(directory, "errors")
        with errors.open("wb") as stderr:
            process = subprocess.Popen(
                _command(one, job), env=_environment(), cwd=_ROOT, stderr=stderr,
                stdout=subprocess.DEVNULL,
            )  # fmt: skip
        try:
            yield Worker(place, one, ticks, process)
        except RuntimeError as error:
            error.add_note(errors.read_text(errors="replace")[-2000:])
            raise
        finally:
            _end(process, one)


def call(one: Contestant, job: Job) -> Any:
    """Run a process to its end; returns what it printed."""
    done = subprocess.run(
        _command(one, job), env=_environment(), cwd=_ROOT, capture_output=True, text=True, timeout=600, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{one.name} failed to {job.action}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def _command(one: Contestant, job: Job) -> list[str]:
    return [one.python or sys.executable, "-W", "ignore", "-m", "benchmarks.child", job.as_json()]


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}


def _end(process: "subprocess.Popen[bytes]", one: Contestant) -> None:
    """Politely where politeness was promised: Penstock drains and leaves with 0."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM if one.side in _OURS else signal.SIGKILL)
    code = process.wait(60)
    if one.side in _OURS and code:
        raise RuntimeError(f"{one.name} ended with {code} after SIGTERM")
