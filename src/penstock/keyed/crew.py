"""The partitions that this process has: as many as its share, given up and taken as others come and go."""

import asyncio
from collections.abc import Callable

from penstock.backend.pace import Pace
from penstock.changes.ground import Tools
from penstock.changes.taking import take
from penstock.changes.turn import Turn
from penstock.delivery.duty import Duty
from penstock.delivery.watchman import Watchman
from penstock.errors import ConfigurationError, PenstockError
from penstock.events import PauseChanged, Scope
from penstock.keyed.lane import Lane
from penstock.keyed.partitions import share_of

_LOOK_SECONDS = 0.4

Open = Callable[[int, Turn], Lane]


class Crew:
    """Lanes of one bus in one process. No two processes ever have the same one: each is had by its turn."""

    def __init__(self, topic: str, names: list[str], duty: Duty, tools: Tools, open: Open) -> None:
        self._topic = topic
        self._names = names
        self._duty = duty
        self._plan = duty.plan
        self._tools = tools
        self._open = open
        self._lanes: dict[int, Lane] = {}
        self._leaving: set[Lane] = set()
        self._watchman = Watchman(duty.plan.options.timeout.total_seconds(), lambda: [lane.slot for lane in self.lanes])
        self._pace = Pace()
        self._is_paused = False
        self._period = min(_LOOK_SECONDS, self._plan.lease.total_seconds() / 3)

    @property
    def lanes(self) -> list[Lane]:
        return [*self._lanes.values(), *self._leaving]

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop` is set; then drain."""
        self._watchman.start()
        stopping = asyncio.get_running_loop().create_task(stop.wait())
        try:
            while not stop.is_set():
                try:
                    await self._pace.ready()
                    await self._look()
                except ConfigurationError:
                    raise
                except PenstockError as error:
                    self._pace.failed()
                    self._duty.trouble(Scope.RECLAIM, error)
                else:
                    self._pace.succeeded()
                await asyncio.wait([stopping], timeout=self._period)
        finally:
            stopping.cancel()
            await self._drain()
            self._watchman.end()

    async def _look(self) -> None:
        """See who is there, and have as many partitions as is our share."""
        plan, backend = self._plan, self._tools.backend
        await check_partitions(self._tools, self._topic, len(self._names))
        members = await backend.join(self._topic, plan.group, plan.consumer, plan.lease)
        share = 0 if await self._paused() else share_of(len(self._names), members, plan.consumer)
        self._forget_those_over()
        for number in sorted(self._lanes, reverse=True)[: max(0, len(self._lanes) - share)]:
            lane = self._lanes.pop(number)
            lane.stop()
            self._leaving.add(lane)
        if len(self._lanes) < share:
            await self._take(share, members.index(plan.consumer))

    async def _take(self, share: int, rank: int) -> None:
        """Those that are free, beginning where others are likely not to begin."""
        count, plan, busy = len(self._names), self._plan, {lane.number for lane in self.lanes}
        for step in range(count):
            number = (rank * share + step) % count
            if number in busy:
                continue
            got = await take(self._tools.backend, self._names[number], plan.group, plan.consumer, plan.lease)
            if isinstance(got, Turn):
                lane = self._lanes[number] = self._open(number, got)
                lane.start()
                if len(self._lanes) >= share:
                    return

    def _forget_those_over(self) -> None:
        self._lanes = {number: lane for number, lane in self._lanes.items() if not lane.is_over}
        self._leaving = {lane for lane in self._leaving if not lane.is_over}

    async def _paused(self) -> bool:
        paused = await self._tools.backend.is_paused(self._topic, self._plan.group)
        if paused is not self._is_paused:
            self._is_paused = paused
            self._duty.tell(PauseChanged, paused)
        return paused

    async def _drain(self) -> None:
        seconds = self._plan.options.drain.total_seconds()
        ended = await asyncio.gather(*(lane.end(seconds) for lane in self.lanes))
        try:
            await self._tools.backend.leave(self._topic, self._plan.group, self._plan.consumer)
        except PenstockError as error:
            self._duty.trouble(Scope.RECLAIM, error)
        if not all(ended):
            text = (
                f"{ended.count(False)} handlers of {self._topic!r} did not end in time: their partitions go to others"
            )
            self._duty.trouble(Scope.DROP, PenstockError(f"{text} when their leases run out"))


async def check_partitions(tools: Tools, topic: str, count: int) -> None:
    """Refuse to go on where others divide the topic in another way: the order of its keys would be lost."""
    noted = await tools.backend.note_partitions(topic, count)
    if noted != count:
        raise ConfigurationError(
            f"topic {topic!r} has {noted} partitions, not {count}: use app.bus(..., partitions={noted}), or change the"
            " number with repartition() when all of them are empty"
        )
