"""Counters and gauges for Prometheus.

Counters come from events, as this process sees them. Gauges come from the overview, which looks at the server: they are
the same wherever they are asked for, so one process that follows it is enough.
"""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from penstock import events
from penstock.errors import ConfigurationError, PenstockError
from penstock.events import Event, Trouble
from penstock.options import check_count, check_duration
from penstock.telemetry.gauges import Gauges, Topic

if TYPE_CHECKING:
    from prometheus_client import Counter
    from prometheus_client.registry import CollectorRegistry

Look = Callable[[], Awaitable[Sequence[Topic]]]

_STALE_AFTER = 3  # looks that failed or came too late

_COUNTED: dict[type[Event], tuple[str, str, Callable[[Any], float]]] = {
    events.Parked: ("parked", "Deliveries put aside until their next attempt.", lambda event: 1),
    events.Promoted: ("promoted", "Parked deliveries that became ready again.", lambda event: event.count),
    events.DeadLettered: ("dead_lettered", "Deliveries given up and kept among the dead letters.", lambda event: 1),
    events.Skipped: ("skipped", "Deliveries settled without a handler.", lambda event: 1),
    events.Reclaimed: ("reclaimed", "Entries taken over from consumers without a sign of life.",
                       lambda event: event.count),
    events.Fenced: ("fenced", "Handled entries that another consumer held by then.",
                    lambda event: len(event.entry_ids)),
    events.LeaseLost: ("leases_lost", "Entries lost while their handlers ran.", lambda event: len(event.entry_ids)),
    events.HandlerStuck: ("handlers_stuck", "Handlers that outlived their timeout and would not end.", lambda event: 1),
    events.Lost: ("lost", "Messages gone that the group never settled, as far as they could be counted.",
                  lambda event: event.count or 0),
    events.GroupRestored: ("groups_restored", "Times the group had vanished and was made again.", lambda event: 1),
    events.Trimmed: ("trimmed", "Settled entries dropped from the topic.", lambda event: event.removed),
    events.DeadLettersDropped: ("dead_letters_dropped", "Dead letters that fell off: too many or too old.",
                                lambda event: event.count),
    events.Gapped: ("follower_gaps", "Gaps that followers without a group were told of.", lambda event: 1),
    events.CursorSought: ("cursor_scans", "Times a topic was looked through for a message to read on behind.",
                          lambda event: 1),
    events.TicksDropped: ("ticks_dropped", "Times that missed ticks of a schedule were not made up for.",
                          lambda event: 1),
    events.Replayed: ("replayed", "Dead letters given back to their group.", lambda event: event.count),
}  # fmt: skip
_GROUP = ("topic", "group")


class Metrics:
    """A listener that counts: `app.listen(Metrics())`. Needs the extra `penstock[metrics]`.

    It registers with `registry`, or else with the default one, and there can be one of it in each. Of the error classes
    that handlers raise, the first `most_errors` are told apart; the rest count as `other`.
    """

    def __init__(self, registry: "CollectorRegistry | None" = None, *, most_errors: int = 50) -> None:
        try:
            import prometheus_client
        except ImportError:
            raise ConfigurationError(
                "Metrics needs the package prometheus-client: install it with `pip install 'penstock[metrics]'`"
            ) from None
        check_count("Metrics(most_errors=...)", most_errors)
        self._registry = registry if registry is not None else prometheus_client.REGISTRY
        self._most_errors = most_errors
        self._errors: set[str] = set()
        self._lock = threading.Lock()
        self._gauges = Gauges()
        try:
            self._handled = self._counter("handled", "Deliveries whose handlers returned and which are settled.")
            self._make_counters()
            self._registry.register(self._gauges)
        except ValueError:
            raise ConfigurationError(
                "this registry has Penstock's metrics already: make one Metrics for it, and let every app use that"
            ) from None

    def __call__(self, event: Event) -> None:
        topic, group = event.topic, event.group
        if isinstance(event, events.Started):
            self._begin(topic, group)
        elif isinstance(event, events.Handled):
            self._handled.labels(topic, group).inc(event.count)
            self._seconds.labels(topic, group).inc(event.seconds)
        elif isinstance(event, events.Failed):
            self._failed.labels(topic, group, self._error_class(event.error)).inc()
        elif isinstance(event, Trouble):
            self._troubles.labels(topic, group, event.scope.value).inc()
        elif (counted := self._counters.get(type(event))) is not None:
            counter, amount = counted
            counter.labels(topic, group).inc(amount(event))
            if isinstance(event, events.Lost) and event.count is None:
                self._lost_uncounted.labels(topic, group).inc()

    async def follow(self, look: Look, *, every: timedelta = timedelta(seconds=15)) -> None:
        """Keep the gauges fresh until cancelled: `asyncio.create_task(metrics.follow(overview.topics))`.

        Scraping never waits for the server. When looks fail, the gauges go away after a while rather than tell of the
        past; `penstock_overview_age_seconds` stays and says how old they were.
        """
        check_duration("Metrics.follow(every=...)", every)
        self._gauges.good_for = _STALE_AFTER * every.total_seconds()
        while True:
            started = time.monotonic()
            try:
                self._gauges.show(await look())
            except PenstockError:
                self._look_failures.inc()
            await asyncio.sleep(max(0.0, started + every.total_seconds() - time.monotonic()))

    def _begin(self, topic: str, group: str) -> None:
        """Have every counter of the group at 0: in one that begins with its first event, nobody sees a rise."""
        others = [counter for counter, _ in self._counters.values()]
        for counter in (self._handled, self._seconds, self._lost_uncounted, *others):
            counter.labels(topic, group)

    def _make_counters(self) -> None:
        self._seconds = self._counter("handler_seconds", "Time spent in the handlers of handled deliveries.")
        self._failed = self._counter("failed", "Handlers that raised or ran out of time.", "error")
        self._troubles = self._counter("troubles", "Errors that the engine tries to get over.", "scope")
        self._lost_uncounted = self._counter("lost_uncounted", "Losses of which nobody can know how many they were.")
        self._look_failures = self._counter("overview_failures", "Looks at the server that failed.", labels=())
        self._counters = {cls: (self._counter(name, text), amount) for cls, (name, text, amount) in _COUNTED.items()}

    def _counter(self, name: str, text: str, *more: str, labels: tuple[str, ...] = _GROUP) -> "Counter":
        from prometheus_client import Counter

        return Counter(f"penstock_{name}", text, (*labels, *more), registry=self._registry)

    def _error_class(self, error: BaseException) -> str:
        name = type(error).__name__
        if name in self._errors:
            return name
        with self._lock:
            if len(self._errors) >= self._most_errors:
                return "other"
            self._errors.add(name)
        return name
