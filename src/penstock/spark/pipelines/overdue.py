"""What is still expected, and what is overdue: the state of one rule and one thing that messages are about.

Time is the frontier of `ticking`, up to which everything has been read. So a message that did come in time is known
when its deadline has passed, however late, in whatever order and from whichever topic it was read.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from uuid import UUID, uuid5

import msgspec
from msgspec import Struct, field
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
    ValueState,
)
from pyspark.sql.types import StringType, StructField, StructType

from penstock.spark.pipelines.alert_rules import Alert

_ALERTS = UUID("0b8f3b5c-7a35-4b0e-9a55-2f3d1f7f6c11")
_STATE = StructType([StructField("expectation", StringType())])
AFTER, EXPECT = "after", "expect"


class Open(Struct, frozen=True, array_like=True):
    """A message that another one must follow."""

    ms: int
    topic: str
    entry_id: str
    id: str | None


class Expectation(Struct):
    """What is known of one rule and one thing. Empty, it need not be kept."""

    open: list[Open] = field(default_factory=list)
    seen: list[int] = field(default_factory=list)
    """When expected messages were, as long as something that they answer may still be read."""

    timer: int = 0
    """When to look again; 0 if no timer is set."""

    def add(self, rule: Alert, opened: Iterable[Open], seen: Iterable[int]) -> None:
        known = {(one.topic, one.entry_id) for one in self.open} | {one.id for one in self.open}
        for one in opened:
            if (one.topic, one.entry_id) not in known and (one.id is None or one.id not in known):
                self.open.append(one)
                known |= {(one.topic, one.entry_id), one.id}
        self.seen = sorted({*self.seen, *seen})
        self.open = [one for one in self.open if not self._is_answered(rule, one)]

    def take_overdue(self, rule: Alert, now_ms: int) -> list[Open]:
        """What nobody answered in time; it is forgotten, and so is what cannot answer anything any more."""
        overdue = [one for one in self.open if one.ms + rule.within_ms <= now_ms]
        self.open = [one for one in self.open if one.ms + rule.within_ms > now_ms]
        self.seen = [ms for ms in self.seen if ms + rule.early_ms > now_ms]
        return overdue

    def next_look(self, rule: Alert) -> int:
        """0 if there is nothing to wait for."""
        moments = [one.ms + rule.within_ms for one in self.open] + [ms + rule.early_ms for ms in self.seen]
        return min(moments, default=0)

    def _is_answered(self, rule: Alert, one: Open) -> bool:
        if rule.after == rule.expect:
            return any(one.ms < ms <= one.ms + rule.within_ms for ms in self.seen)
        return any(one.ms - rule.early_ms <= ms <= one.ms + rule.within_ms for ms in self.seen)


def alert_id(rule: str, key: str, one: Open) -> str:
    """The same for the same alert, whenever and wherever it is made."""
    return str(uuid5(_ALERTS, "\0".join((rule, key, one.topic, one.entry_id))))


class Overdue(StatefulProcessor):
    """Keeps an `Expectation` for each rule and key, on Spark's state store, with an event-time timer for the next look.

    Rows have `rule`, `about`, `role`, `topic`, `entry_id`, `id` and `ms`.
    """

    def __init__(self, rules: Mapping[str, Alert]) -> None:
        self._rules = dict(rules)

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._state: ValueState = handle.getValueState("expectation", _STATE)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: TimerValues) -> Iterator[Row]:  # noqa: N802, N803
        rule = self._rules.get(key[0])
        if rule is None:  # a tick is about nothing
            return iter(())
        found = self._load()
        opened, seen = [], []
        for row in rows:
            if row.role == AFTER:
                opened.append(Open(row.ms, row.topic, row.entry_id, row.id))
            else:
                seen.append(row.ms)
        found.add(rule, sorted(opened, key=lambda one: (one.ms, one.topic, one.entry_id)), seen)
        self._keep(rule, found)
        return iter(())

    def handleExpiredTimer(  # noqa: N802
        self,
        key: Any,
        timerValues: TimerValues,  # noqa: N803
        expiredTimerInfo: ExpiredTimerInfo,  # noqa: N803
    ) -> Iterator[Row]:
        rule, found = self._rules.get(key[0]), self._load()
        if rule is None:  # there is no such rule any more
            self._state.clear()
            return
        overdue = found.take_overdue(rule, timerValues.getCurrentWatermarkInMs())
        found.timer = 0  # Spark takes away the one that has run out
        self._keep(rule, found)
        for one in overdue:
            yield Row(
                id=alert_id(rule.name, key[1], one), rule=rule.name, about=key[1], topic=one.topic,
                entry_id=one.entry_id, message=one.id, ms=one.ms, due=one.ms + rule.within_ms,
            )  # fmt: skip

    def _load(self) -> Expectation:
        # Asked first, because Spark logs a warning whenever a value is taken that is not there.
        found = self._state.get() if self._state.exists() else None
        return Expectation() if found is None else msgspec.json.decode(found[0], type=Expectation)

    def _keep(self, rule: Alert, found: Expectation) -> None:
        wanted = found.next_look(rule)
        if wanted != found.timer:
            if found.timer:
                self._handle.deleteTimer(found.timer)
            if wanted:
                self._handle.registerTimer(wanted)
            found.timer = wanted
        if wanted:
            self._state.update((msgspec.json.encode(found).decode(),))
        else:
            self._state.clear()
