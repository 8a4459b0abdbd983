"""Whose turn it is among lanes: the urgent ones first, and none of the others never."""

from collections import Counter
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from penstock.delivery.shares import Shares


class Queue:
    """Lanes with so many jobs, served as the server does: step by step, until the count is reached."""

    def __init__(self, *jobs: int, bound: int = 16) -> None:
        self.left = list(jobs)
        self.shares = Shares(len(jobs), bound)
        self.served: list[int] = []

    def read(self, count: int) -> Counter[int]:
        taken: Counter[int] = Counter()
        turn = self.shares.turn(count, range(len(self.left)))
        for lane, most in (*turn.owed, *turn.rest):
            some = min(most, self.left[lane], count - taken.total())
            self.left[lane] -= some
            taken[lane] += some
            self.served += [lane] * some
        self.shares.took(taken, turn, count)
        return taken


def test_the_first_read_is_all_for_the_most_urgent() -> None:
    assert Queue(100, 100, 100).read(10) == {0: 10, 1: 0, 2: 0}


def test_one_at_a_time_each_lower_lane_has_every_sixteenth() -> None:
    queue = Queue(1000, 1000, 1000)
    for _ in range(320):
        queue.read(1)
    assert Counter(queue.served) == {0: 281, 1: 19, 2: 20}
    gaps = [at for at, lane in enumerate(queue.served) if lane == 2]
    assert max(later - earlier for earlier, later in pairwise(gaps)) <= 17


@given(st.lists(st.integers(1, 200), min_size=20, max_size=60), st.integers(4, 32))
def test_no_lane_gets_less_than_its_share_over_many_reads(counts: list[int], bound: int) -> None:
    queue = Queue(10**6, 10**6, 10**6, bound=bound)
    counts += [1] * 300  # until what was owed is made good
    for count in counts:
        queue.read(count)
    served, total = Counter(queue.served), sum(counts)
    for lane in (1, 2):
        assert total / bound - 2 <= served[lane] <= total / bound + max(counts) / bound + 2


def test_what_an_empty_lane_was_owed_is_not_saved_up() -> None:
    queue = Queue(10**6, 0, 0)
    for _ in range(1000):
        queue.read(10)
    queue.left[2] = 10**6
    assert queue.read(10)[2] <= 2
    assert sum(queue.read(10)[2] for _ in range(100)) <= 100


def test_without_urgent_work_the_others_have_everything() -> None:
    assert Queue(0, 0, 50).read(10) == {0: 0, 1: 0, 2: 10}
