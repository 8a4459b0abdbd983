"""Those who wait for news of a stream, and when it last gave a sign of life."""

import asyncio
import time


class Waiting:
    """Of one stream. Read by the thread that keeps its turn, too: what it reads are single values."""

    def __init__(self) -> None:
        self._waiters: set[asyncio.Future[None]] = set()
        self._touched = time.monotonic()
        self._spent = 0.0

    @property
    def idle_seconds(self) -> float:
        """How long nobody has asked for anything; none while somebody waits."""
        return 0.0 if self._waiters else time.monotonic() - self._touched

    def touch(self) -> None:
        self._touched = time.monotonic()

    def worked(self, seconds: float) -> None:
        """So long somebody worked on a message that is done now."""
        self._spent += seconds

    def spent(self) -> float:
        """What was worked since this was last asked."""
        spent, self._spent = self._spent, 0.0
        return spent

    def wake(self) -> None:
        waiters, self._waiters = self._waiters, set()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
        if waiters:
            self._touched = time.monotonic()

    async def news(self, within: float | None = None) -> None:
        """Returns with the next `wake`, or when the time is up."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            await asyncio.wait([waiter], timeout=within)
        finally:
            self._waiters.discard(waiter)
            self._touched = time.monotonic()
