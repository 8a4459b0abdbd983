"""Limits and splits: nothing more than asked, nothing left out, nobody starved."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.spark.source.planning import Split, shares, sizes

BACKLOGS = st.dictionaries(st.text("abcdef", min_size=1, max_size=3), st.integers(0, 10_000), max_size=8)


@given(BACKLOGS, st.integers(1, 30_000))
def test_a_limit_is_shared_and_used_up(backlogs: dict[str, int], limit: int) -> None:
    given_out = shares(limit, backlogs)
    assert given_out.keys() == backlogs.keys()
    assert all(0 <= given_out[name] <= backlogs[name] for name in backlogs)
    assert sum(given_out.values()) == min(limit, sum(backlogs.values()))


@given(BACKLOGS, st.integers(8, 30_000))
def test_no_stream_starves(backlogs: dict[str, int], limit: int) -> None:
    given_out = shares(limit, backlogs)
    assert all(given_out[name] for name in backlogs if backlogs[name])


def test_shares_follow_the_backlogs() -> None:
    assert shares(100, {"big": 3000, "small": 1000, "idle": 0}) == {"big": 75, "small": 25, "idle": 0}
    assert shares(10, {"big": 1_000_000, "one": 1}) == {"big": 9, "one": 1}


@given(st.integers(1, 10**6), st.integers(1, 500))
def test_parts_are_equal_and_complete(rows: int, pieces: int) -> None:
    found = sizes(rows, min(rows, pieces))
    assert sum(found) == rows
    assert max(found) - min(found) <= 1


@given(BACKLOGS, st.integers(1, 50), st.one_of(st.none(), st.integers(1, 500)))
def test_there_are_enough_pieces_and_none_is_empty(rows: dict[str, int], least: int, each: int | None) -> None:
    found = Split(least, each).pieces(rows)
    assert all(0 < found[name] <= rows[name] for name in rows if rows[name])
    assert sum(found.values()) >= min(least, sum(rows.values()))
    if each is not None:
        assert all(max(sizes(rows[name], found[name])) <= each for name in rows if rows[name])


def test_without_options_a_stream_is_one_piece() -> None:
    assert not Split()
    assert Split().pieces({"a": 5, "b": 0}) == {"a": 1, "b": 0}
