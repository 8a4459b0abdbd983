"""How topics and groups stand, as rows: what `ls`, `topic info` and `group` print."""

from datetime import timedelta
from typing import Any

from penstock.overview import GroupView, Lag, TopicView

TOPIC_COLUMNS = (
    "topic",
    "length",
    "groups",
    "lag",
    "pending",
    "parked",
    "ready",
    "dead",
    "later",
    "pinned_by",
    "problem",
)
GROUP_COLUMNS = ("group", "lag", "behind", "pending", "parked", "ready", "oldest", "consumers", "paused")
CONSUMER_COLUMNS = ("consumer", "pending", "idle")


def topic_row(topic: TopicView, *, for_people: bool) -> dict[str, Any]:
    """Its lag is that of the group that is furthest behind."""
    worst = max((group.lag for group in topic.groups), key=weight, default=None)
    return {
        "topic": topic.name,
        "exists": topic.exists,
        "length": topic.length,
        "groups": len(topic.groups),
        **_lag(worst, for_people=for_people),
        "pending": sum(group.pending for group in topic.groups),
        "parked": sum(group.parked for group in topic.groups),
        "ready": sum(group.ready for group in topic.groups),
        "dead": topic.dead,
        "later": topic.later,
        "pinned_by": None if topic.pin is None else str(topic.pin),
        "pinned_since": topic.pin.since if topic.pin is not None else None,
        "problem": topic.problem,
    }


def topic_facts(topic: TopicView) -> dict[str, Any]:
    """All that is known of it, but for its groups."""
    return {
        "topic": topic.name,
        "at": topic.at,
        "length": topic.length,
        "first_id": topic.first_id,
        "last_id": topic.last_id,
        "epoch": topic.epoch,
        "dead": topic.dead,
        "later": topic.later,
        "later_due": topic.later_due,
        "cursors": dict(topic.cursors),
        "pinned_by": None if topic.pin is None else str(topic.pin),
        "pinned_since": topic.pin.since if topic.pin is not None else None,
    }


def group_row(group: GroupView, *, for_people: bool) -> dict[str, Any]:
    return {
        "group": group.name,
        "topic": group.topic,
        **_lag(group.lag, for_people=for_people),
        "pending": group.pending,
        "parked": group.parked,
        "parked_due": group.parked_due,
        "ready": group.ready,
        "oldest": group.oldest_unsettled,
        "consumers": len(group.consumers),
        "paused": group.paused,
        "last_delivered": group.last_delivered,
    }


def consumer_rows(group: GroupView) -> list[dict[str, Any]]:
    return [{"consumer": one.name, "pending": one.pending, "idle": one.idle} for one in group.consumers]


def lag_text(lag: Lag) -> str:
    """A number, with ≤ where it is at most so many, and ? where nobody knows."""
    if lag.messages is None:
        return "?"
    return f"{'' if lag.state == 'exact' else '≤'}{lag.messages:,}"


def _lag(lag: Lag | None, *, for_people: bool) -> dict[str, Any]:
    if for_people:
        behind = None if lag is None or not lag.seconds else timedelta(seconds=lag.seconds)
        return {"lag": None if lag is None else lag_text(lag), "behind": behind}
    facts = (None, None, None) if lag is None else (lag.messages, lag.state, lag.seconds)
    return dict(zip(("lag", "lag_state", "lag_seconds"), facts, strict=True))


def weight(lag: Lag) -> tuple[bool, int]:
    """What nobody knows is worse than any number."""
    return lag.messages is None, lag.messages or 0
