"""An app with handlers that want a process of their own, as `penstock run` finds it: here, and in each process."""

import os
import signal
import time
from datetime import timedelta
from typing import Any

from penstock import JobDelivery, JobOptions, JobQueue, Penstock, Reject, Retry, Snooze

QUEUE = "CRUNCHING_QUEUE"
RESULTS = "CRUNCHING_RESULTS"


def declare(app: Penstock, name: str, *, results: bool = True, impatient: bool = False) -> JobQueue:
    """`impatient`: one attempt of a few seconds. The start of a process, which may take long, is part of them."""
    timeout = timedelta(seconds=6 if impatient else 40)
    options = JobOptions(timeout=timeout, scan=timedelta(milliseconds=200), results=results)
    retry = Retry(attempts=1 if impatient else 2, initial=timedelta(milliseconds=10), jitter=False)
    queue = app.jobs(name, retry=retry, lease=timedelta(seconds=1), options=options)
    queue.on(dict, process=True)(crunch)
    return queue


def crunch(job: JobDelivery[dict[str, Any]]) -> Any:
    what = job.body["do"]
    if what == "facts":
        return [os.getpid(), job.id, job.attempt, job.queue, job.priority.value, job.metadata]
    if what == "compute":
        return sum(range(10**6))
    if what == "raise":
        raise ValueError("no such thing")
    if what == "reject":
        raise Reject("never")
    if what == "snooze" and job.fence == 1:
        raise Snooze(timedelta(milliseconds=10))
    if what in ("exit", "killed"):
        _die(what)
    if what in ("child that hangs", "child that stays"):
        _start_another(job, hangs=what == "child that hangs")
    if what == "exit once" and not job.redelivered:
        os._exit(5)
    if what in ("hang", "watch"):
        _wait(job, looks=what == "watch")
    return {"odd": object(), "large": "x" * 2_000_000}.get(what, what)


def _die(how: str) -> None:
    if how == "exit":
        os._exit(5)
    os.kill(os.getpid(), signal.SIGKILL)


def _start_another(job: JobDelivery[Any], *, hangs: bool) -> None:
    child = os.fork()
    if child == 0:
        time.sleep(30)
        os._exit(0)
    job.progress(30, f"in process {child}")
    if hangs:
        time.sleep(30)
    os._exit(5)


def _wait(job: JobDelivery[Any], *, looks: bool) -> None:
    job.progress(30, f"in process {os.getpid()}")
    while True:
        time.sleep(0.01)
        if looks:
            job.check()


app = Penstock.connect()
if name := os.environ.get(QUEUE):
    declare(app, name, results=os.environ.get(RESULTS) != "dropped")
