"""What those who look for a fault are shown: the server, what waits, which keys there are, what is noted."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from msgspec import Struct

from penstock.backend.address import Address
from penstock.backend.parcel import Record


class ServerFacts(Struct, frozen=True, kw_only=True):
    """The server as it stands, in its own words. A setting is None if this user may not ask for it."""

    address: Address | None
    """Where it is; None if it was reached by somebody else's client."""

    product: str
    """`redis` or `valkey`: a Valkey that calls itself a Redis is told by its own version."""

    version: str
    is_replica: bool
    link_up: bool
    """Of a replica: it is in touch with its primary. True for a primary."""

    replicas: int
    """Of a primary: how many are connected, though they may have been silent for long."""

    good_replicas: int | None
    """How many of them answered in time; None if the server takes writes whatever they do."""

    is_cluster: bool
    used_memory: int
    maxmemory: int
    """0 if there is no limit."""

    policy: str
    """What is evicted when the limit is reached."""

    evicted: int
    """Keys that were evicted since the server started."""

    refused: int
    """Commands that were refused for lack of memory since the server started, or its statistics were reset."""

    appends: bool
    """It writes an append-only file."""

    append_ok: bool
    """The last write to that file went well; else it refuses changes."""

    rewrite_ok: bool
    """The last time that the file was written anew, to make it shorter, went well; changes are taken in any case."""

    snapshot_ok: bool
    fsync: str | None
    snapshots: str | None
    """When a snapshot is taken; empty for never."""

    stops_without_snapshot: bool | None
    """It refuses writes after a snapshot that failed."""

    idle_seconds: int | None
    """After which connections that say nothing are closed; 0 for never."""

    keepalive_seconds: int | None
    min_replicas: int | None
    """With fewer it refuses writes."""

    @property
    def numbers(self) -> tuple[int, ...]:
        """The version, as numbers that compare."""
        return tuple(int(part) for part in self.version.split(".")[:3] if part.isdigit())


class Parcel(Struct, frozen=True):
    """One parcel of a set of what waits until it is due."""

    due: datetime | None
    """None if the score is no moment of any calendar."""

    raw: Sequence[bytes] = ()
    """Fields and values of the message, without Penstock's own bookkeeping."""

    record: Record | None = None
    """What is known of the attempts before; of a message for later, None."""

    problem: str = ""
    """Why it cannot be opened, if so."""


class Key(Struct, frozen=True):
    """A key of a topic, what it should hold and what it does."""

    name: str
    expected: str
    found: str
    """A type as the server calls it; `none` if there is no such key."""

    @property
    def is_right(self) -> bool:
        return self.found in (self.expected, "none")


class Books(Struct, frozen=True):
    """What is noted beside a topic about its groups."""

    registered: bool
    groups: frozenset[str]
    """Those that are there."""

    noted: Mapping[str, bool]
    """Groups of which a note says how they stood, and whether it can be read."""

    paused: frozenset[str]
    epochs: tuple[str, ...]
    """The epochs that the stream has; one, or none before anybody watched it."""
