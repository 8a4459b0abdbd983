"""What producers and workers are told: as JSON on their command line, but for the URL, which holds a password."""

import os
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

URL_VARIABLE = "FAULT_URL"

PASSWORD = "canary-of-the-password"
BODY_CANARY = "canary-of-the-body"
"""Neither may ever turn up in a log, an error or a reason."""

T = TypeVar("T")


class ProducerSetup(Struct, frozen=True):
    directory: str
    topic: str
    seed: int
    messages: int

    fates: dict[str, int] = {}
    """How many of the messages behave so; what is left over is `ok`."""
    in_order: bool = False
    """Those come last, instead of anywhere."""
    duplicates: float = 0.0
    """Share of the messages that are published a second time, with the same id."""
    once: bool = True
    """Publish with an id of our own, which makes repeating it safe; else plainly, and never repeat."""
    persist: bool = True
    """Go on until every message is acknowledged, where that is safe."""
    many: int = 0
    """Publish this many with one call, without an id of our own."""
    abreast: int = 8
    """How many are published at the same time."""
    seconds: float = 0.0
    """What a behaviour that takes time is to take."""
    gate: str = ""
    """The file that a behaviour with a gate waits for."""
    pad: int = 0
    """Bytes to make each body larger by."""
    pause: float = 0.0
    """Seconds between a message and the next, to stretch the load over a fault."""
    lanes: bool = False
    """The topic is a queue of jobs, and the messages go to its lanes in turn."""
    priority: str = ""
    """All to this lane."""
    delay: float = 0.0
    """Seconds until a job is due."""


class WorkerSetup(Struct, frozen=True):
    directory: str
    topic: str
    group: str
    attempts: int = 3
    initial: float = 0.1
    maximum: float = 0.4
    lease: float = 2.0
    scan: float = 0.3
    timeout: float = 60.0
    drain: float = 10.0
    concurrency: int = 8
    batch: int = 0
    dedupe: bool = False
    keep: float | None = None
    """Seconds for which what everybody settled is kept; None: for ever."""
    in_thread: bool = False
    """Handlers are plain functions."""
    ack: str = "on success"
    """When a delivery counts as done, in the words of `AckMode`."""
    lanes: bool = False
    """The topic is a queue of jobs."""
    cron: str = ""
    """A schedule of that queue, which asks for jobs beside those of producers; none that was missed is dropped."""
    as_shipped: bool = False
    """Declared like in a first program: retries, timeout, scan and drain are the defaults, whatever is said here."""
    cleans_every: float = 30.0
    """Seconds between two rounds of the janitor, which is no option of the public API."""

    @property
    def longest_pause(self) -> float:
        """The longest time in which, on a healthy server, nothing needs to happen while something is left to do."""
        return 3 * (self.lease + self.maximum)


def written(setup: "ProducerSetup | WorkerSetup") -> str:
    return msgspec.json.encode(setup).decode()


def read(kind: type[T], text: str) -> T:
    return msgspec.json.decode(text, type=kind)


def url() -> str:
    return os.environ[URL_VARIABLE]


def directory_of(setup: "ProducerSetup | WorkerSetup") -> Path:
    return Path(setup.directory)
