"""The verbs of a stream server, and what each of them promises.

*Atomic* means all or nothing on the server, whatever dies when. *Idempotent* means that doing it again after a lost
reply does no harm. Streams are named by their key: a topic, or a group's retry stream (`keys.retry`). Every verb raises
`ConfigurationError` for arguments that cannot work, `ServerUnreachableError` if no answer came, and the other kinds of
`ServerError` and `TopicError` for what the server refused.
"""

from collections.abc import Collection, Iterable, Sequence
from datetime import timedelta
from typing import Any, Protocol

from penstock.backend.entry import DeadLetter, FetchedEntry, Park, Published, Settled, Trimmed
from penstock.errors import PenstockError
from penstock.message.message import Message
from penstock.options import DEDUPE_WINDOW


class StreamBackend(Protocol):
    """What the delivery engine needs of a server that keeps streams."""

    async def create_group(self, stream: str, group: str, start_id: str = "0") -> bool:
        """Make sure the group exists; True if this call created it. Atomic, idempotent.

        After a lost answer it is sent again, and finds the group there: then it is False although it was this call.
        Creates the stream too. `start_id` counts only for a new group: "0" delivers everything the stream still holds,
        "$" only what comes after this call, an entry id what comes after that entry. Whoever read for an earlier group
        of that name is fenced from then on.
        """
        ...

    async def publish(self, stream: str, message: Message[Any]) -> str:
        """Append a message and return its entry id, once the server has it. Atomic; not idempotent.

        It is sent once. If the connection breaks before the answer, `PublishUnknownError` carries the message's id.
        Calls that run at the same time share one write, in the order they were made.
        """
        ...

    async def publish_many(self, stream: str, messages: Iterable[Message[Any]]) -> list[str | PenstockError]:
        """Append messages in order; one result for each, its entry id or what went wrong with it.

        Each is written or not by itself: one that cannot be encoded does not keep the others from being sent. They are
        taken as they are sent, so what a generator gives need not fit into memory; if it raises, so does this, and what
        it gave before may or may not have been sent.
        """
        ...

    async def publish_once(
        self, stream: str, messages: Sequence[Message[Any]], *, window: timedelta = DEDUPE_WINDOW
    ) -> list[Published]:
        """Append the messages whose id was not published to this stream within `window`. Idempotent.

        Up to 100 messages, or about a MiB of them, are atomic at a time. Sent again by itself after a lost connection,
        and safe to call again after `PublishUnknownError`, as long as the window lasts.
        """
        ...

    async def read_new(
        self, stream: str, group: str, consumer: str, count: int, timeout: timedelta, *, ahead: bool = False
    ) -> list[FetchedEntry]:
        """Lease up to `count` entries that the group never had, oldest first; waits up to `timeout` for the first.

        One result per entry: one that cannot be read is `Malformed` beside its neighbours. All of them are pending for
        `consumer` until settled, also if we die before we see them. A call that is cancelled loses nothing: what it was
        given comes with the consumer's next read. After an error the next read waits a while before it asks again. With
        `ahead`, a full batch makes the backend ask for the next one before it returns this one, and the next read gets
        that answer, even if it is empty and entries have come since. Reads of one consumer take turns. Its name must be
        its alone: two processes of one name are not told apart.
        """
        ...

    async def reclaim_idle(
        self, stream: str, group: str, consumer: str, min_idle: timedelta, count: int, *, running: Collection[str] = ()
    ) -> list[FetchedEntry]:
        """Take over up to `count` entries that nobody has touched for `min_idle`, oldest first. Atomic.

        Two callers never get the same entry, and the former owner's settle is fenced from then on. The consumer's own
        entries count too, since it may have died under this name, except those in `running`. Looks at a bounded part of
        the pending list and goes on from there in the next call. Entries that were trimmed or deleted while pending
        come on top, as `Malformed` with `lost` set: everybody sees them, until somebody acks or dead-letters them.
        """
        ...

    async def read_range(self, stream: str, start: str, end: str, count: int) -> list[FetchedEntry]:
        """Up to `count` entries from `start` to `end`, both as XRANGE takes them, for no group. Changes nothing."""
        ...

    async def settle(
        self,
        stream: str,
        group: str,
        consumer: str,
        *,
        done: Sequence[FetchedEntry] = (),
        parked: Sequence[Park] = (),
        dead: Sequence[DeadLetter] = (),
    ) -> Settled:
        """Make outcomes durable: ack, park until due, or move to the dead letters. Idempotent; atomic per entry.

        Acts only on entries that `consumer` still holds. Those that are gone, and those that another consumer holds by
        now, are left alone and reported. A parked delivery or dead letter is stored before its entry is released, so a
        crash between leaves it pending. Acking works on a server that is out of memory; parking and dead-lettering are
        refused there, and the entries stay pending. What is settled in a retry stream is deleted from it.
        """
        ...

    async def ack(self, stream: str, group: str, message_id: str) -> None:
        """As `ack_many`, for one entry."""
        ...

    async def ack_many(self, stream: str, group: str, message_ids: Sequence[str]) -> int:
        """Mark entries done for the group, whoever holds them; returns how many were pending. Idempotent.

        Not fenced: ids that are unknown, or settled already, are ignored. If it raises, none or some were acked.
        """
        ...

    async def renew(self, stream: str, group: str, consumer: str, entry_ids: Sequence[str]) -> list[str]:
        """Start the leases of these entries anew; returns the ids that are not `consumer`'s any more. Idempotent."""
        ...

    async def release(self, stream: str, group: str, consumer: str, entry_ids: Sequence[str]) -> list[str]:
        """Hand entries back, for anybody to reclaim at once; returns ids that are not ours any more. Idempotent."""
        ...

    async def promote(self, topic: str, group: str, limit: int = 100) -> tuple[int, timedelta | None]:
        """Make up to `limit` parked deliveries that are due ready again, on the group's retry stream. Atomic.

        Returns how many were taken, and how long it is until the next one is due, by the server's clock; None if
        nothing is parked.
        """
        ...

    async def forget_consumer(self, stream: str, group: str, consumer: str) -> bool:
        """Drop what we keep for a consumer, and remove it from the group if it holds nothing. Idempotent.

        False: it still holds entries and stays, so that they can be reclaimed.
        """
        ...

    async def trim(self, topic: str, floor: str, limit: int = 1000) -> Trimmed:
        """Drop entries older than `floor` that every group has settled and every durable cursor has passed.

        Looks at about `limit` entries; repeat while it removes any. Atomic with the look at the groups. A topic that
        nobody reads yet is not trimmed.
        """
        ...

    async def take_turn(self, topic: str, reader: str, holder: str, lease: timedelta) -> int | timedelta:
        """Become, or stay, the one who reads `topic` as `reader`: the fencing token, or how long the turn is taken.

        Atomic. A new holder's token is larger than every earlier one; staying keeps the token and renews the lease.
        """
        ...

    async def leave_turn(self, topic: str, reader: str, token: int) -> bool:
        """Give the turn up at once; False if it was not ours any more. Idempotent."""
        ...

    async def advance(self, topic: str, reader: str, token: int, *, expected: str, to: str, entries: int = 1) -> None:
        """Move the reader's position from `expected` to `to`, `entries` further on. Atomic; counts once.

        Raises `LeaseLostError` if somebody else took the turn meanwhile, `AckOutOfSequenceError` if the position is not
        `expected`; nothing has moved then.
        """
        ...

    async def aclose(self) -> None:
        """Let go of the server. What was read and not settled stays pending. Idempotent."""
        ...
