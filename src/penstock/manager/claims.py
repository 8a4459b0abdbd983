"""Taking over messages that a consumer left behind, without letting one that kills its consumers do so for ever.

Any of them may have been the cause. Each is noted before it is handed out, and one that was noted before is handed out
alone: if its consumer dies again, the blame is on nobody else. Past its retries it is a dead letter.
"""

import asyncio
from datetime import timedelta

from msgspec.structs import replace

from penstock.backend.entry import ClaimedMessage
from penstock.delivery.together import to_the_end
from penstock.errors import GroupMissingError, TopicError
from penstock.events import Reclaimed
from penstock.manager.basket import Basket
from penstock.manager.configuration import DLQConfig
from penstock.manager.message import retries_of
from penstock.manager.post import Ours, Post
from penstock.manager.reading import GroupReader

_PENDING_PER_CALL = 2000
"""How many pending entries one call of `reclaim_idle` looks at, at most."""


class Claims:
    """What this manager claims for one group."""

    def __init__(self, reader: GroupReader, dlq: DLQConfig) -> None:
        self._reader = reader
        self._dlq = dlq
        self._basket = Basket(has_dlq=dlq.enabled)
        self._clock = asyncio.get_running_loop().time
        self._turn = asyncio.Lock()

    async def claim(self, idle: timedelta, count: int) -> list[ClaimedMessage]:
        """Up to `count` entries that nobody has touched for `idle`, however many busy ones lie before them."""
        if not count:
            return []
        async with self._turn:  # to look at one, note it and hand it out takes several steps
            if not len(self._basket):
                await self._fill(idle, count)
            if not self._basket.is_tidy:
                await to_the_end(self._basket.tidy())
            return await self._hand_out(count)

    async def hand_back(self) -> None:
        """Give up what was claimed and not handed out."""
        await self._basket.hand_back()

    async def _fill(self, idle: timedelta, count: int) -> None:
        """Raises the first error, when every stream had its turn; what came from the others waits for the next call."""
        errors: list[TopicError] = []
        for post in self._reader.posts:
            for stream in post.plan.streams:
                try:
                    # To the end: what was claimed must reach the basket, whoever waits for it.
                    await to_the_end(self._reclaim(post, stream, idle, count))
                except GroupMissingError:
                    continue  # of a group that is gone nothing is pending
                except TopicError as error:
                    errors.append(error)
        if errors:
            raise errors[0]

    async def _reclaim(self, post: Post, stream: str, idle: timedelta, count: int) -> None:
        plan, backend = post.plan, post.duty.backend
        parts = None
        while (room := count - len(self._basket)) > 0 and parts != 0:
            now = self._clock()
            running = [*self._reader.running(post), *self._basket.running(post)]
            entries = await backend.reclaim_idle(stream, plan.group, plan.consumer, idle, room, running=running)
            if entries:
                self._basket.put(Ours(entry, post, now) for entry in entries)
                post.duty.tell(Reclaimed, len(entries), sum(entry.state.suspect for entry in entries))
                continue
            if parts is None:
                # None in the part of the pending list that it looked at; how many more such parts are there?
                pending = sum(one.pending for one in await backend.consumers(stream, plan.group))
                parts = -(-pending // _PENDING_PER_CALL)
            parts = max(0, parts - 1)

    async def _hand_out(self, count: int) -> list[ClaimedMessage]:
        found: list[tuple[Ours, ClaimedMessage]] = []
        for one, entry in self._basket.fit():
            if len(found) == count:
                break
            starts = await self._mark(one, entry, only_first=True) if entry.state.suspect else 1
            if starts is None:
                self._basket.drop(one)
            elif starts > 0:
                found.append((one, entry))
            elif found:
                break  # the next call hands it out, alone
            elif (alone := await self._alone(one, entry, -starts)) is not None:
                return [alone]
        # Only now: had one of the calls failed, all would still wait here.
        for one, _ in found:
            self._basket.drop(one)
        return [entry for _, entry in found]

    async def _alone(self, one: Ours, entry: ClaimedMessage, starts: int) -> ClaimedMessage | None:
        """One that was begun so many times before; None if it is not to be begun again."""
        left = self._dlq.retry_limit - retries_of(entry)
        if starts > max(1, left) and self._dlq.enabled:
            reason = f"it was begun {starts} times by consumers that died or let it lie"
            await self._basket.bury(one, _at_attempt(entry, entry.state.attempt + starts - 1), reason)
            return None
        marked = await self._mark(one, entry)
        self._basket.drop(one)
        if marked is None:
            return None
        # The first time it may have been a neighbour, and the second is the one that begins now.
        return _at_attempt(entry, entry.state.attempt + max(0, marked - 2))

    async def _mark(self, one: Ours, entry: ClaimedMessage, *, only_first: bool = False) -> int | None:
        plan = one.post.plan
        return await one.post.duty.backend.mark_start(entry, plan.group, plan.consumer, only_first=only_first)


def _at_attempt(entry: ClaimedMessage, attempt: int) -> ClaimedMessage:
    return replace(entry, state=replace(entry.state, attempt=attempt))
