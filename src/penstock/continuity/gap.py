"""What is missing."""

from typing import Literal, TypeAlias

from msgspec import Struct

Reason: TypeAlias = Literal["trimmed", "removed", "deleted", "recreated", "gone", "rolled back", "too slow"]


class Gap(Struct, frozen=True):
    """Something is missing here. What follows goes on behind it."""

    topic: str

    after: str
    """The last entry id before the gap: what is missing lies behind it. `0-0` if the server rolled back: what was read
    before may then be gone too, and others may be in its place."""

    upto: str | None
    """What is missing lies up to, and with, this id; None if nobody can know."""

    count: int | None
    """How many entries are missing; None if nobody can know, and it may then be none."""

    reason: Reason
    """`trimmed`, or `deleted` one by one, or `removed` in either way, before they were read; the stream was `recreated`
    (deleted, and made anew) or is `gone`; the server `rolled back` to an older state; or we were `too slow`."""
