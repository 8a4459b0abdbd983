"""How the streams and groups of a manager stand, as plain values."""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

from penstock.backend.base import StreamBackend
from penstock.manager.configuration import ConsumerGroupConfig
from penstock.overview import GroupView, Overview, TopicView


async def health_of(backend: StreamBackend, groups: Sequence[ConsumerGroupConfig]) -> dict[str, Any]:
    """Every stream of these groups, with every group that reads it. Raises if the server does not answer.

    `problems` names what keeps a group from getting its messages; without any, it is `healthy`.
    """
    overview, streams = Overview(backend), dict.fromkeys(stream for group in groups for stream in group.streams)
    seen = {stream: await overview.topic(stream) for stream in streams}
    problems = [problem for group in groups for problem in _problems(group, seen)]
    return {
        "healthy": not problems,
        "problems": problems,
        "streams": {stream: _stream(topic) for stream, topic in seen.items()},
    }


def _problems(config: ConsumerGroupConfig, seen: dict[str, TopicView]) -> Iterable[str]:
    for stream in config.streams:
        found = [group for group in seen[stream].groups if group.name == config.name]
        if not found:
            yield f"stream {stream!r} has no group {config.name!r}: the next read creates it"
        elif found[0].paused:
            yield f"group {config.name!r} is paused on stream {stream!r}"


def _stream(topic: TopicView) -> dict[str, Any]:
    return {
        "exists": topic.exists,
        "length": topic.length,
        "last_id": topic.last_id,
        "dlq_length": topic.dead,
        "pinned_by": f"{topic.pin.kind} {topic.pin.name or ''}".strip() if topic.pin is not None else None,
        "groups": {group.name: _group(group) for group in topic.groups},
    }


def _group(group: GroupView) -> dict[str, Any]:
    oldest = group.oldest_unsettled
    return {
        "lag": group.lag.messages,
        "lag_state": group.lag.state,
        "pending": group.pending,
        "waiting_for_retry": group.parked,
        "ready_for_retry": group.ready,
        "oldest_unsettled_seconds": oldest.total_seconds() if oldest is not None else None,
        "paused": group.paused,
        "consumers": {one.name: {"pending": one.pending, "idle_ms": _ms(one.idle)} for one in group.consumers},
    }


def _ms(duration: timedelta) -> int:
    return int(duration.total_seconds() * 1000)
