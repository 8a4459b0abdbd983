"""Three ways to break the shop on purpose: its books must not balance then."""

from enum import Enum


class Sabotage(Enum):
    """What goes wrong that no shop should get away with."""

    DROP = "drop"
    """An order is acknowledged, and is not where everybody looks for it."""

    SWALLOW = "swallow"
    """Billing returns as if nothing were wrong when the bank does not take an order."""

    KILL = "kill"
    """Billing dies in the middle, and nobody takes its place."""
