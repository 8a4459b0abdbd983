"""How much is read at a time: what is read is hidden from other workers, so no more than is soon begun."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.delivery import appetite as module
from penstock.delivery.appetite import Appetite


class Clock:
    """Stands for the monotonic clock: it moves when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=clock.monotonic))
    return clock


def feast(appetite: Appetite, clock: Clock, *, reads: int, free: int, per_second: float) -> list[int]:
    """The sizes of `reads` full reads, with so many deliveries finished per second in between."""
    sizes, finished = [], 0.0
    for _ in range(reads):
        clock.now += 0.05
        finished += per_second * 0.05
        count = appetite.next(free, int(finished))
        appetite.got(count, count, 200)
        sizes.append(count)
    return sizes


def test_the_first_read_is_small(clock: Clock) -> None:
    assert Appetite().next(free=100, finished=0) == 16
    assert Appetite().next(free=3, finished=0) == 3


def test_nobody_free_and_nothing_finished_means_wait(clock: Clock) -> None:
    appetite = Appetite()
    for _ in range(5):
        clock.now += 1
        assert appetite.next(free=0, finished=0) == 0


def test_a_backlog_doubles_the_reads_up_to_a_thousand(clock: Clock) -> None:
    sizes = feast(Appetite(), clock, reads=20, free=100, per_second=1_000_000)
    assert sizes[:4] == [16, 32, 64, 128]
    assert max(sizes) == sizes[-1] == 1000
    assert sizes == sorted(sizes)


def test_reads_stay_within_a_tenth_of_a_second_of_work(clock: Clock) -> None:
    sizes = feast(Appetite(), clock, reads=30, free=0, per_second=400)
    assert 20 <= sizes[-1] <= 40
    assert max(sizes) <= 60


def test_handlers_that_become_slow_are_given_less(clock: Clock) -> None:
    appetite = Appetite()
    feast(appetite, clock, reads=20, free=100, per_second=1_000_000)
    sizes = []
    for _ in range(40):
        clock.now += 1
        sizes.append(appetite.next(free=1, finished=0))
    assert sizes[-1] == 1


def test_a_short_read_does_not_make_the_next_one_larger(clock: Clock) -> None:
    appetite = Appetite()
    appetite.got(3, 16, 200)
    assert appetite.next(free=1000, finished=0) == 16
    appetite.got(16, 16, 200)
    assert appetite.next(free=1000, finished=0) == 32


def test_large_entries_are_read_few_at_a_time(clock: Clock) -> None:
    appetite = Appetite()
    for _ in range(10):
        appetite.got(1000, 1000, 200)
    appetite.got(4, 4, 1024 * 1024)
    assert appetite.next(free=1000, finished=0) <= 8
    appetite.got(1, 1, 64 * 1024 * 1024)
    assert appetite.next(free=1000, finished=0) == 1


def test_an_empty_read_teaches_nothing_and_harms_nothing(clock: Clock) -> None:
    appetite = Appetite()
    appetite.got(0, 16, 0)
    assert appetite.next(free=100, finished=0) == 16


def test_reading_ahead_is_for_those_who_will_begin_it_in_time(clock: Clock) -> None:
    appetite = Appetite()
    assert not appetite.may_read_ahead(1)
    feast(appetite, clock, reads=20, free=100, per_second=10_000)
    assert appetite.may_read_ahead(500)
    assert not appetite.may_read_ahead(5000)


@given(
    st.lists(st.tuples(st.integers(0, 200), st.integers(0, 5000), st.floats(0, 5), st.integers(0, 3000)), max_size=30)
)
def test_a_read_is_never_negative_nor_beyond_a_thousand(steps: list[tuple[int, int, float, int]]) -> None:
    clock, appetite, finished = Clock(), Appetite(), 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "time", SimpleNamespace(monotonic=clock.monotonic))
        for free, more, seconds, size in steps:
            clock.now += seconds
            finished += more
            count = appetite.next(free, finished)
            assert 0 <= count <= 1000
            assert count >= min(free, 1)
            if count:
                appetite.got(count, count, size)
