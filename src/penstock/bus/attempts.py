"""What a journal says: the body of its messages."""

from typing import ClassVar

from msgspec import Struct


class Attempt(Struct, frozen=True, omit_defaults=True, gc=False):
    """One attempt to deliver a message to a group."""

    topic: str
    group: str
    id: str
    """The message's UUID."""

    entry_id: str
    attempt: int
    outcome: str
    """`handled`: the handler returned. `failed`: it raised, or ran out of time. `rejected`, `snoozed`: it said so."""

    seconds: float
    """How long the handler took; in a batch, all of it together."""

    at: int
    """When it began, by the worker's clock: milliseconds since 1970, as in an entry's id."""

    type: str | None = None
    error: str | None = None
    """The class of what was raised."""

    replay: str | None = None
    """Which replay of a dead letter brought it, if one did."""


class Gap(Struct, frozen=True):
    """So many records were lost before this one."""

    dropped: int
    at: int
    outcome: str = "dropped"


class Attempts(Struct, frozen=True):
    """The body of a message of the journal."""

    message_type: ClassVar[str] = "penstock.attempts"
    records: list[Attempt | Gap]
