"""Entries that are leased to us and were not handed out yet."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeGuard

from penstock.backend.entry import ClaimedMessage, DeadLetter, FetchedEntry, Malformed
from penstock.delivery.expiry import has_expired
from penstock.delivery.handback import hand_back
from penstock.delivery.holdings import Holdings
from penstock.errors import DeliveryError
from penstock.events import DeadLettered, Lost, Scope, Skipped
from penstock.manager.post import Ours, Post

_MARK_OF_OTHERS = (b"_init", b"true")
"""All that an entry holds which other managers write when they create a stream; it says nothing."""


class Basket:
    """Oldest first. What others have taken meanwhile, and what nobody can handle, is never handed out."""

    def __init__(self, *, has_dlq: bool) -> None:
        self._has_dlq = has_dlq
        self._waiting: list[Ours] = []
        self._clock = asyncio.get_running_loop().time

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, some: Iterable[Ours]) -> None:
        self._waiting += some

    def running(self, post: Post) -> list[str]:
        """Ids of entries of this post that wait here."""
        return [one.entry.id for one in self._waiting if one.post is post]

    @property
    def is_tidy(self) -> bool:
        """Whether `tidy` would find nothing to do."""
        return all(_is_fit(one.entry) and not self._is_old(one) for one in self._waiting)

    async def tidy(self) -> None:
        """Make sure of what waits here: after this, `fit` and `take` give what is ours and can be handled.

        Raises what the server refuses; everything then waits as before.
        """
        await self._renew_old_leases()
        for one in list(self._waiting):
            if isinstance(one.entry, Malformed):
                await self._give_up(one, one.entry.error.reason)
            elif has_expired(one.entry.message):
                await self._give_up(one, "it expired before it was handled")
            elif not _is_fit(one.entry):
                await self._skip(one, one.entry)

    def fit(self) -> list[tuple[Ours, ClaimedMessage]]:
        """Those that `take` would give, in that order."""
        return [(one, one.entry) for one in self._waiting if _is_fit(one.entry)]

    def take(self, count: int) -> list[ClaimedMessage]:
        """Up to `count` of them; from here on they are the caller's."""
        found: list[ClaimedMessage] = []
        rest: list[Ours] = []
        for one in self._waiting:
            if len(found) < count and _is_fit(one.entry):
                found.append(one.entry)
            else:
                rest.append(one)
        self._waiting = rest
        return found

    def drop(self, one: Ours) -> None:
        """It is settled, or not ours any more."""
        self._waiting = [other for other in self._waiting if other is not one]

    async def bury(self, one: Ours, entry: FetchedEntry, reason: str) -> None:
        """Dead-letter one that waits here, as `entry` has it."""
        duty, plan = one.post.duty, one.post.plan
        letter = DeadLetter(entry, reason)
        settled = await duty.backend.settle(entry.stream, plan.group, plan.consumer, dead=[letter])
        self.drop(one)
        if not settled.ok:
            return  # somebody else has seen to it
        if isinstance(entry, Malformed) and entry.lost:
            duty.tell(Lost, entry.origin, entry.origin, 1, reason)
        message_id = None if isinstance(entry, Malformed) else entry.message.id
        duty.tell(DeadLettered, message_id, entry.origin, entry.state.attempt, reason, "")

    async def hand_back(self) -> None:
        """Give up everything that waits here, for anybody to have at once. Raises what the server refuses."""
        for post, some in self._by_post().items():
            self._waiting = [one for one in self._waiting if one.post is not post]
            post.scan_soon()
            await hand_back(post.duty, Holdings(), [(one.entry.stream, one.entry.id) for one in some])

    def _by_post(self) -> Mapping[Post, Sequence[Ours]]:
        found: dict[Post, list[Ours]] = defaultdict(list)
        for one in self._waiting:
            found[one.post].append(one)
        return found

    async def _renew_old_leases(self) -> None:
        """Nobody renews what waits: those who come late may find that others have claimed it."""
        for post, some in self._by_post().items():
            for stream in post.plan.streams:
                old = [one for one in some if one.entry.stream == stream and self._is_old(one)]
                if old:
                    await self._renew(post, stream, old)

    def _is_old(self, one: Ours) -> bool:
        return self._clock() - one.since > one.post.plan.lease.total_seconds() / 3

    async def _renew(self, post: Post, stream: str, old: Sequence[Ours]) -> None:
        plan, now = post.plan, self._clock()
        lost = set(await post.duty.backend.renew(stream, plan.group, plan.consumer, [one.entry.id for one in old]))
        fresh = {id(one): None if one.entry.id in lost else one._replace(since=now) for one in old}
        # By identity: what another read has brought meanwhile was not asked about.
        kept = [fresh.get(id(one), one) for one in self._waiting]
        self._waiting = [one for one in kept if one is not None]

    async def _give_up(self, one: Ours, reason: str) -> None:
        """Dead-letter what cannot be handled; without a DLQ it stays pending, and is told of each time it is met."""
        if self._has_dlq:
            await self.bury(one, one.entry, reason)
            return
        self.drop(one)
        text = f"entry {one.entry.origin} of {one.post.plan.topic!r} stays pending: {reason}, and there is no DLQ"
        one.post.duty.trouble(Scope.READ, DeliveryError(text))

    async def _skip(self, one: Ours, entry: ClaimedMessage) -> None:
        duty, plan = one.post.duty, one.post.plan
        await duty.backend.settle(entry.stream, plan.group, plan.consumer, done=[entry])
        self.drop(one)
        duty.tell(Skipped, entry.message.id, entry.origin, "another manager wrote it to create the stream")


def _is_fit(entry: FetchedEntry) -> TypeGuard[ClaimedMessage]:
    """Whether it can be handed out; another read may have brought it since the last `tidy`."""
    if isinstance(entry, Malformed) or has_expired(entry.message):
        return False
    return tuple(entry.raw) != _MARK_OF_OTHERS
