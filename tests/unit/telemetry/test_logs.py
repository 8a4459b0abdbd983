"""Logs are few, structured, in one line each, and quote no payload."""

import asyncio
import logging
import threading
from datetime import timedelta

import pytest
from msgspec.structs import fields

from penstock import events
from penstock.errors import BodyMismatchError, ConfigurationError, MalformedError, ServerUnreachableError
from penstock.events import Event, Scope
from penstock.telemetry import Logs
from penstock.telemetry.brake import Brake, Kind
from tests.support.waiting import ENOUGH

WHERE = {"topic": "orders", "group": "billing"}
LEVELS = {
    events.Started: logging.INFO,
    events.Stopped: logging.INFO,
    events.Handled: logging.DEBUG,
    events.Failed: logging.INFO,
    events.Parked: logging.DEBUG,
    events.Promoted: logging.DEBUG,
    events.DeadLettered: logging.WARNING,
    events.Skipped: logging.DEBUG,
    events.Reclaimed: logging.INFO,
    events.Fenced: logging.WARNING,
    events.LeaseLost: logging.WARNING,
    events.HandlerStuck: logging.ERROR,
    events.Lost: logging.ERROR,
    events.GroupRestored: logging.WARNING,
    events.Trimmed: logging.DEBUG,
    events.DeadLettersDropped: logging.INFO,
    events.Replayed: logging.INFO,
    events.Gapped: logging.WARNING,
    events.CursorSought: logging.INFO,
    events.TicksDropped: logging.WARNING,
    events.PauseChanged: logging.INFO,
    events.Trouble: logging.WARNING,
}


def example(cls: type[Event], text: str = "x", error: BaseException | None = None) -> Event:
    """An event of this class whose every text is `text`."""
    values: dict[type | object, object] = {
        str: text,
        int: 3,
        float: 0.5,
        bool: True,
        str | None: text,
        int | None: None,
        BaseException: error or ValueError(text),
        Scope: Scope.READ,
        tuple[str, ...]: (text, text),
    }
    return cls(**{field.name: values[field.type] for field in fields(cls)} | {"topic": text, "group": text})


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG, "penstock")
    return caplog


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_every_event_has_its_level_and_a_logger_of_its_own(logged: pytest.LogCaptureFixture) -> None:
    assert set(LEVELS) == set(Event.__subclasses__())
    for cls, level in LEVELS.items():
        logged.clear()
        Logs()(example(cls))
        (record,) = logged.records
        assert record.levelno == level, cls
        assert record.name.startswith("penstock.")
        assert record.__dict__["event"] == cls.__name__
        assert (record.__dict__["topic"], record.__dict__["group"]) == ("x", "x")
        assert record.getMessage().startswith("x, group x: ")
    assert len({logging.getLogger(name) for name in ("penstock.dead_lettered", "penstock.lost")}) == 2


def test_the_facts_are_attributes_of_the_record(logged: pytest.LogCaptureFixture) -> None:
    Logs()(events.DeadLettered("01a1", "5-1", 5, "ValueError: why", "builtins.ValueError", **WHERE))
    (record,) = logged.records
    facts = record.__dict__
    assert record.name == "penstock.dead_lettered"
    assert (facts["message_id"], facts["entry_id"], facts["attempts"]) == ("01a1", "5-1", 5)
    assert facts["error"] == "ValueError"
    assert record.getMessage() == (
        "orders, group billing: message 01a1 (entry 5-1) dead-lettered after attempt 5: ValueError"
    )


def test_what_happens_to_a_topic_alone_names_no_group(logged: pytest.LogCaptureFixture) -> None:
    Logs()(events.Trouble(Scope.UPKEEP, ServerUnreachableError("away"), topic="orders", group=""))
    assert logged.records[0].getMessage().startswith("orders: trouble in upkeep: ")


@pytest.mark.parametrize(
    ("id", "reason", "error", "said"),
    [
        ("01a1", "it was begun 5 times by workers that died", "", "it was begun 5 times by workers that died"),
        (
            "01a1",
            "it expired before it was handled",
            "penstock.errors.ExpiredError",
            "it expired before it was handled",
        ),
        ("01a1", "canary", "penstock.Reject", "penstock.Reject"),
        ("01a1", "canary: canary", "shop.BankError", "shop.BankError"),
        (
            "01a1",
            "its payload cannot be read as OrderPlaced: ValidationError: canary",
            "penstock.errors.BodyMismatchError",
            "its payload cannot be read as OrderPlaced",
        ),
        (None, "no payload", "", "no payload"),
        (None, "ValidationError: bad 'canary'", "", "ValidationError"),
        (None, "duplicate key 'canary' in a JSON object", "", "duplicate key"),
    ],
)
def test_a_dead_letter_says_why_in_words_that_quote_nobody(
    logged: pytest.LogCaptureFixture, id: str | None, reason: str, error: str, said: str
) -> None:
    event = events.DeadLettered(id, "5-1", 5, reason, error, **WHERE)
    Logs()(event)
    Logs(texts=True)(event)
    plain, with_texts = logged.records
    assert plain.getMessage().endswith(f": {said}")
    assert "canary" not in str(plain.__dict__)
    assert with_texts.getMessage().endswith(f": {reason}")
    assert ("01a1" in plain.getMessage()) is (id is not None)
    assert "None" not in plain.getMessage()


def test_dead_letters_of_different_errors_are_all_told_of(logged: pytest.LogCaptureFixture) -> None:
    logs = Logs(clock=Clock())
    for error in ("builtins.ValueError", "shop.BankError", "builtins.ValueError"):
        logs(events.DeadLettered("01a1", "5-1", 5, "why", error, **WHERE))
    assert [record.__dict__["error"] for record in logged.records] == ["ValueError", "shop.BankError"]


def test_an_event_that_logs_do_not_know_yet_is_told_all_the_same(logged: pytest.LogCaptureFixture) -> None:
    cls = type("BrandNew", (events.Promoted,), {}, frozen=True)
    Logs()(cls(count=1, **WHERE))
    assert [(record.name, record.levelno) for record in logged.records] == [("penstock.brand_new", logging.DEBUG)]


def test_what_an_error_says_is_its_class_and_the_line_that_raised_it(logged: pytest.LogCaptureFixture) -> None:
    with pytest.raises(KeyError) as caught:
        {}["secret"]
    Logs()(events.Failed("01a1", "5-1", "Order", 2, caught.value, **WHERE))
    (record,) = logged.records
    assert record.__dict__["error"] == "KeyError"
    assert record.__dict__["where"].startswith(__file__)
    assert "what_an_error_says" in record.__dict__["where"]
    assert "attempt 2 at message 01a1 failed: KeyError raised at" in record.getMessage()


@pytest.mark.parametrize("cls", LEVELS)
def test_no_words_of_users_code_are_logged_unless_asked_for(logged: pytest.LogCaptureFixture, cls: type[Event]) -> None:
    quoting = {"error": ValueError("canary")} if "error" in cls.__struct_fields__ else {}
    if cls in (events.Parked, events.DeadLettered):
        quoting = {"reason": "ValueError: canary"}
    values = {name: getattr(example(cls), name) for name in cls.__struct_fields__} | quoting
    for texts in (False, True):
        logged.clear()
        Logs(texts=texts)(cls(**values))
        (record,) = logged.records
        assert ("canary" in str(record.__dict__) + record.getMessage()) is (texts and bool(quoting))


def test_our_own_words_say_what_to_do_and_are_logged(logged: pytest.LogCaptureFixture) -> None:
    Logs()(events.Trouble(Scope.READ, ServerUnreachableError("is the server up?"), **WHERE))
    Logs()(events.Trouble(Scope.UPKEEP, MalformedError("orders", "1-1", "bad canary", ()), **WHERE))
    assert "is the server up?" in logged.records[0].getMessage()
    assert "canary" not in logged.records[1].getMessage()


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def test_a_body_that_does_not_fit_is_not_quoted_by_whatever_tells_of_it(logged: pytest.LogCaptureFixture) -> None:
    error = BodyMismatchError("its payload cannot be read as Order: ValueError: card canary is no card")
    for event in (failed(error), events.Trouble(Scope.DROP, error, **WHERE)):
        Logs()(event)
        Logs(texts=True)(event)
    for plain, with_texts in (logged.records[:2], logged.records[2:]):
        assert plain.getMessage().endswith("its payload cannot be read as Order")
        assert "canary" not in str(plain.__dict__)
        assert "canary" in with_texts.getMessage()


def test_an_error_that_cannot_speak_is_told_of(logged: pytest.LogCaptureFixture) -> None:
    Logs(texts=True)(events.Trouble(Scope.SETTLE, Mute(), **WHERE))
    (record,) = logged.records
    assert "Mute" in record.getMessage()


@pytest.mark.parametrize("cls", LEVELS)
def test_control_characters_never_reach_the_log(logged: pytest.LogCaptureFixture, cls: type[Event]) -> None:
    nasty = "a\nERROR forged\r\x1b[2J\u2028\u202e\ud800%s%(x)s"
    Logs(texts=True)(example(cls, nasty, type("E\nforged", (Exception,), {})(nasty)))
    (record,) = logged.records
    shown = [record.getMessage(), *(value for value in record.__dict__.values() if isinstance(value, str))]
    shown += [one for value in record.__dict__.values() if isinstance(value, list) for one in value]
    assert all(text.isprintable() for text in shown)
    assert "\\nERROR forged\\r\\x1b[2J\\u2028\\u202e\\ud800%s%(x)s" in record.getMessage()


def test_long_values_are_cut(logged: pytest.LogCaptureFixture) -> None:
    Logs(texts=True)(example(events.DeadLettered, "x" * 100_000))
    Logs()(events.Fenced(tuple("1-1" for _ in range(10_000)), **WHERE))
    assert all(len(record.getMessage()) < 2000 for record in logged.records)
    assert len(logged.records[1].__dict__["entry_ids"]) == 10
    assert logged.records[1].__dict__["entry_ids_count"] == 10_000


def failed(error: BaseException, topic: str = "orders") -> Event:
    return events.Failed("01a1", "5-1", None, 1, error, topic=topic, group="billing")


@pytest.mark.parametrize("start", [0.0, 3.0])
def test_the_same_error_is_logged_once_per_interval_with_a_count_of_the_rest(
    logged: pytest.LogCaptureFixture, start: float
) -> None:
    clock = Clock()
    logs = Logs(every=timedelta(seconds=10), clock=clock)
    clock.now = start
    for _ in range(1000):
        logs(failed(ValueError("a")))
        logs(failed(ValueError("b")))
        clock.now += 0.0099
    assert [record.__dict__["held_back"] for record in logged.records] == [0]
    clock.now = start + 10.0
    logs(failed(ValueError()))
    assert sum(record.__dict__["held_back"] for record in logged.records) == 1999
    assert sum("1999 more" in record.getMessage() for record in logged.records) == 1
    assert len(logged.records) <= 3


def test_another_error_topic_or_kind_is_not_held_back(logged: pytest.LogCaptureFixture) -> None:
    logs = Logs(clock=Clock())
    for event in (failed(ValueError()), failed(KeyError()), failed(ValueError(), "mail")):
        logs(event)
        logs(event)
    logs(events.Trouble(Scope.HANDLER, ValueError(), **WHERE))
    assert len(logged.records) == 4


def test_what_was_held_back_is_told_even_if_it_never_comes_again(logged: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    logs = Logs(every=timedelta(seconds=10), clock=clock)
    for _ in range(5):
        logs(failed(ValueError()))
    logged.clear()
    clock.now = 11.0
    logs(events.Handled(1, 0.1, **WHERE))
    summary, handled = logged.records
    assert (summary.name, summary.levelno, summary.__dict__["held_back"]) == ("penstock.failed", logging.INFO, 4)
    assert summary.getMessage() == "orders, group billing: 4 more Failed ValueError not logged"
    assert handled.name == "penstock.handled"


def test_what_was_held_back_is_told_when_the_worker_stops(logged: pytest.LogCaptureFixture) -> None:
    logs = Logs(clock=Clock())
    for topic in ("orders", "mail"):
        for _ in range(5):
            logs(failed(ValueError(), topic))
    logged.clear()
    for _ in range(2):
        logs(events.Stopped("w1", 0, 0, **WHERE))
    assert [record.getMessage() for record in logged.records if record.name == "penstock.failed"] == [
        "orders, group billing: 4 more Failed ValueError not logged"
    ]


async def test_what_was_held_back_is_told_though_nothing_happens_any_more(logged: pytest.LogCaptureFixture) -> None:
    logs = Logs(every=timedelta(seconds=0.2))
    for _ in range(5):
        logs(failed(ValueError()))
    async with asyncio.timeout(ENOUGH):
        while len(logged.records) < 2:
            await asyncio.sleep(0.005)
    assert [record.__dict__["held_back"] for record in logged.records] == [0, 4]


def test_a_pause_and_its_end_are_both_told(logged: pytest.LogCaptureFixture) -> None:
    logs = Logs(clock=Clock())
    for paused in (True, False, True):
        logs(events.PauseChanged(paused, **WHERE))
    assert [record.__dict__["paused"] for record in logged.records] == [True, False, True]


def test_a_level_that_is_off_makes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "penstock")
    logs = Logs()
    logs(failed(ValueError()))
    assert not caplog.records
    assert not logs._brake._seen


def test_the_memory_of_what_was_logged_is_bounded() -> None:
    clock = Clock()
    brake = Brake(10.0, clock)
    let_through = [brake.let_through(Kind("Failed", "t", "g", f"E{number}")) for number in range(5000)]
    assert len(brake._seen) <= Brake.MOST_KINDS + 1
    assert sum(one is not None for one in let_through) <= Brake.MOST_KINDS + 1
    clock.now = 10.0
    assert sum(held for _, held in brake.overdue()) == 5000 - Brake.MOST_KINDS - 1
    assert not brake._seen


def test_many_threads_lose_no_count() -> None:
    clock = Clock()
    brake = Brake(10.0, clock)
    kind = Kind("Failed", "t", "g", "E")

    def hammer() -> None:
        for _ in range(5000):
            brake.let_through(kind)

    threads = [threading.Thread(target=hammer) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    clock.now = 10.0
    assert brake.overdue() == [(kind, 8 * 5000 - 1)]


def test_a_wrong_interval_is_refused_where_it_is_written() -> None:
    with pytest.raises(ConfigurationError, match="every"):
        Logs(every=10)  # type: ignore[arg-type]
