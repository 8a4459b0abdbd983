"""Those who wait for news of a stream, and when it last gave a sign of life."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Waiting:
    """Of one stream. Read by the thread that keeps its turn, too: what it reads are single values."""

    def __init__(self) -> None:
        self._waiters: set[asyncio.Future[None]] = set()
        self._engaged = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._called: float | None = None
        """When the event loop was called by `call`, if it has not answered."""

        self.touched = time.monotonic()
        """When anybody last asked for anything."""

    @property
    def idle_seconds(self) -> float:
        """How long nobody has asked for anything. Who waits asks all the time, unless its event loop does not go on."""
        now = time.monotonic()
        if self._waiters and not self._engaged:
            called = self._called
            return 0.0 if called is None else now - called
        return 0.0 if self._engaged else now - self.touched

    def call(self) -> None:
        """Have the event loop answer, from another thread, if it still can."""
        if self._called is None and self._loop is not None:
            self._called = time.monotonic()
            with suppress(RuntimeError):  # it is closed
                self._loop.call_soon_threadsafe(self._answer)

    def _answer(self) -> None:
        self._called = None

    @contextmanager
    def engaged(self) -> Iterator[None]:
        """However long this takes, it counts as a sign of life."""
        self._engaged += 1
        try:
            yield
        finally:
            self._engaged -= 1
            self.touch()

    def touch(self) -> None:
        self.touched = time.monotonic()

    def wake(self) -> None:
        waiters, self._waiters = self._waiters, set()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
        if waiters:
            self.touched = time.monotonic()

    async def news(self, within: float | None = None) -> None:
        """Returns with the next `wake`, or when the time is up."""
        self._loop = asyncio.get_running_loop()
        waiter = self._loop.create_future()
        self._waiters.add(waiter)
        try:
            await asyncio.wait([waiter], timeout=within)
        finally:
            self._waiters.discard(waiter)
            self.touched = time.monotonic()
