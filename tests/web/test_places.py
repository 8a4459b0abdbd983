"""What a request may say about where to begin."""

from datetime import UTC, datetime

import pytest

from penstock import Last
from penstock.errors import ConfigurationError
from penstock.web.places import place

UUID = "019a8f00-0000-7000-8000-000000000001"


@pytest.mark.parametrize(
    ("after", "means"),
    [
        (None, "latest"),
        ("latest", "latest"),
        ("earliest", "earliest"),
        ("last:5", Last(5)),
        ("last:10000", Last(10000)),
        ("1700000000000-3", "1700000000000-3"),
        ("1700000000000", "1700000000000"),
        ("00ff.1700000000000-3", "00ff.1700000000000-3"),
        ("00ff.1700000000000-3.12", "00ff.1700000000000-3.12"),
        (UUID, UUID),
        ("2026-01-31T12:00:00Z", datetime(2026, 1, 31, 12, tzinfo=UTC)),
        ("2026-01-31T13:00:00+01:00", datetime(2026, 1, 31, 12, tzinfo=UTC)),
    ],
)
def test_every_kind_of_place_is_understood(after: str | None, means: object) -> None:
    assert place(after, None) == means


@pytest.mark.parametrize(
    "after", ["", "newest", "last:0", "last:-1", "last:10001", "last:9999999", "2026-01-31T12:00:00", "1-2-3", "$"]
)
def test_anything_else_is_refused_with_what_there_is(after: str) -> None:
    with pytest.raises(ConfigurationError, match="earliest, latest, last:N"):
        place(after, None)


@pytest.mark.parametrize("last_id", ["00ff.5-0", "00ff.5-0.7", "5-0", UUID])
def test_the_last_event_counts_for_more_than_the_address(last_id: str) -> None:
    assert place("earliest", last_id) == last_id


@pytest.mark.parametrize(
    "last_id",
    [
        "latest",
        "x",
        "00ff.",
        "5-0-0",
        "99999999999999999999999-0",
        "last:5",
        "5-0.7",
        "00ff.5-0.",
        "00ff.5-0.-7",
        "00ff.5-0.7.7",
    ],
)
def test_a_last_event_id_that_nobody_gave_is_refused(last_id: str) -> None:
    with pytest.raises(ConfigurationError, match="Last-Event-ID"):
        place(None, last_id)
