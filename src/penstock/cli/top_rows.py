"""What `penstock top` shows: how each group of each topic stands, and how fast it goes, from one look to the next."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from penstock.overview import GroupView, TopicView

Order: TypeAlias = Literal["lag", "rate", "name"]
Row: TypeAlias = dict[str, Any]
COLUMNS = (
    "topic", "group", "length", "published_rate", "read_rate", "lag", "behind", "held", "waiting", "dead", "consumers",
    "note",
)  # fmt: skip


def rows_of(before: "Sequence[TopicView]", now: "Sequence[TopicView]", order: Order) -> list[Row]:
    """One row for each group, and for each topic without any. A rate is None if nobody can know it."""
    known = {topic.name: topic for topic in before}
    rows = [row for topic in now for row in _of_topic(known.get(topic.name), topic)]
    return sorted(rows, key=_ORDERS[order])


def _of_topic(before: "TopicView | None", now: "TopicView") -> Iterable[Row]:
    if before is None or before.epoch != now.epoch:
        before = None
    seconds = (now.at - before.at).total_seconds() if before and before.at and now.at else 0.0
    facts: Row = {
        "at": now.at,
        "topic": now.name,
        "group": None,
        "length": now.length,
        "published_rate": _rate(before.published if before else None, now.published, seconds),
        "dead": now.dead,
        "note": now.problem,
    }
    read = {group.name: group.read for group in before.groups} if before else {}
    yield from (facts | _of_group(group, read, seconds) for group in now.groups)
    if not now.groups:
        yield facts


def _of_group(group: "GroupView", read: Mapping[str, int | None], seconds: float) -> Row:
    lag = group.lag
    return {
        "group": group.name,
        "read_rate": _rate(read.get(group.name), group.read, seconds),
        "lag": lag.messages,
        "lag_state": lag.state,
        "behind": None if lag.seconds is None else timedelta(seconds=lag.seconds),
        "held": group.pending,
        "waiting": group.parked + group.ready,
        "consumers": len(group.consumers),
        "note": _note(group),
    }


def _note(group: "GroupView") -> str | None:
    said = []
    if group.paused:
        said.append("paused")
    if not group.consumers:
        said.append("nobody reads")
    if group.lag.state != "exact":
        said.append(f"lag is {group.lag.state}")
    return ", ".join(said) or None


def _rate(before: int | None, now: int | None, seconds: float) -> float | None:
    if before is None or now is None or now < before or seconds <= 0:
        return None
    return round((now - before) / seconds, 1)


_ORDERS: Mapping[Order, Any] = {
    "lag": lambda row: (-(row.get("lag") or 0), row["topic"], row["group"] or ""),
    "rate": lambda row: (-(row["published_rate"] or 0), row["topic"], row["group"] or ""),
    "name": lambda row: (row["topic"], row["group"] or ""),
}
