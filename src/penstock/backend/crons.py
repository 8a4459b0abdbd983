"""How far the schedules of a queue have come. Moments are in ms since 1970, by the server's clock."""

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from msgspec import Struct


class CronPlan(NamedTuple):
    """A schedule, as those who keep it know it."""

    times: str
    """When it ticks, as text: the same text is the same times."""

    terms: str
    """All else about it, as text."""


class CronRecord(Struct, frozen=True):
    """A schedule, as the server knows it."""

    plan: CronPlan
    last: int
    """Its last tick that is done with; or, if it had none yet, when it began."""

    is_paused: bool


class CronSheet(Struct, frozen=True):
    """Every schedule of a queue, at one moment."""

    now: int
    records: Mapping[str, CronRecord]


class CronChange(Enum):
    PAUSE = "pause"
    RESUME = "resume"
    """From now on: what it missed meanwhile is not made up for."""

    FORGET = "forget"
