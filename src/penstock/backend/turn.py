"""What a sequential reader is told when it takes its turn."""

from msgspec import Struct

from penstock.backend.survey import Position
from penstock.errors import TopicError

IN_SEQUENCE = {"read": "in sequence"}
"""Details of a dead letter that was given up by a sequential reader."""


def kept_in_place(topic: str, group: str) -> TopicError:
    """That nobody else can move the reader."""
    return TopicError(
        f"{group!r} of topic {topic!r} is a sequential reader, whose place only it can move: remove it with"
        " unsubscribe(), or penstock group rm, and it begins anew"
    )


class Standing(Struct, frozen=True):
    """Where a sequential reader goes on, and what became of it before."""

    position: Position
    """Everything up to there is acknowledged. An ordinal of -1 says that nobody counted; an epoch that is not the
    stream's own says that the reader's stream was deleted."""

    restored: bool = False
    """The group had vanished, and was made again where the reader stood."""

    crashed: bool = False
    """Whoever had the turn before did not leave it: what it had begun may be what killed it."""

    failed_id: str = ""
    """The entry that failed last."""

    failures: int = 0
    """How often that one failed."""

    snapshot: bool = False
    """It was placed where a snapshot was taken, once."""

    unsubscriptions: int = 0
    """How often the reader was removed: what `stand` is to be told from now on."""

    told_upto: str = ""
    """What was deleted one by one up to this id is not missing: it was gone when the reader began. For readers whose
    entries nobody counted."""
