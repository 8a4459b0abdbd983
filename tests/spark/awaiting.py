"""Waiting, in a plain thread, for what must come."""

import time
from collections.abc import Callable


def until(condition: Callable[[], bool], within: float = 60) -> None:
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, "it did not come in time"
        time.sleep(0.02)
