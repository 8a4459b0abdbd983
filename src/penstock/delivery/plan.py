"""What one worker is to do: which group of which topic, as whom, and on which terms."""

import os
import re
import secrets
import socket
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from penstock.backend import keys
from penstock.backend.entry import Throttle
from penstock.errors import ConfigurationError
from penstock.message.times import EPOCH
from penstock.options import LEASE, Retry, Subscription, check_count, check_duration, check_kind

_LONGEST_SHOWN = 128
_ENTRY_ID = re.compile(r"[0-9]{1,20}(-[0-9]{1,20})?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Terms of delivery, checked."""

    topic: str
    group: str
    retry: Retry = field(default_factory=Retry)
    lease: timedelta = LEASE

    start: str = "0"
    """Where a group that does not exist yet begins: an entry id, "0" for all there is, "$" for what comes."""

    concurrency: int = 100

    chunk: int = 1
    """Most messages a handler takes at once."""

    strict: bool = False
    """Lease no more than there are idle runners for: what is leased is hidden from other workers."""

    throttle: Throttle = field(default_factory=Throttle)
    """How much may be in work over all workers of the group, where several lanes are read."""

    drops: bool = False
    """Delete what is settled at once, where nobody else reads the topic."""

    options: Subscription = field(default_factory=Subscription)
    consumer: str = ""

    def __post_init__(self) -> None:
        check_kind("retry", self.retry, Retry)
        check_kind("options", self.options, Subscription)
        keys.check_topic(self.topic)
        keys.check_name("group", self.group)
        check_duration("the lease", self.lease, least=timedelta(milliseconds=100))
        check_count("concurrency", self.concurrency)
        check_count("the size of a batch", self.chunk)
        if not self.consumer:
            object.__setattr__(self, "consumer", self.options.consumer or unique_consumer())

    @property
    def streams(self) -> tuple[str, str]:
        """What the group reads: its own retries first, since they have waited longer."""
        return keys.retry(self.topic, self.group), self.topic


def unique_consumer(given: str = "") -> str:
    """A name no other process has, and in which an operator sees where it runs, and the name that was given."""
    host = re.sub(r"[^A-Za-z0-9_-]", "-", socket.gethostname())[:64]
    shown = f"{given[:_LONGEST_SHOWN]}@" if given else ""
    return f"{shown}{host}.{os.getpid()}.{secrets.token_hex(4)}"


def refuse_terms(**terms: object) -> None:
    """Refuse terms of a bus that only a group can honour."""
    defaults = {"retry": Retry(), "lease": LEASE, "start": "earliest", "options": Subscription()}
    if given := [f"{name}=..." for name, value in terms.items() if value != defaults[name]]:
        raise ConfigurationError(
            f"a bus without a group only publishes: give app.bus(..., group=...) to have {', '.join(given)} count"
        )


def start_id(start: str | datetime) -> str:
    """Where a new group begins, as the server takes it: "earliest", "latest", an entry id, or a moment."""
    if isinstance(start, datetime):
        if start.tzinfo is None:
            raise ConfigurationError(f"a start in time needs an offset, and {start!r} has none")
        # The group begins behind this id, so with the first entry of that very millisecond. In whole numbers: a float
        # is sometimes one millisecond off, and would skip entries.
        return f"{max(1, (start - EPOCH) // timedelta(milliseconds=1)) - 1}-{2**64 - 1}"
    if start in ("earliest", "latest"):
        return "0" if start == "earliest" else "$"
    is_id = isinstance(start, str) and _ENTRY_ID.fullmatch(start) is not None
    if not is_id or max(int(part) for part in start.split("-")) >= 2**64:
        raise ConfigurationError(f"a group starts at 'earliest', 'latest', an entry id or a datetime, not {start!r}")
    return start
