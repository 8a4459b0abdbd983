"""One stream of a group, where this manager reads it: what has to be looked after between two reads."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import NamedTuple

from penstock.backend.entry import FetchedEntry
from penstock.delivery.duty import Duty
from penstock.delivery.janitor import Janitor
from penstock.delivery.outlook import Outlook
from penstock.delivery.promoter import Promoter
from penstock.errors import GroupMissingError

LOOK_SECONDS = 1.0
_SCAN_SECONDS = 5.0
_CLEAN_SECONDS = 30.0
_HANDED_BACK = timedelta(days=300)
"""Nothing else is idle for so long: what was handed back is marked so."""


class Ours(NamedTuple):
    """An entry that is leased to us."""

    entry: FetchedEntry
    post: "Post"
    since: float
    """By the loop's clock; it may have been later."""


class Post:
    """Made within the event loop that it is used in. There is no task behind it: a read that runs does its upkeep."""

    def __init__(self, duty: Duty) -> None:
        self.duty = duty
        self.plan = duty.plan
        self._outlook = Outlook(duty)
        self._promoter = Promoter(duty)
        self._janitor = Janitor(duty)
        self._clock = asyncio.get_running_loop().time
        self._promote_at = self._look_at = self._scan_at = 0.0
        self._clean_at = self._clock() + _CLEAN_SECONDS
        self._asked_at: float | None = None

    async def enter(self) -> None:
        """Make sure that the stream, its group and the group's retry stream are there."""
        await self._outlook.enter()
        self._look_at = self._clock() + LOOK_SECONDS

    @property
    def is_paused(self) -> bool:
        """Whether somebody has paused the group on this stream."""
        sighting = self._outlook.sighting
        return sighting is not None and sighting.paused

    def expect(self, seconds: float) -> None:
        """A delivery was parked that is due then."""
        self._promote_at = min(self._promote_at, self._clock() + seconds)

    def scan_soon(self) -> None:
        """Entries were handed back: the next read looks for them."""
        self._scan_at = 0.0

    @property
    def next_upkeep(self) -> float:
        """When `upkeep` has something to do again, by the loop's clock."""
        return min(self._promote_at, self._look_at, *([] if self.is_paused else [self._scan_at]))

    async def upkeep(self, room: int, running: Sequence[str]) -> list[Ours]:
        """Whatever is due: retries become ready, losses are noticed, old things go.

        Returns up to `room` entries that others had taken and handed back. Those in `running` stay as they are.
        """
        if self._promote_at <= self._clock():
            self._promote_at = self._clock() + await self._promoter.promote()
        if self._look_at <= self._clock():
            self._look_at = self._clock() + LOOK_SECONDS
            await self._outlook.look()
        if self._clean_at <= self._clock():
            self._clean_at = self._clock() + _CLEAN_SECONDS
            await self._janitor.clean()
        if self._scan_at > self._clock() or self.is_paused or not room:
            return []
        return await self._scan(room, running)

    async def read(self, count: int, timeout: timedelta) -> list[Ours]:
        """New entries and retries that are due, up to `count` of each.

        Cancelled, it loses nothing: what the server has given comes with the next one.
        """
        plan, now = self.plan, self._clock()
        # A read that was cancelled is still under way at the server, and this one takes its answer up.
        asked_at = now if self._asked_at is None else self._asked_at
        self._asked_at = asked_at
        try:
            entries = await self.duty.backend.read_new(plan.streams, plan.group, plan.consumer, count, timeout)
        except GroupMissingError:
            self._asked_at = None
            await self._outlook.restore()
            return []
        # An answer that is still to come was not there yet when this call began.
        self._asked_at = None if entries else now
        return [Ours(entry, self, asked_at) for entry in entries]

    async def _scan(self, room: int, running: Sequence[str]) -> list[Ours]:
        plan, now = self.plan, self._clock()
        self._scan_at = now + _SCAN_SECONDS
        found: list[FetchedEntry] = []
        for stream in plan.streams:
            if found:
                break  # what a second call meets must not hide what the first has taken
            with suppress(GroupMissingError):  # the read meets it too, and sees to it
                found = await self.duty.backend.reclaim_idle(
                    stream, plan.group, plan.consumer, _HANDED_BACK, room, running=running
                )
        if found:
            self._scan_at = 0.0  # there may be more
        return [Ours(entry, self, now) for entry in found]
