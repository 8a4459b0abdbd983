"""`penstock group reset`, `claim`, `ack` and `rm`: what an operator does to a group."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from penstock.backend import keys
from penstock.backend.facts import position
from penstock.backend.turn import kept_in_place
from penstock.cli.confirming import Yes, only_tried
from penstock.cli.dialects import Dialect, DialectName
from penstock.cli.given import is_entry_id
from penstock.cli.group import all_held
from penstock.cli.looking import MOST_COUNTED, count_behind, counted_text, group_there, refuse_if_read, unread_text
from penstock.cli.moments import Span
from penstock.cli.places import Place, id_in
from penstock.cli.progress import progress
from penstock.cli.saying import warn
from penstock.cli.servers import HERE, At, ask
from penstock.cli.shown import span_text
from penstock.cli.usage import NotThereError, UsageError
from penstock.diagnosis.finding import amount
from penstock.errors import GroupMissingError
from penstock.overview import GroupView, Overview

if TYPE_CHECKING:
    from penstock.app import Penstock
    from penstock.backend.entry import Held

_IDLE = timedelta(seconds=30)
_STEP = 1000  # entries between two looks at how far it is


def reset(
    topic: str,
    group: str,
    /,
    *,
    to: Place,
    dialect: Dialect = "native",
    yes: Yes = False,
    server: At = HERE,
) -> None:
    """Have a group go on behind another place: back, to be given messages again, or forward, to leave some out.

    What waits for a retry, and what is held before that place, stays as it is. Workers may run meanwhile. Of what is
    given again, `event.fence` counts from 1.

    Parameters
    ----------
    topic
        Its whole name.
    group
        The group's.
    to
        earliest, latest, an entry id, a message's UUID, or a moment, like 2026-11-15T08:00Z, yesterday, or 10m.
    """
    ask(server, lambda app: _reset(app, topic, group, to, dialect, yes=yes))


async def _reset(
    app: "Penstock", topic: str, group: str, to: str | datetime, dialect: DialectName, *, yes: bool
) -> None:
    found = await group_there(app, topic, group)
    if found.read_by == "sequence":
        raise kept_in_place(topic, group)
    place = await id_in(app, topic, to, dialect)
    here, there = position(found.last_delivered), position(place)
    if here == there:
        print(f"Nothing to do: group {group!r} of {topic!r} goes on behind {place} as it is")
        return
    if not yes:
        low, high = sorted((found.last_delivered, place), key=position)
        count = counted_text(await count_behind(app, topic, low, high))
        way = f"group {group!r} of {topic!r} goes from {found.last_delivered} to {place}"
        if there > here:
            only_tried(f"leave out {count}: {way}")
        held = "those that workers hold now, even if they settle them meanwhile"
        only_tried(f"redeliver {count}: {way}", f"redeliver also {held}")
    read = await _read_upto(app, topic, place)
    is_counted = await app.backend.move_group(topic, group, place, read)
    print(f"Group {group!r} of {topic!r} was at {found.last_delivered}, and goes on behind {place}")
    if not is_counted:
        unknown = "how many is known once the group has caught up, and of what others trim meanwhile is told no number"
        warn(f"more than {MOST_COUNTED:,} entries lie behind that: {unknown}")


async def _read_upto(app: "Penstock", topic: str, place: str) -> int | None:
    """How many of all entries ever added do not lie behind that; None if those that do are too many to count."""
    found = await Overview(app.backend).topic(topic)
    behind = await count_behind(app, topic, place, found.last_id or "+")
    return None if behind > MOST_COUNTED else found.published - behind


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
    await group_there(app, topic, group)
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    with progress("looking") as show:
        seen = 0
        async for stream, held in all_held(app, topic, group, consumer):
            seen += 1
            if held.idle >= idle and not held.is_free:
                found[stream, held.consumer].append(held.id)
            if seen % _STEP == 0:
                show(seen)
    if not found:
        whose = "" if consumer is None else f" by consumer {consumer!r}"
        print(f"Nothing to do: no entry was held{whose} for {span_text(idle)} without being touched")
        return
    if not yes:
        only_tried(
            *(
                f"redeliver {amount(len(ids), 'entry', 'entries')} that consumer {name!r} holds"
                for (_, name), ids in found.items()
            )
        )
    freed = done = 0
    with progress("claiming") as show:
        for (stream, name), ids in found.items():
            for start in range(0, len(ids), _STEP):
                some = ids[start : start + _STEP]
                freed += len(some) - len(await app.backend.expire(stream, group, name, some))
                done += len(some)
                show(done, sum(map(len, found.values())))
    entries = amount(freed, f"entry of {topic!r} is", f"entries of {topic!r} are")
    print(f"{entries} free for the workers of group {group!r}")


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
    for id in ids:
        if not is_entry_id(id):
            raise UsageError(f"{id!r} is no entry id.")
    ask(server, lambda app: _ack(app, topic, group, ids, yes=yes))


async def _ack(app: "Penstock", topic: str, group: str, ids: Sequence[str], *, yes: bool) -> None:
    await group_there(app, topic, group)
    found = [await _held(app, topic, group, id) for id in dict.fromkeys(ids)]
    if not yes:
        only_tried(*(f"mark {held.id}, which consumer {held.consumer!r} holds, as done" for _, held in found))
    acked = 0
    for stream, held in found:
        acked += (await app.backend.complete(stream, group, held.consumer, [held.id], fence=0, suspects=True)).ok
    done = amount(acked, f"entry of {topic!r} is", f"entries of {topic!r} are")
    print(f"{done} done for group {group!r}")
    if acked < len(found):
        others = amount(len(found) - acked, "entry", "entries")
        raise NotThereError(f"{others} went to somebody else meanwhile: look again, and try again")


async def _held(app: "Penstock", topic: str, group: str, id: str) -> "tuple[str, Held]":
    """One entry that is held, and the stream where it is."""
    from penstock.continuity.place import predecessor

    for stream in (topic, keys.retry(topic, group)):
        try:
            found = await app.backend.held(stream, group, predecessor(id), 1)
        except GroupMissingError:  # nothing was ever retried
            continue
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
    found = await group_there(app, topic, group)
    refuse_if_read(topic, [found], "remove the group")
    if not yes:
        only_tried(f"remove group {group!r} of {topic!r}", _loss(found, await unread_text(app, found)))
    await app.backend.remove_group(topic, group)
    print(f"Removed group {group!r} of {topic!r}")


def _loss(group: GroupView, unread: str) -> str:
    waiting = group.parked + group.ready
    return (
        f"never handle {unread} entries that it was not given, {group.pending:,} that its consumers hold,"
        f" {waiting:,} that wait for a retry"
    )
