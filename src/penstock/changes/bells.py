"""Waiting for news of many topics on one connection: one for all that can be read together."""

import asyncio
from datetime import timedelta

from penstock.backend.base import StreamBackend
from penstock.backend.contract.following import Bell
from penstock.backend.facts import position as order
from penstock.backend.pace import Pace
from penstock.errors import PenstockError

LOOK_AGAIN = timedelta(seconds=5)
"""How long a silent topic is left alone: a stream that was replaced by an older one rings no bell."""

_GATHER_SECONDS = 0.001


class Bells:
    """Of one connected app."""

    def __init__(self, backend: StreamBackend) -> None:
        self._backend = backend
        self._ringers: dict[int, _Ringer] = {}

    async def rings(self, topic: str, id: str) -> bool:
        """Wait until the topic has an entry behind this id, or may have: whoever is told looks for itself.

        False after a few seconds without news.
        """
        slot = self._backend.slot(topic)
        if slot not in self._ringers:
            self._ringers[slot] = _Ringer(self._backend.bell())
        return await self._ringers[slot].rings(topic, id)

    async def aclose(self) -> None:
        for ringer in self._ringers.values():
            await ringer.aclose()
        self._ringers.clear()


class _Ringer:
    def __init__(self, bell: Bell) -> None:
        self._bell = bell
        self._waiting: dict[asyncio.Future[bool], tuple[str, str]] = {}
        self._pace = Pace()
        self._task: asyncio.Task[None] | None = None
        self._waking: asyncio.Task[None] | None = None
        self._wake_due = False

    async def rings(self, topic: str, id: str) -> bool:
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[bool] = loop.create_future()
        self._waiting[waiter] = topic, id
        if self._task is None:
            self._task = loop.create_task(self._run())
        else:
            self._wake()
        try:
            async with asyncio.timeout(LOOK_AGAIN.total_seconds()):
                return await waiter
        except TimeoutError:
            return False
        finally:
            self._waiting.pop(waiter, None)

    async def aclose(self) -> None:
        self._bell.close()
        tasks = [task for task in (self._task, self._waking) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _wake(self) -> None:
        self._wake_due = True
        if self._waking is None or self._waking.done():
            self._waking = asyncio.get_running_loop().create_task(self._keep_waking())

    async def _keep_waking(self) -> None:
        while self._wake_due:  # a wait that begins while an earlier one is being ended may not know of the last change
            self._wake_due = False
            await self._bell.wake()

    async def _run(self) -> None:
        try:
            while self._waiting:
                await self._round()
        finally:
            self._task = None

    async def _round(self) -> None:
        places: dict[str, str] = {}
        for topic, id in self._waiting.values():
            places[topic] = min(places.get(topic, id), id, key=order)
        try:
            await self._pace.ready()
            rung = await self._bell.rings(places, LOOK_AGAIN)
        except PenstockError:
            # One of them may spoil it for all: who looks for itself will see.
            self._pace.failed()
            rung = set(places)
        else:
            self._pace.succeeded()
        for waiter, (topic, _) in list(self._waiting.items()):
            if topic in rung:
                del self._waiting[waiter]
                if not waiter.done():
                    waiter.set_result(True)
        if self._waiting:
            await asyncio.sleep(_GATHER_SECONDS)  # most who were told are back soon, and need not interrupt the rest
