"""Where a new group begins, and what a plan refuses."""

import os
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.backend import keys
from penstock.delivery.plan import Plan, start_id, unique_consumer
from penstock.errors import ConfigurationError
from penstock.options import Subscription

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LAST_SEQUENCE = 2**64 - 1


def first_read(start: str) -> tuple[int, int]:
    """The smallest entry id that a group which begins at `start` is given."""
    ms, _, sequence = start.partition("-")
    following = int(sequence or 0) + 1
    return (int(ms), following) if following <= LAST_SEQUENCE else (int(ms) + 1, 0)


@given(st.integers(1000, 253402300799999999))
@example(1089767159906000)
@example(1794744000000999)
@example(253402300799999999)
def test_a_moment_begins_with_the_first_entry_of_its_millisecond(microseconds: int) -> None:
    assert first_read(start_id(EPOCH + timedelta(microseconds=microseconds))) == (microseconds // 1000, 0)


@given(st.integers(0, 10**15), st.integers(-86399, 86399))
def test_a_moment_is_the_same_in_every_time_zone(microseconds: int, offset: int) -> None:
    moment = EPOCH + timedelta(microseconds=microseconds)
    assert start_id(moment) == start_id(moment.astimezone(timezone(timedelta(seconds=offset))))


@pytest.mark.parametrize("moment", [EPOCH, datetime(1066, 10, 14, tzinfo=UTC), datetime.min.replace(tzinfo=UTC)])
def test_a_moment_before_all_entries_begins_with_the_first(moment: datetime) -> None:
    assert first_read(start_id(moment)) <= (1, 0)


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("earliest", "0"),
        ("latest", "$"),
        ("0", "0"),
        ("5-0", "5-0"),
        ("1794744000000-3", "1794744000000-3"),
        (f"{2**64 - 1}-{2**64 - 1}", f"{2**64 - 1}-{2**64 - 1}"),
    ],
)
def test_words_and_entry_ids_are_taken_as_they_are(start: str, expected: str) -> None:
    assert start_id(start) == expected


@pytest.mark.parametrize(
    "start",
    [
        "",
        "first",
        "Earliest",
        "$",
        ">",
        "-",
        "+",
        "1-",
        "-1",
        "1-2-3",
        "1.5",
        " 1-0",
        "1-0\n",
        "\N{FULLWIDTH DIGIT ONE}-0",
        f"{2**64}",
        f"1-{2**64}",
        "9" * 21,
        0,
        1.5,
        None,
        b"0",
        timedelta(seconds=1),
        datetime(2026, 1, 31),  # noqa: DTZ001
    ],
    ids=repr,
)
def test_anything_else_is_refused_where_it_is_written(start: object) -> None:
    with pytest.raises(ConfigurationError):
        start_id(start)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "wrong",
    [
        {"topic": ""},
        {"topic": "a\nb"},
        {"topic": "penstock:{orders}:orders:dead"},
        {"group": ""},
        {"group": None},
        {"group": "x" * 257},
        {"lease": timedelta(milliseconds=99)},
        {"lease": 30},
        {"concurrency": 0},
        {"concurrency": True},
        {"concurrency": 1.5},
        {"chunk": 0},
        {"retry": 5},
        {"retry": None},
        {"options": {"timeout": 5}},
        {"options": None},
    ],
    ids=repr,
)
def test_a_plan_that_cannot_work_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError):
        Plan(**{"topic": "orders", "group": "billing", **wrong})  # type: ignore[arg-type]


def test_a_group_reads_its_topic_and_its_own_retries() -> None:
    plan = Plan(topic="orders", group="billing")
    assert set(plan.streams) == {"orders", keys.retry("orders", "billing")}


def test_a_consumer_has_its_own_name_unless_it_is_given_one() -> None:
    named = Plan(topic="orders", group="billing", options=Subscription(consumer="me"))
    assert named.consumer == "me"
    assert len({Plan(topic="orders", group="billing").consumer for _ in range(100)}) == 100
    assert str(os.getpid()) in unique_consumer()


@pytest.mark.parametrize("host", ["", "h" * 300, "h\u00e4user"])
def test_any_host_name_makes_a_consumer_the_server_takes(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: host)
    keys.check_name("consumer", unique_consumer())
