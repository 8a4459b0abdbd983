"""Listeners that fail harm nobody: neither the message they were told of, nor the log."""

import logging

import pytest

from penstock import events
from penstock.events import Event, Listeners

WHERE = {"topic": "orders", "group": "billing"}
EVENT = events.Promoted(1, **WHERE)


class Broken:
    def __call__(self, event: Event) -> None:
        raise ValueError("a bug of its own")

    def __repr__(self) -> str:
        return "<Broken>"


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The clock, to be set."""
    now = [1000.0]
    monkeypatch.setattr("penstock.events.time.monotonic", lambda: now[0])
    return now


def test_a_listener_that_fails_on_everything_is_logged_now_and_then_with_a_count(
    caplog: pytest.LogCaptureFixture, now: list[float]
) -> None:
    listeners, heard = Listeners(), []
    listeners.listen(Broken())
    listeners.listen(heard.append)
    for _ in range(3000):
        listeners.emit(EVENT)
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("penstock", logging.ERROR)
    assert record.getMessage() == "the listener <Broken> failed on Promoted"
    assert record.exc_info is not None
    now[0] += 60
    listeners.emit(EVENT)
    assert caplog.records[1].getMessage() == (
        "the listener <Broken> failed on Promoted; 2999 more failures of it were not logged"
    )
    now[0] += 60
    listeners.emit(EVENT)
    assert caplog.records[2].getMessage() == record.getMessage()
    assert heard == [EVENT] * 3002


def test_one_that_fails_hides_no_other(caplog: pytest.LogCaptureFixture, now: list[float]) -> None:
    listeners = Listeners()
    for _ in range(2):
        listeners.listen(Broken())
    listeners.emit(EVENT)
    assert len(caplog.records) == 2


def test_who_listens_twice_and_ends_one_still_listens() -> None:
    listeners, heard = Listeners(), []
    listener = heard.append
    forget = listeners.listen(listener)
    listeners.listen(listener)
    listeners.emit(EVENT)
    forget()
    forget()
    listeners.emit(EVENT)
    assert heard == [EVENT] * 3
