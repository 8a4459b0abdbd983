"""Verbs for those who share out the partitions of a topic. The words are those of `backend/base.py`."""

from datetime import timedelta
from typing import Protocol


class SharesOut(Protocol):
    """Verbs for those who share out the partitions of a topic."""

    async def join(self, topic: str, group: str, member: str, lease: timedelta) -> list[str]:
        """Be a member of the group for `lease`, by the server's clock; gives all who are, sorted. Idempotent."""
        ...

    async def leave(self, topic: str, group: str, member: str) -> None:
        """Be a member no more. Idempotent."""
        ...

    async def note_partitions(self, topic: str, count: int) -> int:
        """Into how many partitions the topic is divided: `count`, if nobody has said so before. Atomic, idempotent."""
        ...

    async def partitions(self, topic: str) -> int | None:
        """Into how many partitions the topic is divided; None if it is not. Changes nothing."""
        ...

    async def renumber_partitions(self, topic: str, was: int, count: int) -> bool:
        """Note another number; False, and nothing changes, if it is not `was`. Atomic."""
        ...

    async def is_paused(self, topic: str, group: str) -> bool:
        """Whether all who read for this group are asked to stop, see `pause`."""
        ...
