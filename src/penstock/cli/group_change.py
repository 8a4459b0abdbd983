"""`penstock group reset`, `claim`, `ack` and `rm`: what an operator does to a group."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from penstock.backend import keys
from penstock.backend.facts import position
from penstock.cli.confirming import Yes, only_tried
from penstock.cli.group import all_held
from penstock.cli.looking import count_behind, counted_text, refuse_if_read
from penstock.cli.moments import Span
from penstock.cli.places import Place
from penstock.cli.servers import HERE, At, ask
from penstock.cli.shown import span_text
from penstock.cli.standing import lag_text
from penstock.cli.usage import NotThereError, UsageError
from penstock.errors import GroupMissingError
from penstock.overview import GroupView, Overview

if TYPE_CHECKING:
    from penstock.app import Penstock
    from penstock.backend.entry import Held

_IDLE = timedelta(seconds=30)


def reset(topic: str, group: str, /, *, to: Place, yes: Yes = False, server: At = HERE) -> None:
    """Have a group go on behind another place: back, to be given messages again, or forward, to leave some out.

    What waits for a retry, and what is held before that place, stays as it is. Workers may run meanwhile.

    Parameters
    ----------
    topic
        Its whole name.
    group
        The group's.
    to
        earliest, latest, an entry id, a message's UUID, or a moment, like 2026-11-15T08:00Z, yesterday, or 10m.
    """
    ask(server, lambda app: _reset(app, topic, group, to, yes=yes))


async def _reset(app: "Penstock", topic: str, group: str, to: str | datetime, *, yes: bool) -> None:
    found = await Overview(app.backend).group(topic, group)
    place = await _id_of(app, topic, to)
    here, there = position(found.last_delivered), position(place)
    if there > position(await _id_of(app, topic, "latest")):
        raise UsageError(f"{place} is yet to come on topic {topic!r}: latest is as far as a group can go.")
    if not yes:
        low, high = sorted((found.last_delivered, place), key=position)
        count = counted_text(await count_behind(app, topic, low, high))
        way = f"group {group!r} of {topic!r} goes from {found.last_delivered} to {place}"
        if there >= here:
            only_tried(f"leave out {count} entries: {way}")
        only_tried(
            f"redeliver {count} entries: {way}", "fence off who holds any of them now: it cannot settle them then"
        )
    await app.backend.move_group(topic, group, place)
    print(f"Group {group!r} of {topic!r} was at {found.last_delivered}, and goes on behind {place}")


async def _id_of(app: "Penstock", topic: str, to: str | datetime) -> str:
    """The entry behind which it is to go on; of a moment, what came before it."""
    from penstock.events import Listeners
    from penstock.message.wire import Wire
    from penstock.tail.places import Sought, Spot, id_before, parse
    from penstock.tail.search import Search

    start = parse(to)
    if isinstance(start, datetime):
        return id_before(start)
    if isinstance(start, Spot):
        return start.id
    if isinstance(start, Sought):
        return (await Search(app.backend, topic, Wire(), Listeners()).find(start.message_id)).id
    return "0-0" if start == "earliest" else (await Overview(app.backend).topic(topic)).last_id or "0-0"


def claim(
    topic: str,
    group: str,
    /,
    *,
    consumer: str | None = None,
    idle: Span = _IDLE,
    yes: Yes = False,
    server: At = HERE,
) -> None:
    """End the leases of entries that nobody has touched for a while: the group's workers then take them over at once.

    Whoever still works on one of them cannot settle it then, and it is done twice.

    Parameters
    ----------
    topic
        Its whole name.
    group
        The group's.
    consumer
        Only what this one holds.
    idle
        Only what has not been touched for so long.
    """
    ask(server, lambda app: _claim(app, topic, group, consumer, idle, yes=yes))


async def _claim(app: "Penstock", topic: str, group: str, consumer: str | None, idle: timedelta, *, yes: bool) -> None:
    await Overview(app.backend).group(topic, group)
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    async for stream, held in all_held(app, topic, group, consumer):
        if held.idle >= idle and not held.is_handed_back:
            found[stream, held.consumer].append(held.id)
    if not yes:
        would = [f"redeliver {len(ids):,} entries that consumer {name!r} holds" for (_, name), ids in found.items()]
        only_tried(*(would or [f"do nothing: no entry was held for {span_text(idle)} without being touched"]))
    freed = 0
    for (stream, name), ids in found.items():
        freed += len(ids) - len(await app.backend.expire(stream, group, name, ids))
    print(f"{freed:,} entries of {topic!r} are free for the workers of group {group!r}")


def ack(topic: str, group: str, /, *ids: str, yes: Yes = False, server: At = HERE) -> None:
    """Mark entries as done that consumers of a group hold: nobody handles them any more.

    Parameters
    ----------
    topic
        Its whole name.
    group
        The group's.
    ids
        Their entry ids, as penstock group pending shows them.
    """
    if not ids:
        raise UsageError("name the entry ids to mark as done: penstock group pending lists them.")
    ask(server, lambda app: _ack(app, topic, group, ids, yes=yes))


async def _ack(app: "Penstock", topic: str, group: str, ids: Sequence[str], *, yes: bool) -> None:
    await Overview(app.backend).group(topic, group)
    found = [await _held(app, topic, group, id) for id in dict.fromkeys(ids)]
    if not yes:
        only_tried(*(f"mark {held.id}, which consumer {held.consumer!r} holds, as done" for _, held in found))
    acked = 0
    for stream, held in found:
        acked += (await app.backend.complete(stream, group, held.consumer, [held.id], fence=0, suspects=True)).ok
    print(f"{acked:,} entries of {topic!r} are done for group {group!r}")


async def _held(app: "Penstock", topic: str, group: str, id: str) -> "tuple[str, Held]":
    """One entry that is held, and the stream where it is."""
    from penstock.continuity.place import predecessor

    for stream in (topic, keys.retry(topic, group)):
        try:
            found = await app.backend.held(stream, group, predecessor(id), 1)
        except GroupMissingError:  # nothing was ever retried
            continue
        except ValueError:
            raise UsageError(f"{id!r} is no entry id.") from None
        if found and found[0].id == id:
            return stream, found[0]
    raise NotThereError(f"group {group!r} of {topic!r} holds no entry {id}: penstock group pending lists what it holds")


def rm(topic: str, group: str, /, *, yes: Yes = False, server: At = HERE) -> None:
    """Remove a group: it pins the topic no more, and what it has not settled counts as settled. Dead letters stay.

    Parameters
    ----------
    topic
        Its whole name.
    group
        The group's.
    """
    ask(server, lambda app: _remove(app, topic, group, yes=yes))


async def _remove(app: "Penstock", topic: str, group: str, *, yes: bool) -> None:
    found = await Overview(app.backend).group(topic, group)
    await refuse_if_read(app, topic, [found], "remove the group")
    if not yes:
        only_tried(f"remove group {group!r} of {topic!r}", _loss(found))
    await app.backend.remove_group(topic, group)
    print(f"Removed group {group!r} of {topic!r}")


def _loss(group: GroupView) -> str:
    waiting = group.parked + group.ready
    return (
        f"never handle {lag_text(group.lag)} entries that it was not given, {group.pending:,} that its consumers hold,"
        f" {waiting:,} that wait for a retry"
    )
