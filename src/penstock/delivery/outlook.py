"""Watches over the stream and the group themselves: whether they are still those we knew, and what was lost."""

import asyncio

from penstock.backend import keys
from penstock.backend.facts import position
from penstock.backend.sighting import GroupSighting
from penstock.delivery.duty import Duty
from penstock.events import GroupRestored, Lost, PauseChanged


class Outlook:
    """What is known of the topic and its group, refreshed about once a second."""

    def __init__(self, duty: Duty) -> None:
        self._duty = duty
        self._plan = duty.plan
        self._known: GroupSighting | None = None
        self._told_replaced = False
        self._running = asyncio.Event()
        self._running.set()

    @property
    def sighting(self) -> GroupSighting | None:
        """The last one."""
        return self._known

    async def enter(self) -> None:
        """Make sure that topic, group and retry stream are there; the plan's start is for a group nobody ever had."""
        plan, backend = self._plan, self._duty.backend
        seen = await backend.watch(plan.topic, plan.group)
        if not seen.group_exists:
            if seen.previous_epoch is None:
                await backend.create_group(plan.topic, plan.group, plan.start)
            else:
                await self.restore()
            seen = await backend.watch(plan.topic, plan.group)
        await backend.create_group(keys.retry(plan.topic, plan.group), plan.group)
        await backend.register(plan.topic)  # only now it is certain that there can be such a topic
        await self._saw(seen)

    async def not_paused(self) -> None:
        await self._running.wait()

    @property
    def is_paused(self) -> bool:
        return not self._running.is_set()

    async def look(self) -> None:
        """Look once, and tell listeners what has changed for the worse."""
        seen = await self._duty.backend.watch(self._plan.topic, self._plan.group, self._known)
        if seen.group_exists:
            await self._saw(seen)
        else:
            await self.restore()

    async def mend(self) -> None:
        """One of our groups is missing, on the topic or on its retry stream, or perhaps on neither: see to it."""
        await self.look()
        if await self._duty.backend.create_group(keys.retry(self._plan.topic, self._plan.group), self._plan.group):
            self._duty.tell(Lost, "0-0", "0-0", None, _RETRIES_GONE)

    async def _saw(self, seen: GroupSighting) -> None:
        known, self._known = self._known, seen
        await self._obey(paused=seen.paused)
        was_epoch = seen.previous_epoch or (known.epoch if known is not None else None)
        if was_epoch is not None and was_epoch != seen.epoch:
            if seen.missed:
                self._tell_missed(seen, seen.previous_last_delivered)
            if not self._told_replaced:
                self._tell_replaced(seen, known)
            self._told_replaced = False
            return
        if seen.fell_back_from is not None:
            self._duty.tell(Lost, seen.fell_back_to, seen.fell_back_from, None, _WENT_BACK)
        elif known is not None and known.newest_id is None and _position(seen.last_id) < _position(known.last_id):
            self._duty.tell(Lost, seen.last_id, known.last_id, None, _WENT_BACK)
        if seen.missed:
            is_behind = _position(seen.last_delivered) < _position(seen.first_id)
            self._tell_missed(seen, seen.first_id if is_behind else seen.last_delivered)
        if seen.deleted_unread is not None:
            since = min(seen.missed_since, seen.last_delivered, key=_position)
            self._duty.tell(Lost, since or "0-0", seen.deleted_unread, None, _DELETED)

    async def restore(self) -> None:
        """Make the group again after it vanished: where it was if the stream is the same, else from the beginning."""
        plan, known = self._plan, self._known
        start, same_epoch = await self._duty.backend.restore_group(plan.topic, plan.group, known)
        if await self._duty.backend.create_group(keys.retry(plan.topic, plan.group), plan.group):
            self._duty.tell(Lost, "0-0", "0-0", None, _RETRIES_GONE)
        self._duty.tell(GroupRestored, start, same_epoch)
        if not same_epoch and known is not None:
            self._duty.tell(Lost, known.low_water or "0-0", known.last_id or "0-0", None, _REPLACED)
            self._known = None
            self._told_replaced = True  # the next look finds the other epoch too

    def _tell_missed(self, seen: GroupSighting, until: str | None) -> None:
        since = seen.missed_since or "0-0"
        self._duty.tell(Lost, since, max(since, until, key=_position), seen.missed, _TRIMMED)

    def _tell_replaced(self, seen: GroupSighting, known: GroupSighting | None) -> None:
        low = seen.previous_low_water or (known.low_water if known is not None else None)
        last = (known.last_id if known is not None else None) or seen.previous_last_delivered
        self._duty.tell(Lost, low or "0-0", last or "0-0", None, _REPLACED)

    async def _obey(self, *, paused: bool) -> None:
        if paused is self._running.is_set():
            if paused:
                self._running.clear()
                plan = self._plan
                # The reader may be waiting for entries, and would run what it gets.
                await self._duty.backend.stop_reading(plan.streams, plan.group, plan.consumer)
            else:
                self._running.set()
            self._duty.tell(PauseChanged, paused)


def _position(id: str | None) -> tuple[int, int]:
    """For comparing; none at all comes before the first."""
    return position(id or "0-0")


_TRIMMED = "they were trimmed or deleted before the group had read them"
_REPLACED = "the stream was deleted, replaced or renamed away: what the group had not settled is gone with it"
_WENT_BACK = "entries that were there are not there any more: the server has lost its latest writes"
_RETRIES_GONE = "the group's retry stream was deleted: deliveries that were due for their next attempt are gone with it"
_DELETED = "they were trimmed or deleted before the group had read them; how many, the server does not tell"
