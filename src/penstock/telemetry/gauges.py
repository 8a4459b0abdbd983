"""What the overview saw last, as Prometheus gauges."""

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from prometheus_client.core import GaugeMetricFamily


class Lag(Protocol):
    @property
    def state(self) -> str: ...
    @property
    def messages(self) -> int | None: ...
    @property
    def seconds(self) -> float | None: ...


class Group(Protocol):
    """What of a group in the overview becomes a gauge."""

    @property
    def name(self) -> str: ...
    @property
    def lag(self) -> Lag: ...
    @property
    def oldest_unsettled(self) -> timedelta | None: ...
    @property
    def pending(self) -> int: ...
    @property
    def parked(self) -> int: ...
    @property
    def ready(self) -> int: ...
    @property
    def consumers(self) -> Sequence[object]: ...
    @property
    def paused(self) -> bool: ...


class Topic(Protocol):
    """What of a topic in the overview becomes a gauge."""

    @property
    def name(self) -> str: ...
    @property
    def length(self) -> int: ...
    @property
    def dead(self) -> int: ...
    @property
    def later(self) -> int: ...
    @property
    def groups(self) -> Sequence[Group]: ...


_GROUP_GAUGES = {
    "lag_seconds": "How long the oldest message that the group was not given yet has been waiting.",
    "oldest_unsettled_seconds": "Age of the oldest message that the group has not settled, at least.",
    "pending_entries": "Entries that consumers of the group hold.",
    "parked_deliveries": "Deliveries that wait until their next attempt is due.",
    "ready_deliveries": "Deliveries whose next attempt is due, and which nobody holds yet.",
    "consumers": "Consumers of the group.",
    "paused": "1 if the group is paused.",
}
_TOPIC_GAUGES = {
    "entries": "Entries that the topic holds.",
    "dead_letters": "Dead letters of all groups of the topic.",
    "delayed_messages": "Messages that are not on the topic yet, because they are not due.",
}
_LAG = "Messages that the group was not given yet. NaN where nobody can know: see the label `state`."
_AGE = "How long ago the server was looked at, for all gauges beside this one."


class Gauges:
    """A collector that tells of the last look at the server, as long as that is not too long ago."""

    def __init__(self) -> None:
        self.good_for = float("inf")
        """Seconds after which a look tells of the past and is not shown any more."""

        self._lock = threading.Lock()
        self._topics: Sequence[Topic] = ()
        self._seen_at: float | None = None

    def show(self, topics: Sequence[Topic]) -> None:
        with self._lock:
            self._topics, self._seen_at = topics, time.monotonic()

    def describe(self) -> "Iterable[GaugeMetricFamily]":
        """Empty families: so that registering notices a name that is taken."""
        return self._families().values()

    def collect(self) -> "Iterator[GaugeMetricFamily]":
        with self._lock:
            topics, seen_at = self._topics, self._seen_at
        if seen_at is None:
            return
        families = self._families()
        age = time.monotonic() - seen_at
        families["overview_age_seconds"].add_metric([], age)
        if age <= self.good_for:
            for topic in topics:
                _add_topic(families, topic)
        yield from families.values()

    def _families(self) -> "dict[str, GaugeMetricFamily]":
        from prometheus_client.core import GaugeMetricFamily

        group, topic = ("topic", "group"), ("topic",)
        families = {
            name: GaugeMetricFamily(f"penstock_{name}", text, labels=labels)
            for texts, labels in ((_GROUP_GAUGES, group), (_TOPIC_GAUGES, topic))
            for name, text in texts.items()
        }
        families["lag_messages"] = GaugeMetricFamily("penstock_lag_messages", _LAG, labels=(*group, "state"))
        families["overview_age_seconds"] = GaugeMetricFamily("penstock_overview_age_seconds", _AGE, labels=())
        return families


def _add_topic(families: "dict[str, GaugeMetricFamily]", topic: Topic) -> None:
    for name, value in (("entries", topic.length), ("dead_letters", topic.dead), ("delayed_messages", topic.later)):
        families[name].add_metric([topic.name], value)
    for group in topic.groups:
        _add_group(families, [topic.name, group.name], group)


def _add_group(families: "dict[str, GaugeMetricFamily]", labels: list[str], group: Group) -> None:
    lag = group.lag
    # NaN, not 0 and not nothing: a comparison with it is never true, and yet the series says that somebody looked.
    messages = float("nan") if lag.messages is None else lag.messages
    families["lag_messages"].add_metric([*labels, lag.state], messages)
    values = {
        "lag_seconds": lag.seconds,
        "oldest_unsettled_seconds": _oldest(group),
        "pending_entries": group.pending,
        "parked_deliveries": group.parked,
        "ready_deliveries": group.ready,
        "consumers": len(group.consumers),
        "paused": int(group.paused),
    }
    for name, value in values.items():
        if value is not None:
            families[name].add_metric(labels, value)


def _oldest(group: Group) -> float | None:
    if group.oldest_unsettled is not None:
        return group.oldest_unsettled.total_seconds()
    is_settled = group.lag.messages == 0 and not (group.pending or group.parked or group.ready)
    return 0.0 if is_settled else None
