"""Verbs for groups and consumers, and for what became of a topic. The words are those of `backend/base.py`."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

from penstock.backend.entry import Trimmed, Waiting
from penstock.backend.facts import Awaited, TopicFacts
from penstock.backend.sighting import Consumer, GroupSighting


class LooksAfter(Protocol):
    """Verbs for groups and consumers, and for what became of a topic."""

    async def create_group(self, stream: str, group: str, start_id: str = "0") -> bool:
        """Make sure the group exists; True if this call created it. Atomic, idempotent.

        After a lost answer it is sent again, and finds the group there: then it is False although it was this call.
        Creates the stream too. `start_id` counts only for a new group: "0" delivers everything the stream still holds,
        "$" only what comes after this call, an entry id what comes after that entry. Whoever read for an earlier group
        of that name is fenced from then on.
        """
        ...

    async def watch(self, topic: str, group: str, known: GroupSighting | None = None) -> GroupSighting:
        """See how a group stands on a topic, or on its retry stream, and what was lost since the last look. Atomic.

        Gives the stream an epoch if it has none, and notes what it saw for `restore_group`. What one look tells, no
        other one tells, of any process: do not drop it. From the first look on, `read_new` of this topic by this
        backend counts what is gone unread before it reads on: some servers do not show it afterwards.

        A server that came back with older data, and was given new entries since, is found out by what it has lost:
        what `read_new` gave last, or the newest entry at the look before, if that is given. Not, if what was there
        before that entry is trimmed by now.
        """
        ...

    async def restore_group(self, topic: str, group: str, known: GroupSighting | None = None) -> tuple[str, bool]:
        """Create a group that vanished: where it starts, and whether the stream is the one of the last look.

        If it is, whatever was not settled at that look comes again; else everything does. The last look is anybody's,
        or, if the group was removed together with what was noted of it, yours. A group that is there is left
        alone, and its position returned. Whoever read for the earlier one is fenced. Atomic, idempotent.
        """
        ...

    async def pause(self, topic: str, group: str) -> None:
        """Ask all who read for this group to stop, until `resume`; `watch` tells them. Idempotent."""
        ...

    async def resume(self, topic: str, group: str) -> bool:
        """Take `pause` back; False if it was not paused. Idempotent."""
        ...

    async def obey(self, topic: str, group: str, *, paused: bool, epoch: str, command_id: str) -> bool:
        """`pause` or `resume`, as the entry of that id in a control topic of that epoch says. Atomic, idempotent.

        False, and nothing changes, if that entry or a later one was obeyed already, by anybody: however many read the
        commands, each at its own pace, the last one counts. After a lost answer it is sent again, and may be False then
        although it was this call.
        """
        ...

    async def register(self, topic: str) -> None:
        """Note that this topic is one of ours. Idempotent."""
        ...

    async def topics(self) -> list[str]:
        """Every topic that was registered, sorted; it need not exist (any more)."""
        ...

    async def inspect(self, topic: str) -> TopicFacts:
        """Everything there is to know of a topic and its groups, for those who look on. Changes nothing.

        Takes as long as there are groups and consumers, however many entries are stored, pending or parked. Up to 64
        groups, fewer if the entries they come to next are large, are seen at one moment together with the topic; their
        consumers a moment later. The group that holds the epoch is not among them.
        """
        ...

    async def read_parked(self, topic: str, group: str, count: int = 100) -> list[Waiting]:
        """Up to `count` deliveries that wait for their next attempt, those that are due first. Changes nothing.

        Fewer come if they are large, about 8 MiB. What cannot be opened is left out: `promote` will tell of it.
        """
        ...

    async def awaited(self, topic: str, group: str) -> Awaited:
        """What waits for the group, also for one that nobody has read with yet, or that is gone. Changes nothing."""
        ...

    async def consumers(self, stream: str, group: str) -> list[Consumer]:
        """Everybody who reads, or once read, for the group."""
        ...

    async def forget_idle(self, stream: str, group: str, idle: timedelta, limit: int = 100) -> int:
        """Remove up to `limit` consumers that hold nothing and were idle so long; returns how many. Idempotent.

        Atomic for each: none that holds entries is ever removed. One that merely waits comes back with its next read.
        """
        ...

    async def forget_consumer(self, stream: str, group: str, consumer: str) -> bool:
        """Drop what we keep for a consumer, and remove it from the group if it holds nothing. Idempotent.

        False: it still holds entries and stays, so that they can be reclaimed.
        """
        ...

    async def trim(self, topic: str, floor: str, limit: int = 1000, *, max_entries: int | None = None) -> Trimmed:
        """Drop entries older than `floor` that every group has settled and every durable cursor has passed.

        If there are more than `max_entries` then, younger ones go too, as many as are too many, the oldest first; but
        none that somebody has not settled or passed. Looks at about `limit` entries; repeat while it removes any.
        Atomic with the look at the groups, and with the count. A topic that nobody reads yet is not trimmed.
        """
        ...

    async def drop(self, stream: str, group: str, entry_ids: Sequence[str]) -> int:
        """Delete entries that `group` has settled, unless another group or a durable cursor reads the stream.

        Returns how many; 0 leaves them for `trim`. Atomic with the look at the others. Idempotent.
        """
        ...

    async def cut(self, topic: str, max_entries: int, limit: int = 1000) -> int:
        """Drop the oldest entries beyond `max_entries`, whoever still needs them; returns how many.

        What a group had not read is lost to it, and `watch` tells; what it holds comes back as `lost`. Drops nodes of
        the stream as a whole, so up to a node's entries (100, or `stream-node-max-entries`) more may stay, and no more
        than `limit` at a time: repeat while it drops any. Atomic.
        """
        ...
