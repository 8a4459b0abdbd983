"""`penstock cursor`: the durable cursors of a topic, which hold back trimming until they are moved or removed."""

from datetime import datetime
from typing import TYPE_CHECKING, Any

from penstock.backend.facts import position, written_at
from penstock.cli.confirming import Yes, only_tried
from penstock.cli.dialects import Dialect, DialectName
from penstock.cli.looking import count_behind, counted_text, topic_there
from penstock.cli.places import Place, place_in
from penstock.cli.printing import Form, print_rows
from penstock.cli.servers import HERE, At, ask
from penstock.cli.usage import NotThereError
from penstock.errors import TopicError
from penstock.overview import TopicView

if TYPE_CHECKING:
    from penstock.app import Penstock
    from penstock.backend.survey import Position

_COLUMNS = ("cursor", "entry_id", "at", "behind")


def ls(topic: str, /, *, output: Form = None, server: At = HERE) -> None:
    """List the durable cursors of a topic: where each is done, and how many entries lie behind that.

    Parameters
    ----------
    topic
        Its whole name.
    """

    async def rows(app: "Penstock") -> list[dict[str, Any]]:
        found = await topic_there(app, topic)
        return [
            {"cursor": name, "entry_id": id, "at": written_at(id), "behind": await _behind(app, found, name)}
            for name, id in sorted(found.cursors.items())
        ]

    print_rows(ask(server, rows), output, _COLUMNS)


def reset(
    topic: str,
    cursor: str,
    /,
    *,
    to: Place,
    dialect: Dialect = "native",
    yes: Yes = False,
    server: At = HERE,
) -> None:
    """Have a cursor go on behind another place: back, to read messages again, or forward, to leave some out.

    Whoever reads with it has a place of its own until it opens the cursor anew: stop it before, and start it after.

    Parameters
    ----------
    topic
        Its whole name.
    cursor
        The cursor's.
    to
        earliest, latest, an entry id, a message's UUID, or a moment, like 2026-11-15T08:00Z, yesterday, or 10m.
    """
    ask(server, lambda app: _reset(app, topic, cursor, to, dialect, yes=yes))


async def _reset(
    app: "Penstock", topic: str, cursor: str, to: str | datetime, dialect: DialectName, *, yes: bool
) -> None:
    found, held = await _held(app, topic, cursor)
    place = await place_in(app.backend if yes else app.backend.looking(), topic, to, dialect)
    if not yes:
        only_tried(await _moved(app, found, cursor, place.id))
    if not await app.backend.place_cursor(topic, cursor, place.to_hold()):
        raise _gone(topic, cursor)
    print(f"Cursor {cursor!r} of {topic!r} was at {held}, and goes on behind {place.id}")


def rm(topic: str, cursor: str, /, *, yes: Yes = False, server: At = HERE) -> None:
    """Remove a cursor: it pins the topic no more. Who opens it again begins anew, where it says that it begins.

    Parameters
    ----------
    topic
        Its whole name.
    cursor
        The cursor's.
    """
    ask(server, lambda app: _remove(app, topic, cursor, yes=yes))


async def _remove(app: "Penstock", topic: str, cursor: str, *, yes: bool) -> None:
    found, held = await _held(app, topic, cursor)
    if not yes:
        behind = await _behind(app, found, cursor)
        unread = "an unknown number of entries" if behind is None else counted_text(behind)
        only_tried(f"remove cursor {cursor!r} of {topic!r}, which has {unread} before it")
    if not await app.backend.forget_cursor(topic, cursor):
        raise _gone(topic, cursor)
    print(f"Removed cursor {cursor!r} of {topic!r}, which was at {held}")


def _gone(topic: str, cursor: str) -> NotThereError:
    return NotThereError(f"cursor {cursor!r} of {topic!r} was removed meanwhile")


async def _held(app: "Penstock", topic: str, cursor: str) -> tuple[TopicView, str]:
    found = await topic_there(app, topic)
    if cursor not in found.cursors:
        raise NotThereError(f"topic {topic!r} has no cursor {cursor!r}: penstock cursor ls {topic} lists those it has")
    return found, found.cursors[cursor]


async def _moved(app: "Penstock", topic: TopicView, cursor: str, place: str) -> str:
    """What a cursor that is put to another id gives again, or leaves out."""
    way = f"cursor {cursor!r} of {topic.name!r} goes from {topic.cursors[cursor]} to {place}"
    held = await _stands(app, topic, cursor)
    if held is None:
        return f"read again or leave out an unknown number of entries: {way}"
    low, high = sorted((held.id, place), key=position)
    count = counted_text(await count_behind(app, topic.name, low, high))
    return f"leave out {count}: {way}" if high == place else f"read {count} again: {way}"


async def _behind(app: "Penstock", topic: TopicView, cursor: str) -> int | None:
    """How many entries lie behind a cursor; None if what is noted of it is no place."""
    from penstock.backend.survey import judge

    held = await _stands(app, topic, cursor)
    if held is None:
        return None
    if topic.first_id is None or topic.last_id is None:
        return 0
    if position(held.id) < position(topic.first_id):
        return topic.length
    if held.ordinal >= 0 and held.epoch and held.epoch == topic.epoch:
        # Its ordinal tells, where nothing was deleted one by one.
        verdict = judge(held, (await app.backend.looking().glimpse(topic.name, held.id, 1)).survey)
        if verdict.kind in ("intact", "trimmed", "removed"):
            return verdict.rows
    return await count_behind(app, topic.name, held.id, topic.last_id)


async def _stands(app: "Penstock", topic: TopicView, cursor: str) -> "Position | None":
    """How far a cursor is done with this very stream; None if what is noted of it is no place, or it is gone."""
    from penstock.backend.survey import Position

    try:
        held = await app.backend.held_cursor(topic.name, cursor)
    except TopicError:
        return None
    if held is not None and held.epoch and held.epoch != topic.epoch:
        return Position("0-0", 0, "")  # one of an earlier stream has read nothing of this one
    return held
