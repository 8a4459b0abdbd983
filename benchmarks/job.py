"""What a measured process is told, how it counts, and how it starts. Needs nothing but Python: peers use it too."""

import asyncio
import json
import mmap
import os
import time
from collections.abc import Coroutine
from dataclasses import asdict, dataclass
from typing import Any

TOPIC, GROUP = "bench", "g"


@dataclass(frozen=True)
class Job:
    """One measured process: which side does what."""

    side: str
    action: str
    url: str
    mode: str = ""
    messages: int = 0
    ticks: str = ""
    latency: bool = False
    rate: float = 0.0
    uvloop: bool = False
    followers: int = 0

    def as_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Job":
        return cls(**json.loads(text))

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        if self.uvloop:
            import uvloop

            return uvloop.run(work)
        return asyncio.run(work)


class Ticks:
    """A counter in a file that two processes look at, and behind it how long each message took, in ns.

    A handler counts by `view[0] += 1`, which is the least that can be seen from outside: 40 ns.
    """

    def __init__(self, path: str, slots: int = 0) -> None:
        self.path = path
        size = 8 * (1 + slots) if slots else os.path.getsize(path)
        file = os.open(path, os.O_RDWR | os.O_CREAT)
        try:
            if slots:
                os.ftruncate(file, size)
            self.view = memoryview(mmap.mmap(file, size)).cast("Q")
        finally:
            os.close(file)

    @property
    def count(self) -> int:
        return self.view[0]

    def took(self, sent_ns: int) -> None:
        """Count a message, and note how long ago it was sent; by the one clock that all processes share."""
        view = self.view
        view[view[0] + 1] = time.monotonic_ns() - sent_ns
        view[0] += 1

    def latencies(self, start: int) -> list[int]:
        """In ns, of the messages counted since `start`."""
        return self.view[start + 1 : self.count + 1].tolist()
