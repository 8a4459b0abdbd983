"""Verbs for those who read without a group. The words are those of `backend/base.py`."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Protocol

from penstock.backend.entry import Glimpse, Moved, Stored
from penstock.backend.survey import Position


class Bell(Protocol):
    """A connection of its own on which one caller at a time waits for news of topics."""

    async def rings(self, places: Mapping[str, str], timeout: timedelta) -> set[str]:
        """Wait until any of these topics has an entry behind the id given with it; gives those that have.

        None of them, if the time is up, or `wake` was called. A topic that does not exist has nothing; one that is
        something else than a stream, or that this user may not read, fails the call for all. All topics must be
        readable together, see `Follows.slot`.
        """
        ...

    async def wake(self) -> None:
        """End a wait at once, if this user may run CLIENT UNBLOCK; else it ends with its time.

        If nobody waits, the next wait ends at once.
        """
        ...

    def close(self) -> None:
        """Let go of the connection. A wait that is under way fails. Idempotent."""
        ...


class Follows(Protocol):
    """Verbs for those who read without a group."""

    def bell(self) -> Bell:
        """A new one; it connects when it is first used, and again after it broke."""
        ...

    def slot(self, topic: str) -> int:
        """Topics of the same number can be read in one request. Always 0 on a server that is not part of a cluster."""
        ...

    async def glimpse(self, topic: str, id: str, count: int) -> Glimpse:
        """How a topic stands, and up to `count` entries behind `id`, oldest first, at one and the same moment.

        Gives the stream an epoch if it has none, unless asked of a backend that is only `looking`: what it has then
        not, is empty. Changes nothing else.
        """
        ...

    async def read_before(self, topic: str, id: str | None, count: int) -> list[Stored]:
        """Up to `count` entries before `id`, or, without one, the last ones; newest first. Changes nothing."""
        ...

    async def find_near(self, topic: str, message_id: str, window: timedelta) -> tuple[str | None, Sequence[str]]:
        """Where a message of this UUID is: first for sure, then where it may be, the most likely first.

        It is sure as long as the server remembers the message as one that was published once. A UUIDv7 is looked for,
        in up to two thousand entries of either direction, fewer if they are large, `window` around the time that is in
        it; any other, in as many of the oldest and of the newest. What is found mentions the UUID, in whatever field.
        It takes one round trip. Changes nothing.
        """
        ...

    async def held_cursor(self, topic: str, name: str) -> Position | None:
        """Where the durable cursor stands; None if there is none. Changes nothing."""
        ...

    async def hold_cursor(self, topic: str, name: str, start: Position) -> Position:
        """Where the durable cursor stands, at `start` if it is new. From then on it holds back trimming. Idempotent."""
        ...

    async def move_cursor(self, topic: str, name: str, to: Position) -> Moved:
        """Move a durable cursor forward, or to a newer stream of that name. Atomic, idempotent.

        It moves back as well where it stands behind the last id that the server knows of: that has fallen back.
        """
        ...

    async def place_cursor(self, topic: str, name: str, to: Position) -> bool:
        """Put a durable cursor to any place, for an operator; False if there is none. Atomic, idempotent.

        Whoever reads with it does not notice, and moves it on from its own place.
        """
        ...

    async def forget_cursor(self, topic: str, name: str) -> bool:
        """Remove a durable cursor, so that it holds back nothing any more; False if there is none. Idempotent."""
        ...
