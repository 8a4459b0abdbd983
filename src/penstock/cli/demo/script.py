"""What is to be played, and what it means to fail."""

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.cli.demo.sabotage import Sabotage
from penstock.errors import PenstockError


class DemoFailedError(PenstockError):
    """The demo's own books do not balance."""


_PER_SECOND = 375
"""Slow enough to watch."""


@dataclass(frozen=True)
class Script:
    """How the play is to go."""

    orders: int = 3000
    archive: bool = True
    sabotage: Sabotage | None = None
    prepare: Sequence[str] = ()
    """A command that installs Spark, run beside the shop; none if it is there, or is not to be had."""

    patience: float = 20.0
    """Seconds without any event after which the shop is closed, whatever is missing."""

    @property
    def seconds(self) -> float:
        """About how long the producers take."""
        return self.orders / _PER_SECOND
