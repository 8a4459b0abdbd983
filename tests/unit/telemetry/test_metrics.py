"""What is counted, under which names, and what a gauge shows when nobody knows."""

import asyncio
import math
import re
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec import Struct
from msgspec.structs import replace
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics

from penstock import events
from penstock.errors import ConfigurationError, ServerUnreachableError
from penstock.events import Event, Scope
from penstock.overview import ConsumerView, GroupView, Lag, TopicView
from penstock.telemetry import Metrics
from penstock.telemetry.gauges import Gauges, Topic

WHERE = {"topic": "orders", "group": "billing"}


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


def value(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    return registry.get_sample_value(f"penstock_{name}", {**WHERE, **labels})


COUNTED: list[tuple[Event, str, float]] = [
    (events.Handled(500, 1.5, **WHERE), "handled_total", 500),
    (events.Handled(500, 1.5, **WHERE), "handler_seconds_total", 1.5),
    (events.Parked("u", "1-1", 2, 1.0, "why", **WHERE), "parked_total", 1),
    (events.Promoted(7, **WHERE), "promoted_total", 7),
    (events.DeadLettered("u", "1-1", 5, "why", "", **WHERE), "dead_lettered_total", 1),
    (events.Skipped("u", "1-1", "why", **WHERE), "skipped_total", 1),
    (events.Reclaimed(9, 2, **WHERE), "reclaimed_total", 9),
    (events.Fenced(("1-1", "1-2"), **WHERE), "fenced_total", 2),
    (events.LeaseLost(("1-1", "1-2", "1-3"), **WHERE), "leases_lost_total", 3),
    (events.HandlerStuck("u", "1-1", 9.0, True, **WHERE), "handlers_stuck_total", 1),
    (events.Lost("1-1", "2-2", 12, "why", **WHERE), "lost_total", 12),
    (events.Lost("1-1", "2-2", None, "why", **WHERE), "lost_uncounted_total", 1),
    (events.GroupRestored("0-0", False, **WHERE), "groups_restored_total", 1),
    (events.Trimmed(1000, "1-1", None, **WHERE), "trimmed_total", 1000),
    (events.DeadLettersDropped(4, **WHERE), "dead_letters_dropped_total", 4),
    (events.Replayed("r", 6, **WHERE), "replayed_total", 6),
    (events.TicksDropped("clean", 1.0, **WHERE), "ticks_dropped_total", 1),
    (events.Gapped("1-1", "2-2", 7, "too slow", **WHERE), "follower_gaps_total", 1),
    (events.CursorSought("u", 100, **WHERE), "cursor_scans_total", 1),
]


UNUSUAL: list[Event] = [
    events.Failed("u", "1-1", None, 1, ValueError(), **WHERE),
    events.Trouble(Scope.READ, ValueError(), **WHERE),
]


@pytest.mark.parametrize(("event", "name", "amount"), COUNTED, ids=lambda case: case if isinstance(case, str) else "")
def test_every_event_counts_what_it_stands_for(
    registry: CollectorRegistry, event: Event, name: str, amount: float
) -> None:
    metrics = Metrics(registry)
    metrics(event)
    metrics(event)
    assert value(registry, name) == 2 * amount


def test_counters_are_there_before_the_first_event_so_that_a_first_loss_is_a_rise(registry: CollectorRegistry) -> None:
    metrics = Metrics(registry)
    metrics(events.Started("c", **WHERE))
    assert {name: value(registry, name) for _, name, _ in COUNTED} == {name: 0 for _, name, _ in COUNTED}
    metrics(events.Lost("1-1", "2-2", 12, "why", **WHERE))
    metrics(events.Started("another", **WHERE))
    assert value(registry, "lost_total") == 12


def test_no_event_is_forgotten(registry: CollectorRegistry) -> None:
    counted = {type(event) for event, _, _ in COUNTED} | {events.Failed, events.Trouble}
    assert counted | {events.Started, events.Stopped, events.PauseChanged} == set(Event.__subclasses__())


def test_failures_are_told_apart_by_class_and_troubles_by_scope(registry: CollectorRegistry) -> None:
    metrics = Metrics(registry)
    for error in (ValueError("a"), ValueError("b"), KeyError("c")):
        metrics(events.Failed("u", "1-1", None, 1, error, **WHERE))
    metrics(events.Trouble(Scope.READ, ServerUnreachableError("x"), **WHERE))
    assert value(registry, "failed_total", error="ValueError") == 2
    assert value(registry, "failed_total", error="KeyError") == 1
    assert value(registry, "troubles_total", scope="read") == 1


def test_classes_without_end_do_not_make_series_without_end(registry: CollectorRegistry) -> None:
    metrics = Metrics(registry, most_errors=10)
    for number in range(100):
        error = type(f"Error{number}", (Exception,), {})()
        metrics(events.Failed("u", "1-1", None, 1, error, **WHERE))
    assert value(registry, "failed_total", error="other") == 90
    assert value(registry, "failed_total", error="Error9") == 1
    assert value(registry, "failed_total", error="Error10") is None


def test_unknown_losses_are_not_counted_as_none(registry: CollectorRegistry) -> None:
    metrics = Metrics(registry)
    metrics(events.Lost("1-1", "2-2", None, "why", **WHERE))
    assert value(registry, "lost_total") == 0
    assert value(registry, "lost_uncounted_total") == 1


def test_a_registry_takes_only_one_and_says_so(registry: CollectorRegistry) -> None:
    Metrics(registry)
    with pytest.raises(ConfigurationError, match="already"):
        Metrics(registry)


def test_without_the_package_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(ConfigurationError, match=r"penstock\[metrics\]"):
        Metrics()


def test_the_default_registry_is_used_when_none_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = CollectorRegistry()
    monkeypatch.setattr("prometheus_client.REGISTRY", registry)
    Metrics()(events.Promoted(1, **WHERE))
    assert value(registry, "promoted_total") == 1


def test_the_reference_lists_every_metric_and_its_labels(registry: CollectorRegistry) -> None:
    metrics = Metrics(registry)
    metrics._gauges.show([topic(group())])
    for event in [*(event for event, _, _ in COUNTED), *UNUSUAL]:
        metrics(event)
    found = {
        sample.name: ", ".join(sample.labels)
        for family in registry.collect()
        for sample in family.samples
        if not sample.name.endswith("_created")
    }
    page = Path(__file__).resolve().parents[3] / "docs" / "reference" / "metrics.md"
    listed = re.findall(r"^\| `(penstock_\w+)` \| ([a-z, ]*)\|", page.read_text(), re.MULTILINE)
    assert {name: labels.strip() for name, labels in listed} == found


# Gauges.


def group(name: str = "billing", lag: Lag = Lag("exact", 5, 1.5)) -> GroupView:  # noqa: B008 - frozen
    consumers = (ConsumerView("a", 1, timedelta(0)), ConsumerView("b", 2, timedelta(0)))
    return GroupView(
        name=name, topic="orders", lag=lag, oldest_unsettled=timedelta(seconds=90), pending=3, parked=4,
        parked_due=None, ready=2, paused=True, last_delivered="1-1", consumers=consumers,
    )  # fmt: skip


def topic(*groups: GroupView) -> TopicView:
    return TopicView("orders", None, exists=True, length=100, dead=6, later=7, groups=groups)


def shown(*groups: GroupView) -> CollectorRegistry:
    registry, gauges = CollectorRegistry(), Gauges()
    registry.register(gauges)
    gauges.show([topic(*groups)])
    return registry


def test_gauges_show_what_the_overview_saw() -> None:
    registry = shown(group())
    expected = {
        "lag_seconds": 1.5, "oldest_unsettled_seconds": 90, "pending_entries": 3, "parked_deliveries": 4,
        "ready_deliveries": 2, "consumers": 2, "paused": 1,
    }  # fmt: skip
    assert {name: value(registry, name) for name in expected} == expected
    assert value(registry, "lag_messages", state="exact") == 5
    for name, amount in {"entries": 100, "dead_letters": 6, "delayed_messages": 7}.items():
        assert registry.get_sample_value(f"penstock_{name}", {"topic": "orders"}) == amount


def test_a_lag_that_nobody_knows_is_no_number() -> None:
    registry = shown(group("a", Lag("unknown", None, None)), group("b", Lag("estimated", 8, 2.0)))
    unknown = value(registry, "lag_messages", group="a", state="unknown")
    assert unknown is not None
    assert math.isnan(unknown)
    assert value(registry, "lag_seconds", group="a") is None
    assert value(registry, "lag_messages", group="b", state="estimated") == 8


def test_an_age_that_nobody_knows_is_not_shown_and_that_of_nothing_is_none() -> None:
    unsettled = replace(group("a"), oldest_unsettled=None)
    settled = replace(unsettled, name="b", lag=Lag("exact", 0, 0.0), pending=0, parked=0, ready=0)
    registry = shown(unsettled, settled)
    assert value(registry, "oldest_unsettled_seconds", group="a") is None
    assert value(registry, "oldest_unsettled_seconds", group="b") == 0


def test_before_the_first_look_there_are_no_gauges(registry: CollectorRegistry) -> None:
    Metrics(registry)
    assert "penstock_lag" not in generate_latest(registry).decode()
    assert "penstock_overview_age" not in generate_latest(registry).decode()


def test_gauges_that_tell_of_the_past_go_away_and_say_how_old_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr("penstock.telemetry.gauges.time.monotonic", lambda: now[0])
    registry, gauges = CollectorRegistry(), Gauges()
    registry.register(gauges)
    gauges.good_for = 45.0
    gauges.show([topic(group())])
    now[0] += 45
    assert value(registry, "pending_entries") == 3
    now[0] += 1
    assert value(registry, "pending_entries") is None
    assert registry.get_sample_value("penstock_overview_age_seconds") == 46


def test_both_formats_can_be_written_with_any_name(registry: CollectorRegistry) -> None:
    metrics = Metrics(registry)
    metrics(events.Promoted(1, topic='a"b\nc', group="é{}"))
    metrics._gauges.show([topic(group('x"y\n'))])
    assert b"penstock_promoted_total" in generate_latest(registry)
    assert b"penstock_promoted_total" in generate_openmetrics(registry)


class Looks(Struct):
    """Answers of a server that is sometimes away."""

    answers: list[Sequence[Topic] | Exception]
    asked: int = 0

    async def __call__(self) -> Sequence[Topic]:
        self.asked += 1
        answer = self.answers[min(self.asked, len(self.answers)) - 1]
        if isinstance(answer, Exception):
            raise answer
        return answer


async def test_following_survives_a_server_that_is_away(registry: CollectorRegistry) -> None:
    metrics = Metrics(registry)
    looks = Looks([[topic(group("old"))], ServerUnreachableError("away"), [topic(group("new"))]])
    following = asyncio.create_task(metrics.follow(looks, every=timedelta(milliseconds=1)))
    async with asyncio.timeout(30):
        while value(registry, "pending_entries", group="new") is None:
            await asyncio.sleep(0.001)
    following.cancel()
    assert registry.get_sample_value("penstock_overview_failures_total") == 1
    assert value(registry, "pending_entries", group="old") is None


async def test_following_does_not_hide_a_bug(registry: CollectorRegistry) -> None:
    with pytest.raises(ZeroDivisionError):
        await Metrics(registry).follow(Looks([ZeroDivisionError()]))


async def test_a_wrong_interval_is_refused(registry: CollectorRegistry) -> None:
    with pytest.raises(ConfigurationError, match="every"):
        await Metrics(registry).follow(Looks([[]]), every=timedelta(0))
