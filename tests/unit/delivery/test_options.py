"""Options are honoured or refused, and refused where they are written."""

from collections.abc import Callable
from dataclasses import FrozenInstanceError
from datetime import UTC, datetime, timedelta

import pytest

from penstock.errors import ConfigurationError
from penstock.options import AckMode, DeadLetterBounds, Durability, Retention, Retry, Sending, Subscription, Unhandled

SECOND = timedelta(seconds=1)
NAIVE = datetime(2026, 1, 31, 12)  # noqa: DTZ001


def test_the_defaults_are_those_of_the_documentation() -> None:
    options = Subscription()
    assert (options.timeout, options.drain, options.scan) == (timedelta(minutes=5), 30 * SECOND, 5 * SECOND)
    assert (options.ack, options.unhandled, options.dedupe) == (AckMode.ON_SUCCESS, Unhandled.DEAD_LETTER, None)
    assert (options.threads, options.consumer) == (16, None)
    assert options.retention == Retention(timedelta(days=1), None)
    assert options.dead_letters == DeadLetterBounds(timedelta(days=30), 100_000)


@pytest.mark.parametrize(
    "wrong",
    [
        {"timeout": timedelta(0)},
        {"timeout": -SECOND},
        {"timeout": 300},
        {"timeout": None},
        {"ack": "manual"},
        {"ack": None},
        {"ack": Unhandled.SKIP},
        {"unhandled": "skip"},
        {"unhandled": None},
        {"dedupe": timedelta(0)},
        {"dedupe": True},
        {"dedupe": 3600},
        {"retention": timedelta(days=1)},
        {"retention": 1000},
        {"dead_letters": None},
        {"dead_letters": 100},
        {"threads": 0},
        {"threads": 1.5},
        {"threads": True},
        {"drain": -SECOND},
        {"drain": 30},
        {"scan": timedelta(0)},
        {"scan": None},
        {"consumer": ""},
        {"consumer": 7},
        {"consumer": "a\nb"},
        {"consumer": "x" * 257},
    ],
    ids=repr,
)
def test_a_wrong_subscription_is_refused(wrong: dict[str, object]) -> None:
    (name,) = wrong
    with pytest.raises(ConfigurationError, match=name):
        Subscription(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: Retention(-SECOND), "keep"),
        (lambda: Retention(86400), "keep"),  # type: ignore[arg-type]
        (lambda: Retention(max_entries=0), "max_entries"),
        (lambda: Retention(max_entries=1.5), "max_entries"),  # type: ignore[arg-type]
        (lambda: DeadLetterBounds(timedelta(0)), "keep"),
        (lambda: DeadLetterBounds(max_entries=0), "max_entries"),
        (lambda: DeadLetterBounds(max_entries=None), "max_entries"),  # type: ignore[arg-type]
        (lambda: Durability(-1), "replicas"),
        (lambda: Durability(True), "replicas"),
        (lambda: Durability(timeout=timedelta(0)), "timeout"),
        (lambda: Durability(aof="yes"), "aof"),  # type: ignore[arg-type]
        (lambda: Durability.replicated(0), "replicated"),
        (lambda: Sending(delay=-SECOND), "delay"),
        (lambda: Sending(delay=5), "delay"),  # type: ignore[arg-type]
        (lambda: Sending(expires_at=NAIVE), "expires_at"),
        (lambda: Sending(expires_at=SECOND), "expires_at"),  # type: ignore[arg-type]
        (lambda: Sending(time=NAIVE), "time"),
        (lambda: Sending(durability="aof"), "durability"),  # type: ignore[arg-type]
        (lambda: Sending(topic=5), "topic"),  # type: ignore[arg-type]
        (lambda: Sending(type=dict), "type"),  # type: ignore[arg-type]
        (lambda: Sending(type=""), "type"),
        (lambda: Sending(delay=SECOND, durability=Durability.on_disk()), "durability"),
    ],
)
def test_other_wrong_options_are_refused(make: Callable[[], object], name: str) -> None:
    with pytest.raises(ConfigurationError, match=name):
        make()


@pytest.mark.parametrize("options", [Retry(), Retention(), Subscription(), Durability(), Sending(), DeadLetterBounds()])
def test_options_do_not_change_once_they_are_made(options: object) -> None:
    name = next(iter(options.__slots__))  # type: ignore[attr-defined]
    with pytest.raises(FrozenInstanceError):
        setattr(options, name, None)


def test_the_levels_of_durability_say_what_they_ask_for() -> None:
    assert Durability.memory() == Durability(0, aof=False)
    assert Durability.on_disk() == Durability(0, aof=True)
    assert Durability.replicated(2) == Durability(2, aof=False)
    assert Durability.replicated(2, aof=True) == Durability(2, aof=True)


def test_nothing_to_wait_for_is_a_delay_too() -> None:
    assert Sending(delay=timedelta(0), expires_at=datetime.now(UTC)).delay == timedelta(0)
