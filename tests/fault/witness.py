"""Notes when a process, or the server, got no turn for so long that leases may run out, though nobody did anything.

What is taken from a process meanwhile is taken rightly: the checker must know of it, as of a process that was frozen.
"""

import threading
import time
from collections.abc import Callable
from contextlib import suppress

import redis

_EVERY = 0.05
_NOTICED = 0.25
"""Seconds. The shortest leases here are renewed about as often."""


class Witness:
    """A thread that takes many turns a second, and calls `stalled` with the time of the one before a long gap."""

    def __init__(self, stalled: Callable[[float], object], ask: Callable[[], object] = lambda: None) -> None:
        self._stalled = stalled
        self._ask = ask
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="witness", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        self._thread.join()

    def _run(self) -> None:
        before = time.monotonic()
        while not self._closing.wait(_EVERY):
            with suppress(redis.RedisError):  # a server that is away is known to whoever took it away
                self._ask()
                if time.monotonic() > before + _NOTICED:
                    self._stalled(before)
            before = time.monotonic()
