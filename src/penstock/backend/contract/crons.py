"""Verbs for schedules that tick. Only of a backend with a trail: they are kept where its records are."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from penstock.backend.crons import CronChange, CronPlan, CronSheet
from penstock.message.message import Message


class KeepsCrons(Protocol):
    """Verbs for how far schedules have come."""

    async def look_at_crons(self, begin: Mapping[str, CronPlan] | None = None) -> CronSheet:
        """How every schedule of the trail stands; those in `begin` are first made what they are said to be there.

        One that is new, or has other times than before, begins now: none of its ticks is owed yet. Atomic, idempotent.
        """
        ...

    async def tick(
        self, topic: str, name: str, plan: CronPlan, last: int, up_to: int, ticks: Sequence[tuple[int, Message[Any]]]
    ) -> bool:
        """Append the messages of ticks that are due, unless somebody else did, and note that all `up_to` are done with.

        `ticks` are moments and what each asks for, in order. Nothing happens, and this is False, if the schedule is not
        what `plan` says, is paused, is not at `last` any more, or if `up_to` is not over by the server's clock. Up to
        100 ticks, or about a MiB of them, are atomic at a time, with the note on how far it came: so each comes once,
        whoever asks and however often. False also if this very call did it, and the answer was lost.
        """
        ...

    async def change_cron(self, name: str, change: CronChange) -> bool:
        """Pause, resume or forget a schedule; False if there is none of that name. Idempotent."""
        ...
