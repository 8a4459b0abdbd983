"""When schedules tick: time zones, the hour that is left out, the hour that comes twice, and ticks that were missed."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ConfigurationError
from penstock.jobs.timetable import Due, Missed, Timetable, timetable_of


def ms(moment: str | datetime) -> int:
    return int((datetime.fromisoformat(moment) if isinstance(moment, str) else moment).timestamp()) * 1000


def ticks(expression: str, start: str, end: str, zone: str = "Europe/Berlin") -> list[str]:
    """As UTC, without the day's century."""
    found = []
    for tick in Timetable(expression, zone, Missed()).after(ms(start)):
        if tick > ms(end):
            return found
        found.append(f"{datetime.fromtimestamp(tick / 1000, UTC):%m-%d %H:%M}")
    return found


def test_the_times_are_those_of_the_zone() -> None:
    start, end = "2026-07-01T00:00Z", "2026-07-01T23:59Z"
    assert ticks("0 9 * * *", start, end, "UTC") == ["07-01 09:00"]
    assert ticks("0 9 * * *", start, end) == ["07-01 07:00"]
    assert ticks("0 9 * * *", start, end, "Asia/Kathmandu") == ["07-01 03:15"]


def test_what_a_day_in_spring_leaves_out_comes_right_behind_the_gap() -> None:
    # At 01:00 UTC of 29 March it is 03:00 where it was 02:00.
    assert ticks("30 2 * * *", "2026-03-28T00:00Z", "2026-03-30T12:00Z") == [
        "03-28 01:30",
        "03-29 01:00",
        "03-30 00:30",
    ]
    assert ticks("0 2,3 * * *", "2026-03-29T00:00Z", "2026-03-29T12:00Z") == ["03-29 01:00"]


def test_what_a_day_in_autumn_repeats_comes_once() -> None:
    # At 01:00 UTC of 25 October it is 02:00 for the second time.
    assert ticks("30 2 * * *", "2026-10-24T12:00Z", "2026-10-26T12:00Z") == ["10-25 00:30", "10-26 01:30"]


def test_what_ticks_every_so_often_does_so_through_both_changes() -> None:
    assert ticks("*/30 * * * *", "2026-03-29T00:00Z", "2026-03-29T02:00Z") == [
        "03-29 00:30", "03-29 01:00", "03-29 01:30", "03-29 02:00",
    ]  # fmt: skip
    assert ticks("*/30 * * * *", "2026-10-25T00:00Z", "2026-10-25T02:00Z") == [
        "10-25 00:30", "10-25 01:00", "10-25 01:30", "10-25 02:00",
    ]  # fmt: skip


def test_a_worker_that_starts_in_the_hour_that_came_before_has_no_tick_in_the_past() -> None:
    # 02:10 for the second time: 02:30 of the first is over, and that was the one.
    table = Timetable("30 2 * * *", "Europe/Berlin", Missed())
    now = ms("2026-10-25T01:10Z")
    assert table.next(now) == ms("2026-10-26T01:30Z")
    assert table.due(ms("2026-10-24T23:00Z"), now) == Due([ms("2026-10-25T00:30Z")], ms("2026-10-25T00:30Z"), False)


SOME = st.sampled_from(
    [
        "* * * * *",
        "*/7 * * * *",
        "30 2 * * *",
        "0 2,3 * * *",
        "15,45 1-3 * * 0",
        "0 0 1 * *",
        "*/10 2 * * *",
        "5/20 */2 * * *",
    ]
)
MOMENT = st.integers(ms("2026-03-27T00:00Z") // 1000, ms("2026-03-31T00:00Z") // 1000) | st.integers(
    ms("2026-10-23T00:00Z") // 1000, ms("2026-10-27T00:00Z") // 1000
)


@given(SOME, MOMENT, st.integers(0, 3 * 86400), st.integers(1, 5), st.none() | st.integers(1, 86400))
def test_what_is_owed_is_what_one_finds_by_looking_at_every_tick(
    expression: str, last: int, span: int, most: int, within: int | None
) -> None:
    missed = Missed(most, None if within is None else timedelta(seconds=within))
    table, now = Timetable(expression, "Europe/Berlin", missed), (last + span) * 1000
    every = []
    for tick in table.after(last * 1000):
        if tick > now:
            break
        every.append(tick)
    assert every == sorted(set(every))
    due = table.due(last * 1000, now)
    if not every:
        assert due is None
        return
    wanted = [tick for tick in every[-most:] if within is None or tick >= now - within * 1000]
    assert due == Due(wanted, every[-1], len(wanted) < len(every))


@pytest.mark.parametrize(
    ("missed", "came", "dropped"),
    [
        (Missed.latest(), ["03"], True),
        (Missed.all(), ["01", "02", "03"], False),
        (Missed.all(2), ["02", "03"], True),
        (Missed.all(within=timedelta(hours=2)), ["02", "03"], True),
        (Missed.skip(), [], True),
        (Missed.skip(timedelta(hours=1)), ["03"], True),
    ],
)
def test_what_becomes_of_ticks_that_nobody_was_there_for(missed: Missed, came: list[str], dropped: bool) -> None:
    due = Timetable("0 * * * *", "UTC", missed).due(ms("2026-01-01T00:00Z"), ms("2026-01-01T03:30Z"))
    assert due is not None
    assert [f"{datetime.fromtimestamp(tick / 1000, UTC):%H}" for tick in due.ticks] == came
    assert due.up_to == ms("2026-01-01T03:00Z")
    assert due.dropped is dropped


def test_a_tick_that_is_on_time_is_not_missed() -> None:
    due = Timetable("0 * * * *", "UTC", Missed.skip()).due(ms("2026-01-01T02:00Z"), ms("2026-01-01T03:00:01Z"))
    assert due == Due([ms("2026-01-01T03:00Z")], ms("2026-01-01T03:00Z"), False)


def test_a_year_of_seconds_is_owed_without_counting_them(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Timetable("* * * * * *", "Europe/Berlin", Missed.all(100))
    looked_at, after = 0, table.after

    def counted(start: int) -> object:
        nonlocal looked_at
        for tick in after(start):
            looked_at += 1
            yield tick

    monkeypatch.setattr(table, "after", counted)
    now = ms("2026-06-01T00:00Z")
    due = table.due(now - 365 * 86400 * 1000, now)
    assert due is not None
    assert len(due.ticks) == 100
    assert looked_at < 1000


@pytest.mark.parametrize(
    ("expression", "timezone", "said"),
    [
        ("61 * * * *", "UTC", "Bad minute"),
        ("* * * *", "UTC", "Wrong number of fields"),
        ("@daily", "UTC", "Wrong number of fields"),
        ("", "UTC", "Wrong number of fields"),
        ("* * * * 5L/2", "UTC", "cannot be read"),
        ("* * */20 * 1L", "UTC", "never ticks"),
        (5, "UTC", "expression"),
        ("* * * * *", "Europe/Atlantis", "Europe/Atlantis"),
        ("* * * * *", "Europe", "tzdata"),
        ("* * * * *", "../UTC", "not known"),
        ("* * * * *", "", "not known"),
        ("* * * * *", None, "timezone"),
    ],
)
def test_what_cannot_be_read_is_refused(expression: str, timezone: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        Timetable(expression, timezone, Missed())


@given(st.text("0123456789*/,-LW#MON ", max_size=20) | st.text(max_size=20))
def test_any_text_ticks_or_is_refused(expression: str) -> None:
    try:
        table = Timetable(expression, "Europe/Berlin", Missed())
    except ConfigurationError:
        return
    assert table.next(ms("2026-01-01T00:00Z")) is not None
    assert timetable_of(table.times).times == table.times


def test_options_that_cannot_work_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="most"):
        Missed.all(0)
    with pytest.raises(ConfigurationError, match="at most 1000"):
        Missed.all(1001)
    with pytest.raises(ConfigurationError, match="within"):
        Missed.skip(timedelta(0))
    with pytest.raises(ConfigurationError, match="missed"):
        Timetable("* * * * *", "UTC", "skip")  # type: ignore[arg-type]
