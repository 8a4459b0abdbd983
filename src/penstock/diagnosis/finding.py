"""What a rule says."""

import shlex
from typing import Literal

from msgspec import Struct

Level = Literal["wrong", "note"]
"""`note`: worth knowing, and nothing has to be done at once."""


class Finding(Struct, frozen=True, kw_only=True):
    """One thing that a rule has found, with what it is known by and what mends it."""

    rule: str
    """The name of the rule, as `--skip` takes it."""

    subject: str
    """`server`, `topic`, `topic/group`, or what of this machine."""

    what: str
    evidence: tuple[str, ...] = ()
    """What was seen: numbers, ids and names as the server has them."""

    remedy: str
    """The command that mends it, or, where no command can, what to do."""

    level: Level = "wrong"


def place(topic: str, group: str | None = None) -> str:
    return topic if group is None else f"{topic}/{group}"


def command(*words: str) -> str:
    """A command line of ours that a shell takes as it is."""
    return shlex.join(["penstock", *words])


def amount(count: int, one: str, many: str = "") -> str:
    return f"{count:,} {one if count == 1 else many or one + 's'}"
