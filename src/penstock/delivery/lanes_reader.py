"""Reads several lanes for one crew: the most urgent first, and no more than there are idle runners for."""

import asyncio
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

from penstock.backend.entry import Helping, Malformed
from penstock.backend.sheaf import Sheaf
from penstock.delivery.crew import Crew
from penstock.delivery.holdings import Batch
from penstock.delivery.lane import Lane
from penstock.delivery.outcome import Snooze
from penstock.delivery.reader import BLOCK, Reader
from penstock.delivery.shares import Shares, Turn
from penstock.delivery.together import to_the_end
from penstock.errors import PenstockError

_NO_ROOM = Snooze(timedelta(0), "it came together with more than there was room for")


class _Asked(NamedTuple):
    most: int
    turn: Turn
    helping: Helping


class LanesReader(Reader):
    """The reading loop of a queue. What is asked for ahead has its runners set aside for it."""

    def __init__(self, lanes: Sequence[Lane], crew: Crew, shares: Shares) -> None:
        super().__init__(lanes[0], crew)
        self._lanes = lanes
        self._shares = shares
        self._topics = [lane.plan.topic for lane in lanes]
        self._by_stream = {stream: number for number, lane in enumerate(lanes) for stream in lane.plan.streams}
        self._ahead: _Asked | None = None
        """What was asked for ahead."""

    async def _may_read(self) -> None:
        for lane in self._lanes:
            await lane.holdings.fewer_than(self._most_held)
        while all(lane.outlook.is_paused for lane in self._lanes):
            waiting = [asyncio.ensure_future(lane.outlook.not_paused()) for lane in self._lanes]
            try:
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for one in waiting:
                    one.cancel()

    @property
    def _finished(self) -> int:
        return sum(lane.holdings.finished for lane in self._lanes)

    async def _read(self, count: int) -> None:
        open_lanes = [number for number, lane in enumerate(self._lanes) if not lane.outlook.is_paused]
        if not open_lanes:
            return
        # An answer to what was asked ahead may have waited for us since then, with nobody renewing its leases.
        leased_at = self._read_at if self._ahead else time.monotonic()
        now, ahead = self._portions(count, open_lanes)
        plan = self._plan
        sheaves = await self._lane.duty.backend.read_lanes(
            self._topics,
            plan.group,
            plan.consumer,
            now.helping,
            BLOCK,
            ahead=None if ahead is None else ahead.helping,
        )
        self._read_at = time.monotonic()
        is_full = self._learn(sheaves, now, count)
        self._ahead = ahead if is_full else None
        is_stale = self._read_at - leased_at > plan.lease.total_seconds() / 3
        if self._lane.intake.looks_at_each:  # which takes round trips
            await to_the_end(self._hand_over(sheaves, leased_at, is_stale=is_stale))
        else:
            await self._hand_over(sheaves, leased_at, is_stale=is_stale)

    def _learn(self, sheaves: Sequence[Sheaf], asked: _Asked, room: int) -> bool:
        """From what came of what was asked for, while there was `room` for so many; True if there may be more."""
        taken = dict.fromkeys(range(len(self._lanes)), 0)
        for sheaf in sheaves:
            taken[self._by_stream[sheaf.stream]] += len(sheaf)
        total = sum(taken.values())
        is_full = total >= asked.most
        self._shares.took(taken, asked.turn, asked.most)
        if total:
            mean_bytes = max(sheaf.mean_bytes for sheaf in sheaves)
            self._appetite.got(room if is_full else total, room, mean_bytes)
        return is_full

    def _portions(self, count: int, lanes: Sequence[int]) -> "tuple[_Asked, _Asked | None]":
        """What to take now, and what to ask for ahead: together no more than the idle runners."""
        if self._ahead is not None:
            now, left = self._ahead, count - self._ahead.most
        elif self._appetite.may_read_ahead(count):
            now, left = self._asking((count + 1) // 2, lanes), count // 2
        else:
            now, left = self._asking(count, lanes), 0
        return now, self._asking(left, lanes, now.turn) if left > 0 else None

    def _asking(self, count: int, lanes: Sequence[int], before: Turn | None = None) -> "_Asked":
        turn = self._shares.turn(count, lanes, before)
        return _Asked(count, turn, Helping(count, (*turn.owed, *turn.rest), self._plan.throttle))

    async def _hand_over(self, sheaves: list[Sheaf], leased_at: float, *, is_stale: bool) -> None:
        room = self._crew.free
        for sheaf in sheaves:
            lane = self._lanes[self._by_stream[sheaf.stream]]
            batch = await self._taken(lane, sheaf, leased_at, is_stale=is_stale)
            if batch is None:
                continue
            if len(batch.ids) > room:
                put_off(batch, room)
            if room:
                self._crew.give(batch)
            room = max(0, room - len(batch.ids))

    async def _restore(self) -> None:
        for lane in self._lanes:
            try:
                await lane.outlook.mend()
            except PenstockError as error:
                self._tell(error)
                self._pace.failed()
        await self._pace.ready()


def put_off(batch: Batch, room: int) -> None:
    """Have the group read what is beyond `room` once more: others may have room for it."""
    entries = batch.take_all()
    batch.waiting = iter(entries[:room])
    for entry in entries[room:]:
        if isinstance(entry, Malformed):
            batch.lane.desk.malformed(batch, entry)
        else:
            batch.lane.desk.failed(batch, entry, _NO_ROOM)
