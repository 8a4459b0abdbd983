"""Moments as people give them on the command line: with their time zone, or as an age."""

from datetime import datetime, timedelta
from typing import TypeAlias

Moment: TypeAlias = datetime | timedelta | None


def moment(given: Moment, now: datetime) -> datetime | None:
    """What is meant: an age is counted back from `now`."""
    return now - given if isinstance(given, timedelta) else given
