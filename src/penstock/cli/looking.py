"""What commands look at before they change a topic: how much it is, and whether anybody reads there now."""

from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING

from penstock.backend import keys
from penstock.backend.entry import Stored
from penstock.backend.streams import streams_of
from penstock.cli.shown import span_text
from penstock.cli.standing import lag_text
from penstock.cli.usage import NotThereError
from penstock.diagnosis.finding import amount
from penstock.errors import GroupMissingError, TopicError
from penstock.overview import GroupView, Overview, TopicView, resembling

if TYPE_CHECKING:
    from penstock.app import Penstock

MOST_COUNTED = 100_000
_PAGE = 1000
_ALIVE = timedelta(seconds=30)


async def topic_there(app: "Penstock", topic: str) -> TopicView:
    """`NotThereError` if nothing is kept of it: no entry, and nothing that waits or is dead."""
    keys.check_named(topic)
    found = await Overview(app.backend).topic(topic)
    if found.exists or found.dead or found.later or found.cursors:
        return found
    if keys.is_lane(topic) and not (await app.backend.awaited(topic, keys.JOB_GROUP)).is_nothing:
        return found
    raise await absent(app, topic)


async def group_there(app: "Penstock", topic: str, group: str) -> GroupView:
    """`NotThereError` if there is no such topic, `GroupMissingError` if it has no group of that name."""
    try:
        return await Overview(app.backend).group(topic, group)
    except GroupMissingError:
        await topic_there(app, topic)  # a queue or a divided topic has groups, but not under this name
        raise


async def named_there(app: "Penstock", names: Iterable[str]) -> None:
    """`NotThereError` if one of these names neither a topic, divided or not, nor a queue."""
    for name in names:
        if not set(await streams_of(app.backend, name)) & set(await app.backend.topics()):
            await topic_there(app, name)


async def absent(app: "Penstock", topic: str, hint: str = "penstock ls lists those that are known") -> NotThereError:
    """That there is no such topic, and what there is under that name; if there is nothing at all, the hint."""
    count = await app.backend.partitions(topic)
    if count is not None:
        return NotThereError(f"{topic!r} is divided: name one of its partitions, {topic}:p0 to {topic}:p{count - 1}")
    known = set(await app.backend.topics())
    if lanes := [lane for lane in (keys.lane(topic, name) for name in keys.LANES) if lane in known]:
        return NotThereError(f"{topic!r} is a queue of jobs: name one of its lanes, {', '.join(lanes)}")
    if topic in known:
        return NotThereError(f"topic {topic!r} is known, but nothing is on it: its next message makes it anew")
    return NotThereError(f"there is no topic {topic!r}: {hint}{resembling(topic, known)}")


async def count_behind(app: "Penstock", topic: str, after: str, upto: str) -> int:
    """How many entries lie behind `after`, up to and with `upto`; no more than `MOST_COUNTED` and one are counted."""
    from penstock.tail.mouthful import Mouthful

    counted, size = 0, Mouthful(most=_PAGE)
    while counted <= MOST_COUNTED:
        asked = size.next()
        found = await app.backend.read_range(topic, f"({after}", upto, asked)
        entries = [Stored(entry.id, list(entry.raw)) for entry in found]
        counted += len(entries)
        if len(entries) < asked:
            return counted
        size.got(entries, asked)
        after = entries[-1].id
    return MOST_COUNTED + 1


def counted_text(count: int) -> str:
    """A count of `count_behind`, in words."""
    return f"{_number(count)} entries" if count > MOST_COUNTED else amount(count, "entry", "entries")


async def unread_text(app: "Penstock", group: GroupView) -> str:
    """How many entries a group was not given yet; they are counted where the server does not tell."""
    if group.lag.messages is not None:
        return lag_text(group.lag)
    return _number(await count_behind(app, group.topic, group.last_delivered, "+"))


def _number(count: int) -> str:
    return f"more than {MOST_COUNTED:,}" if count > MOST_COUNTED else f"{count:,}"


def refuse_if_read(topic: str, groups: Iterable[GroupView], what: str) -> None:
    """`TopicError` if somebody reads for one of these groups, or may wait until it is resumed: it comes back then."""
    for group in groups:
        if group.paused:
            raise TopicError(
                f"group {group.name!r} on {topic!r} is paused, and whoever waits there would read on without the pause:"
                f" stop its workers, resume it, and {what} then"
            )
        if (holder := group.holder) is not None:
            raise TopicError(f"{holder!r} reads {topic!r} in sequence as {group.name!r}: stop it, and {what} then")
        for one in group.consumers:
            if one.idle < _ALIVE:
                raise TopicError(
                    f"consumer {one.name!r} of group {group.name!r} on {topic!r} was there {span_text(one.idle)} ago:"
                    f" stop it, wait half a minute, and {what} then"
                )
