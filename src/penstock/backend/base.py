"""The verbs of a stream server, and what each of them promises.

*Atomic* means all or nothing on the server, whatever dies when. *Idempotent* means that doing it again after a lost
reply does no harm. Streams are named by their key: a topic, or a group's retry stream (`keys.retry`). Every verb raises
`ConfigurationError` for arguments that cannot work, `ServerUnreachableError` if no answer came, and the other kinds of
`ServerError` and `TopicError` for what the server refused.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol, Self

from penstock.backend.entry import (
    Claim,
    ClaimedMessage,
    Confirmed,
    DeadLetter,
    FetchedEntry,
    Handling,
    Letter,
    Park,
    Published,
    Replayed,
    Settled,
    Trimmed,
)
from penstock.backend.facts import TopicFacts
from penstock.backend.sheaf import Sheaf
from penstock.backend.sighting import Consumer, Sighting
from penstock.errors import PenstockError
from penstock.message.message import Message
from penstock.message.wire import Wire
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
        and safe to call again after `PublishUnknownError`, as long as the window lasts. Calls that run at the same time
        share one script call, and none of them fails for what another one publishes.
        """
        ...

    async def publish_durably(
        self, stream: str, message: Message[Any], *, replicas: int = 0, aof: bool = False, timeout: timedelta
    ) -> Confirmed:
        """As `publish`, and wait up to `timeout` from there until that many replicas, and the server's disk, have it.

        Reports what was reached, and never raises because it is less than asked for: the message is written then, and
        nothing is undone. What the server cannot tell, or does not allow us to ask, counts as not reached. Calls with
        the same wish that run at the same time share one wait, on a connection apart from all others.
        """
        ...

    async def publish_later(
        self,
        topic: str,
        messages: Sequence[Message[Any]],
        *,
        delay: timedelta | None = None,
        until: datetime | None = None,
        once: bool = False,
        window: timedelta = DEDUPE_WINDOW,
    ) -> list[Published | PenstockError]:
        """Put messages aside until `delay` is over, or `until`, by the server's clock; one result for each.

        They are no entries yet, so their `entry_id` is empty and nobody reads them: `promote_later` appends them when
        they are due. Up to 100 messages, or about a MiB of them, are atomic at a time; one that cannot be encoded does
        not keep the others from being sent. It is sent once, and a broken connection makes `PublishUnknownError` of
        every message that was on its way. With `once` it is idempotent: an id that was published within `window`, for
        later or by `publish_once`, is a duplicate. The window begins when the message is put aside, not when it is due.
        """
        ...

    async def promote_later(self, topic: str, limit: int = 100) -> tuple[int, timedelta | None]:
        """Append up to `limit` messages that are due to the topic itself, for every group, earliest first. Atomic.

        Returns how many were taken, and how long it is until the next one is due, by the server's clock; None if none
        waits. What cannot be opened becomes a dead letter of no group.
        """
        ...

    async def read_new(
        self,
        stream: str | Sequence[str],
        group: str,
        consumer: str,
        count: int,
        timeout: timedelta,
        *,
        ahead: bool = False,
    ) -> list[FetchedEntry]:
        """Lease up to `count` entries that the group never had, oldest first; waits up to `timeout` for the first.

        `stream` may be a topic together with its retry stream: one request reads both, up to `count` of each, and the
        results come in the order the streams were given. One result per entry: one that cannot be read is `Malformed`
        beside its neighbours. All of them are pending for `consumer` until settled, also if we die before we see them.
        A call that is cancelled loses nothing: what it was given comes with the consumer's next read of the same
        streams. After an error the next read waits a while before it asks again. With `ahead`, a full batch (of any
        stream) makes the backend ask for the next one before it returns this one, and the next read gets that answer,
        even if it is empty and entries have come since. Reads of one consumer take turns. Its name must be its alone:
        two processes of one name are not told apart.
        """
        ...

    async def read_sheaves(
        self,
        stream: str | Sequence[str],
        group: str,
        consumer: str,
        count: int,
        timeout: timedelta,
        *,
        ahead: bool = False,
    ) -> list[Sheaf]:
        """As `read_new`, but opened later, by whoever iterates: one sheaf for each stream that had entries."""
        ...

    async def stop_reading(self, stream: str | Sequence[str], group: str, consumer: str) -> int:
        """End a consumer's reads of this stream, or of any of these; returns how many entries were handed back.

        A read that waits ends at once with nothing (when its time is up, if this user may not run CLIENT UNBLOCK). What
        the server gave and no read returned is handed back, for anybody to reclaim at once; what cannot be, because the
        connection broke or the call was cancelled, comes back by its idle time. A later read starts afresh. Idempotent.
        """
        ...

    async def mark_start(
        self, entry: ClaimedMessage, group: str, consumer: str, *, only_first: bool = False
    ) -> int | None:
        """Note on the server that work on this entry begins; returns how often it began by now, this time included.

        With `only_first`, one that began before is not counted again: minus the number of times it did is returned.
        None: `consumer` does not hold it any more, and nothing was noted. Atomic; counts once even if it is sent again.
        Settling forgets it, in the same step if the entry is `suspect`, parked or dead; else `reclaim_idle` does.
        """
        ...

    async def reclaim_idle(
        self, stream: str, group: str, consumer: str, min_idle: timedelta, count: int, *, running: Collection[str] = ()
    ) -> list[FetchedEntry]:
        """Take over up to `count` entries that nobody has touched for `min_idle`, oldest first. Atomic.

        Two callers never get the same entry, and the former owner's settle is fenced from then on. The consumer's own
        entries count too, since it may have died under this name, except those in `running`. What its owner did not
        hand back is `suspect`. Looks at a bounded part of the pending list and goes on from there next time. Entries
        trimmed or deleted while pending come on top, `Malformed` and `lost`, until somebody acks or dead-letters them.
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

    async def claim_handling(self, topic: str, group: str, claims: Sequence[Claim], lease: timedelta) -> list[Handling]:
        """For those who want no message handled twice: which of these may be handled now. Idempotent; atomic per claim.

        A claim is a message's UUID, its replay (or ""), and the entry that brings it. `NEW`: ours for `lease`, to be
        claimed again by the same entry while it is handled, on a retry, or after a crash. `BUSY`: another entry of the
        same message is being handled; come back later. `DONE`: settle it without handling it. A claim that ran out is
        free, so the lease must outlast the handler, or be claimed anew meanwhile. Works on a server that is out of
        memory, as settling does.
        """
        ...

    async def complete_handling(
        self, stream: str, group: str, consumer: str, entries: Sequence[ClaimedMessage], window: timedelta
    ) -> Settled:
        """As `settle` with `done`, and note for `window` that their messages are done. Idempotent; atomic per entry.

        Each entry is looked up: of those that `consumer` no longer holds nothing is noted. Whoever has claimed the
        message meanwhile loses that claim, for what is done is done.
        """
        ...

    async def release_handling(self, topic: str, group: str, claims: Sequence[Claim]) -> int:
        """Give claims back before they run out, unless done or another entry's; returns how many. Idempotent."""
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

    async def read_dead(
        self, topic: str, start: str = "-", end: str = "+", count: int = 100, *, backwards: bool = False
    ) -> list[Letter]:
        """Up to `count` dead letters of every group, ids from `start` to `end`, both as XRANGE takes them.

        Oldest first, or, if `backwards`, newest first. One that cannot be opened says so beside its neighbours. Fewer
        than `count` come if they are large, about 8 MiB at a time: only none means that there are no more. Changes
        nothing.
        """
        ...

    async def count_dead(self, topic: str) -> int:
        """How many dead letters the topic has, of all groups."""
        ...

    async def replay_dead(self, topic: str, group: str, letters: Sequence[Letter], replay_id: str) -> Replayed:
        """Give dead letters back to `group`, which gave them up, on its retry stream. Atomic per letter; idempotent.

        Each becomes a first attempt again, with every byte it had, the entry id it had in the topic, and `replay_id`,
        which stays with it through all further attempts. No other group sees it. It is on the retry stream before it
        leaves the dead letters. Those of other groups or topics, and those without a whole message, are refused one by
        one. After a lost answer it is sent again, and reports as gone what the first try has moved.
        """
        ...

    async def purge_dead(self, topic: str, ids: Sequence[str]) -> int:
        """Drop these dead letters for good; returns how many were there. Idempotent."""
        ...

    async def bound_dead(self, topic: str, oldest: str, most: int, limit: int = 1000) -> int:
        """Drop dead letters older than the id `oldest`, and the oldest ones beyond `most`; returns how many fell off.

        Never drops one that is within both bounds, nor more than `limit` at a time: repeat while it drops any. The
        server drops nodes of a stream as a whole, so up to a node's entries (100, or `stream-node-max-entries`) beyond
        the bounds stay; a smaller `limit` may drop nothing at all. Atomic.
        """
        ...

    async def watch(self, topic: str, group: str) -> Sighting:
        """See how a group stands on a topic, or on its retry stream, and what was lost since the last look. Atomic.

        Gives the stream an epoch if it has none, and notes what it saw for `restore_group`. What one look tells, no
        other one tells, of any process: do not drop it. From the first look on, `read_new` of this topic by this
        backend counts what is gone unread before it reads on: some servers do not show it afterwards.
        """
        ...

    async def restore_group(self, topic: str, group: str) -> tuple[str, bool]:
        """Create a group that vanished: where it starts, and whether the stream is the one of the last look.

        If it is, whatever was not settled at that look comes again; else everything does. A group that is there is left
        alone, and its position returned. Whoever read for the earlier one is fenced. Atomic, idempotent.
        """
        ...

    async def pause(self, topic: str, group: str) -> None:
        """Ask all who read for this group to stop, until `resume`; `watch` tells them. Idempotent."""
        ...

    async def resume(self, topic: str, group: str) -> None:
        """Take `pause` back. Idempotent."""
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

    async def another(self) -> Self:
        """A second backend to the same place, with the same wire formats, for the event loop that awaits this.

        Closing either leaves the other alone; but an embedded server ends with the backend that started it.
        """
        ...

    def speaking(self, wires: Mapping[str, Wire]) -> Self:
        """The same server over the same connections, for somebody who reads and writes these topics in another way.

        Closing it ends its reads and leaves the connections to the first.
        """
        ...

    async def aclose(self) -> None:
        """Let go of the server. What was read and not settled stays pending. Idempotent."""
        ...
