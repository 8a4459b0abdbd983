"""Reading the streams of one group: a few messages at a time, from whichever stream has some."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from penstock.backend.entry import ClaimedMessage
from penstock.delivery.together import to_the_end
from penstock.errors import TopicError
from penstock.manager.basket import Basket
from penstock.manager.post import LOOK_SECONDS, Ours, Post

_NO_WAIT = timedelta(0)


class GroupReader:
    """The reads of one group. They may run at the same time; each message goes to one of them.

    Entries that came and were not asked for yet, since the server counts by stream, wait in a basket and come first
    next time. Every error is raised; what had come before it waits in the basket too.
    """

    def __init__(self, posts: Sequence[Post], *, has_dlq: bool) -> None:
        self.posts = tuple(posts)
        self._basket = Basket(has_dlq=has_dlq)
        self._clock = asyncio.get_running_loop().time
        self._turn = 0
        self.is_closed = False
        """Nothing is read any more; what waits for messages ends without any."""

    async def read(self, count: int, seconds: float, ahead: int = 0) -> list[ClaimedMessage]:
        """Up to `count` entries, from all streams together; waits for the first so many seconds.

        Up to `ahead` are fetched if that is more, to be handed out by later calls.
        """
        deadline = self._clock() + seconds
        fetch = max(count, ahead)
        while count and not self.is_closed:
            if taken := await self._taken(count):
                return taken
            await self._look_round(fetch)
            if taken := await self._taken(count):
                return taken
            if self._clock() >= deadline:
                break
            await self._wait(deadline, max(1, fetch // len(self.posts)))
        return []

    def running(self, post: Post) -> list[str]:
        """Ids of entries that were read and not handed out."""
        return self._basket.running(post)

    async def hand_back(self) -> None:
        """Give up what was read and not handed out. Raises what the server refuses: then it comes back by its time."""
        for post in self.posts:
            plan = post.plan
            if await post.duty.backend.stop_reading(plan.streams, plan.group, plan.consumer):
                post.scan_soon()
        await self._basket.hand_back()

    async def close(self) -> None:
        """End all reads, hand back what was not handed out, and leave the group."""
        self.is_closed = True
        await self.hand_back()
        for post in self.posts:
            for stream in post.plan.streams:
                await post.duty.backend.forget_consumer(stream, post.plan.group, post.plan.consumer)

    async def _taken(self, count: int) -> list[ClaimedMessage]:
        if not self._basket.is_tidy:
            await to_the_end(self._basket.tidy())
        return self._basket.take(count)

    async def _look_round(self, fetch: int) -> None:
        """Whatever is due, and what is there already. Raises the first error, when every stream had its turn."""
        self._turn = (self._turn + 1) % len(self.posts)  # else a busy one would hide those behind it
        errors: list[TopicError] = []
        for post in (*self.posts[self._turn :], *self.posts[: self._turn]):
            try:
                # To the end: entries that the server has given must reach the basket.
                await to_the_end(self._serve(post, fetch))
            except TopicError as error:
                errors.append(error)
        if errors:
            raise errors[0]

    async def _serve(self, post: Post, fetch: int) -> None:
        if post.next_upkeep <= self._clock():
            room = max(0, fetch - len(self._basket))
            self._basket.put(await post.upkeep(room, self._basket.running(post)))
        room = fetch - len(self._basket)
        if room > 0 and not post.is_paused:
            await self._read(post, room, _NO_WAIT)

    async def _wait(self, deadline: float, count: int) -> None:
        """Until a stream has something, or there is upkeep to do, or it is time to give up."""
        until = min([deadline, *[post.next_upkeep for post in self.posts]])
        left = max(0.0, min(until - self._clock(), LOOK_SECONDS))
        # No longer than we look on ourselves: what comes when nobody waits any more would lie here.
        timeout = timedelta(seconds=max(0.001, left))
        reads = [asyncio.create_task(self._read(post, count, timeout)) for post in self.posts if not post.is_paused]
        if not reads:
            await asyncio.sleep(left)
            return
        try:
            await asyncio.wait(reads, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for read in reads:
                read.cancel()
            await asyncio.wait(reads)
        errors = [read.exception() for read in reads if not read.cancelled()]
        for error in filter(None, errors):
            raise error

    async def _read(self, post: Post, count: int, timeout: timedelta) -> None:
        some: list[Ours] = await post.read(count, timeout)
        self._basket.put(some)
