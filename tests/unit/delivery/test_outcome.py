"""What a failure leads to: again later, or never; whatever the error is like."""

import asyncio
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.delivery.outcome import Ack, Dead, Reject, RetryAfter, Snooze, decide
from penstock.errors import ConfigurationError, ExpiredError, HandlerTimeoutError, UnhandledTypeError
from penstock.options import Retry

PLAIN = Retry(attempts=4, initial=timedelta(seconds=1), maximum=timedelta(seconds=3), jitter=False)
ATTEMPTS = st.integers(1, 1000)
FAILURES = [
    ValueError("no"),
    KeyError("k"),
    RecursionError("deep"),
    MemoryError(),
    SystemExit(3),
    KeyboardInterrupt(),
    asyncio.CancelledError(),
    GeneratorExit(),
    StopIteration(7),
    TimeoutError(),
    HandlerTimeoutError("too slow"),
    ConfigurationError("a handler's own"),
    BaseExceptionGroup("two", [ValueError(1), SystemExit(2)]),
]


@given(ATTEMPTS)
def test_no_error_is_done_whatever_the_attempt(attempt: int) -> None:
    assert decide(None, attempt, PLAIN) == Ack()


@pytest.mark.parametrize("error", FAILURES, ids=lambda error: type(error).__name__)
def test_a_failure_comes_again_until_the_last_attempt(error: BaseException) -> None:
    outcomes = [decide(error, attempt, PLAIN) for attempt in (1, 2, 3, 4, 5)]
    assert [(one.attempt, one.delay) for one in outcomes if isinstance(one, RetryAfter)] == [
        (2, timedelta(seconds=1)),
        (3, timedelta(seconds=2)),
        (4, timedelta(seconds=3)),
    ]
    assert [type(one) for one in outcomes[3:]] == [Dead, Dead]
    assert all(type(error).__name__ in one.reason for one in outcomes if not isinstance(one, Ack))


def test_one_attempt_means_no_retry() -> None:
    assert decide(ValueError("no"), 1, Retry(attempts=1)) == Dead("ValueError: no")


@given(ATTEMPTS, st.integers(1, 1000))
def test_a_rejected_message_is_never_tried_again(attempt: int, attempts: int) -> None:
    assert decide(Reject("negative total"), attempt, Retry(attempts=attempts)) == Dead("negative total")


class NeverAgain(Reject):
    pass


def test_a_kind_of_reject_is_a_reject_and_always_has_a_reason() -> None:
    assert decide(NeverAgain("gone"), 1, PLAIN) == Dead("gone")
    assert isinstance(outcome := decide(NeverAgain(), 1, PLAIN), Dead)
    assert "NeverAgain" in outcome.reason


@given(ATTEMPTS, st.integers(1, 1000), st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=1000)))
def test_a_snooze_spends_no_attempt_not_even_the_last(attempt: int, attempts: int, delay: timedelta) -> None:
    outcome = decide(Snooze(delay, "bank is closed"), attempt, Retry(attempts=attempts))
    assert isinstance(outcome, RetryAfter)
    assert (outcome.delay, outcome.attempt) == (delay, attempt)
    assert "bank is closed" in outcome.reason


@pytest.mark.parametrize("delay", [timedelta(microseconds=-1), 5, 0.5, None, "1s"])
def test_a_snooze_needs_a_duration(delay: object) -> None:
    with pytest.raises(ConfigurationError, match="timedelta"):
        Snooze(delay)  # type: ignore[arg-type]


@pytest.mark.parametrize("error", [ExpiredError("it expired"), UnhandledTypeError("no handler takes it")])
def test_what_time_cannot_heal_is_given_up_at_once(error: Exception) -> None:
    assert decide(error, 1, PLAIN) == Dead(str(error))


class Unprintable(Exception):
    """Its text is whatever `speak` does."""

    def __init__(self, speak: object) -> None:
        self.speak = speak

    def __str__(self) -> str:
        if isinstance(self.speak, BaseException):
            raise self.speak
        return self.speak  # type: ignore[return-value]

    __repr__ = __str__


@pytest.mark.parametrize("attempt", [1, 4])
@pytest.mark.parametrize(
    "speak",
    [
        ValueError("no text"),
        RecursionError(),
        SystemExit(1),
        KeyboardInterrupt(),
        asyncio.CancelledError(),
        None,
        17,
        b"bytes",
        "\ud800 lone surrogate",
        "\x00\x1b[31m\u2028\u202e",
        "",
        " \n\t ",
        "x" * 1_000_000,
    ],
    ids=repr,
)
def test_an_error_that_cannot_be_shown_still_has_an_outcome(speak: object, attempt: int) -> None:
    outcome: object = None
    try:
        outcome = decide(Unprintable(speak), attempt, PLAIN)
    except BaseException as error:  # noqa: BLE001 - a SystemExit that got out of here would end pytest
        outcome = f"decide raised {type(error).__name__}"
    assert isinstance(outcome, RetryAfter if attempt == 1 else Dead), outcome
    assert outcome.reason.strip()
    assert len(outcome.reason) <= 1000
    assert "\n" not in outcome.reason


@given(st.text(), st.sampled_from([ValueError, Reject, ExpiredError, SystemExit]))
def test_a_reason_is_one_short_line(text: str, kind: type[BaseException]) -> None:
    outcome = decide(kind(text), 4, PLAIN)
    assert isinstance(outcome, Dead)
    assert outcome.reason
    assert len(outcome.reason.splitlines()) == 1
    assert len(outcome.reason) <= 1000
