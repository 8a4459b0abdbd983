"""The delay between attempts: grows, is capped, is spread; and no accepted option makes it fail."""

from datetime import timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.errors import ConfigurationError
from penstock.options import Retry

LONGEST = timedelta(days=36500)
DURATIONS = st.timedeltas(min_value=timedelta(0), max_value=LONGEST)


@st.composite
def retries(draw: st.DrawFn) -> Retry:
    """Anything that Retry accepts."""
    initial, maximum = sorted([draw(DURATIONS), draw(DURATIONS)])
    factor = draw(st.floats(1, 100) | st.integers(1, 100))
    return Retry(draw(st.integers(1, 10**6)), initial, maximum, factor, draw(st.booleans()))


@given(retries(), st.integers(1, 10**9))
@example(Retry(initial=LONGEST, maximum=LONGEST, jitter=False), 1)
@example(Retry(initial=LONGEST, maximum=LONGEST, factor=100, jitter=False), 10**9)
def test_no_delay_is_below_nothing_or_above_the_maximum(retry: Retry, attempt: int) -> None:
    assert timedelta(0) <= retry.delay(attempt) <= retry.maximum


@given(retries(), st.integers(1, 500))
def test_without_jitter_a_delay_never_shrinks(retry: Retry, attempt: int) -> None:
    steady = Retry(retry.attempts, retry.initial, retry.maximum, retry.factor, jitter=False)
    assert steady.delay(attempt) <= steady.delay(attempt + 1)
    assert steady.delay(attempt) == steady.delay(attempt)


def test_the_delays_of_the_defaults_are_those_that_are_documented() -> None:
    steady = Retry(attempts=20, jitter=False)
    seconds = [steady.delay(attempt).total_seconds() for attempt in range(1, 12)]
    assert seconds == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]
    assert (Retry().attempts, Retry().jitter) == (5, True)


def test_jitter_spreads_over_everything_up_to_the_delay() -> None:
    spread = Retry(attempts=9, initial=timedelta(seconds=8), maximum=timedelta(seconds=8))
    delays = [spread.delay(1).total_seconds() for _ in range(500)]
    # By chance alone each of these is wrong less than once in 10^60 runs.
    assert min(delays) < 2
    assert max(delays) > 6
    assert len(set(delays)) > 400


@pytest.mark.parametrize(
    "wrong",
    [
        {"attempts": 0},
        {"attempts": -1},
        {"attempts": 2.0},
        {"attempts": True},
        {"attempts": "5"},
        {"attempts": None},
        {"initial": timedelta(microseconds=-1)},
        {"initial": 1},
        {"initial": None},
        {"maximum": timedelta(milliseconds=999)},
        {"maximum": 300},
        {"maximum": timedelta.max},
        {"factor": 0.99},
        {"factor": 0},
        {"factor": -2},
        {"factor": float("nan")},
        {"factor": float("inf")},
        {"factor": 101},
        {"factor": "2"},
        {"factor": None},
        {"jitter": "no"},
    ],
    ids=repr,
)
def test_what_cannot_work_is_refused_where_it_is_written(wrong: dict[str, object]) -> None:
    (name,) = wrong
    with pytest.raises(ConfigurationError, match=name):
        Retry(**wrong)  # type: ignore[arg-type]
