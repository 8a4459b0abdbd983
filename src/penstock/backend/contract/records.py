"""Verbs for messages that are found by their id, and for what is kept of them. Only of a backend with a trail."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol

from penstock.backend.trail import Located, Placed, Unique
from penstock.message.message import Message


class KeepsRecords(Protocol):
    """Verbs for what moves between the topics of a trail."""

    async def locate(self, group: str, message_id: str, place: tuple[str, str] | None = None) -> Located:
        """Where a message is now, and what is in its record. Changes nothing; sees one moment.

        `place` is the stream and the entry it was put at, if that is known: the topic's, or the retry stream's. A
        message that never moved, and whose place is not known, is `GONE` like one that was settled: `find_near` may
        find it.
        """
        ...

    async def cancel(self, group: str, message_id: str, place: tuple[str, str] | None = None) -> tuple[Located, bool]:
        """Have nobody begin a message. Gives where it was, and whether it is certain that nobody will.

        One that runs is only marked: `note` tells whoever runs it. One that is settled stays what it is. Atomic,
        idempotent.
        """
        ...

    async def hasten(self, group: str, message_id: str, place: tuple[str, str] | None = None) -> tuple[Located, bool]:
        """Make a message that waits for its time ready now. Gives where it was, and whether it moved. Atomic."""
        ...

    async def reassign(
        self, group: str, message_id: str, topic: str, place: tuple[str, str] | None = None
    ) -> tuple[Located, bool]:
        """Move a message that nobody has begun to another topic of the trail. Gives where it was, and whether it moved.

        At the end of that topic; if it waits for its time, it goes on waiting there. Atomic.
        """
        ...

    async def put_unique(
        self, key: str, group: str, message: Message[Any], topic: str, unique: Unique, due: timedelta | datetime | None
    ) -> Placed | str:
        """Publish a message, or put it aside until it is `due`, unless another one stands for `key` already.

        Gives where it was put, which is another place than asked for if it stood for the key before; or the UUID of the
        one that stands for it. Whether that one still does is for `unique` to say: by where it is, or for how long.
        Atomic. After a lost answer it is sent again, which does no harm.
        """
        ...

    async def end_unique(self, key: str, message_id: str) -> None:
        """The message is done: it stands for `key` no more, if it did. Idempotent."""
        ...

    async def note(self, notes: Mapping[str, Mapping[str, bytes]], keep: timedelta) -> Sequence[str]:
        """Write to the records of these messages, by field; returns the ids of those that are to be cancelled.

        Each record lasts for `keep` from now on, or longer if it would anyhow. One without fields is only looked at.
        Idempotent.
        """
        ...

    async def let_go(self, message_id: str) -> None:
        """The message is settled, by `ack_many`: its record, if there is one, lasts no longer than of what is over."""
        ...
