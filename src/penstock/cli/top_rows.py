"""What `penstock top` shows: how each group of each topic stands, and how fast it goes, from one look to the next."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from penstock.cli.standing import group_row, weight
from penstock.diagnosis.case import Patience
from penstock.overview import GroupView, TopicView

Order: TypeAlias = Literal["lag", "rate", "name"]
Row: TypeAlias = dict[str, Any]
COLUMNS = (
    "topic", "group", "published_rate", "read_rate", "lag", "behind", "pending", "parked", "dead", "consumers", "note",
)  # fmt: skip
_NOTHING = (False, 0)
_QUIET = Patience().quiet
_LONGEST_NOTE = 48  # in a table: what is longer takes the place of other rows, or has none; penstock ls tells all of it


def rows_of(before: Sequence[TopicView], now: Sequence[TopicView], order: Order, *, for_people: bool) -> list[Row]:
    """One row for each group, and for each topic without any. A rate is None if nobody can know it.

    Which of its groups gave up a topic's dead letters is not looked at: their number is in the first row of the topic.
    """
    known = {topic.name: topic for topic in before}
    rows = [found for topic in now for found in _of_topic(known.get(topic.name), topic, for_people=for_people)]
    told = [row for _, row in sorted(rows, key=lambda found: _place(found[0], found[1], order))]
    seen = set[str]()
    for row in told:
        if row["topic"] in seen:
            row["dead"] = None
        seen.add(row["topic"])
    return told


def _of_topic(before: TopicView | None, now: TopicView, *, for_people: bool) -> Iterable[tuple[tuple[bool, int], Row]]:
    """Each with how much its lag weighs."""
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
        "note": _shortened(now.problem) if for_people and now.problem else now.problem,
    }
    read = {group.name: group.read for group in before.groups} if before else {}
    for group in now.groups:
        own = {"read_rate": _rate(read.get(group.name), group.read, seconds), "note": _note(group)}
        yield weight(group.lag), facts | group_row(group, for_people=for_people) | own
    if not now.groups:
        yield _NOTHING, dict.fromkeys(COLUMNS) | facts


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_NOTE else f"{text[: _LONGEST_NOTE - 1]}…"


def _note(group: GroupView) -> str | None:
    """What keeps it from being read, who reads it where no consumer is seen, and retries that nobody has begun."""
    readers = {
        "workers": None if _is_read(group) else "nobody reads",
        "sequence": f"read in sequence by {group.holder}" if group.holder else "nobody has the turn",
        "cursor": "a cursor, as of Spark",
    }
    ready = f"{group.ready:,} ready to be retried" if group.ready else None
    return ", ".join(filter(None, ("paused" if group.paused else None, readers[group.read_by], ready))) or None


def _is_read(group: GroupView) -> bool:
    """Somebody was heard of lately. Of a paused group nobody can tell: who is there is silent on purpose."""
    return any(group.paused or one.idle <= _QUIET for one in group.consumers)


def _rate(before: int | None, now: int | None, seconds: float) -> float | None:
    if before is None or now is None or now < before or seconds <= 0:
        return None
    return round((now - before) / seconds, 1)


def _place(lag: tuple[bool, int], row: Mapping[str, Any], order: Order) -> tuple[float, float, str, str]:
    is_unknown, messages = lag
    first = {"lag": (-is_unknown, -messages), "rate": (-(row["published_rate"] or 0), 0), "name": (0, 0)}[order]
    return *first, row["topic"], row["group"] or ""
