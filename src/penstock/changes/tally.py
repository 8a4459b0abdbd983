"""How many messages are done, and how long that took: told together, a few times a second."""

import asyncio
from collections.abc import Callable

_TELL_SECONDS = 0.1
"""An event for each message would cost as much as reading it."""


class Tally:
    """Of one stream. `tell` is given the count and the seconds."""

    def __init__(self, tell: Callable[[int, float], None]) -> None:
        self._tell = tell
        self._done = 0
        self._seconds = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def worked(self, seconds: float) -> None:
        """So long somebody worked on a message that is done now."""
        self._seconds += seconds

    def confirmed(self, count: int) -> None:
        """The server knows that so many more are done."""
        self._done += count
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_TELL_SECONDS, self.tell_now)

    def tell_now(self) -> None:
        """Tell what was not told yet, if there is anything."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._done:
            done, seconds, self._done, self._seconds = self._done, self._seconds, 0, 0.0
            self._tell(done, seconds)
