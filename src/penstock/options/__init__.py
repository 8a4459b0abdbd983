"""Options that users hand in: frozen, and checked when they are made, so a bad one fails where it was written."""

from penstock.options.checks import check_count, check_duration, check_flag, check_kind, check_name
from penstock.options.delivery import LEASE, AckMode, DeadLetterBounds, Retention, Retry, Subscription, Unhandled
from penstock.options.jobs import JobOptions, Priority, Rate, Unique
from penstock.options.limits import Limits
from penstock.options.sending import DEDUPE_WINDOW, Durability, Sending
from penstock.options.sequence import ByKey, ChangeOptions, OnFailure

__all__ = [
    "DEDUPE_WINDOW",
    "LEASE",
    "AckMode",
    "ByKey",
    "ChangeOptions",
    "DeadLetterBounds",
    "Durability",
    "JobOptions",
    "Limits",
    "OnFailure",
    "Priority",
    "Rate",
    "Retention",
    "Retry",
    "Sending",
    "Subscription",
    "Unhandled",
    "Unique",
    "check_count",
    "check_duration",
    "check_flag",
    "check_kind",
    "check_name",
]
