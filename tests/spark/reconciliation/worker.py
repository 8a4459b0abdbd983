"""A bus worker as in the fault tests, with a gallows at every step from the handler's begin to its durable end."""

import asyncio
import os
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from penstock.backend.redis import RedisBackend
from tests.fault import worker
from tests.fault.behaviour import BEHAVIOURS, Boom
from tests.fault.setup import WorkerSetup, read
from tests.spark.gallows import PLACE, step

_VERBS = ("complete", "_park", "_dead_letter", "promote", "reclaim_idle", "mark_start")
BUS_STEPS = (
    "handler-begun", "handler-ended",
    *(f"{verb.strip('_')}-{when}" for verb in _VERBS for when in ("before", "after")),
)  # fmt: skip
REPAIRED = "repaired"
"""What such a message needs was missing, and is there when it is replayed: it fails every time before that."""

_replay: ContextVar[str] = ContextVar("replay", default="")


async def _repaired(body: dict[str, Any], attempt: int, redelivered: bool) -> None:
    if not _replay.get():
        raise Boom("not before it is replayed")


class DoomedWorker(worker.Worker):
    async def handle(self, event: Any) -> None:
        step("handler-begun")
        replay = event.entry.state.replay
        _replay.set(replay)
        await super().handle(event)
        if replay:
            facts = {"replay": replay, "entry": event.entry.id}
            self._journal.write("seen", name="replay", id=event.id, group=self._setup.group, facts=facts)
        step("handler-ended")


def hang_over_the_bus() -> None:
    """From now on this process has a gallows before and after whatever it tells the server of its deliveries."""
    for verb in _VERBS:
        setattr(RedisBackend, verb, _stepping(verb.strip("_"), getattr(RedisBackend, verb)))


def _stepping(name: str, verb: Callable[..., Any]) -> Callable[..., Any]:
    async def stepping(*args: Any, **options: Any) -> Any:
        step(f"{name}-before")
        found = await verb(*args, **options)
        step(f"{name}-after")
        return found

    return stepping


def run(setup: str) -> None:
    told = read(WorkerSetup, setup)
    os.environ[PLACE] = told.directory
    BEHAVIOURS[REPAIRED] = _repaired
    worker.Worker = DoomedWorker  # type: ignore[misc]
    hang_over_the_bus()
    asyncio.run(worker.main(told))
