"""What commands look at before they change a topic: how much it is, and whether anybody reads there now."""

from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING

from penstock.backend.facts import position
from penstock.cli.shown import span_text
from penstock.cli.usage import NotThereError
from penstock.errors import TopicError
from penstock.overview import GroupView, Overview, TopicView

if TYPE_CHECKING:
    from penstock.app import Penstock

MOST_COUNTED = 100_000
_PAGE = 1000
_ALIVE = timedelta(seconds=30)


async def topic_there(app: "Penstock", topic: str) -> TopicView:
    """`NotThereError` if nothing is kept of it."""
    found = await Overview(app.backend).topic(topic)
    if not (found.exists or found.dead or found.later or found.cursors):
        raise NotThereError(f"there is no topic {topic!r}: penstock ls lists those that are known")
    return found


async def count_behind(app: "Penstock", topic: str, after: str, upto: str) -> int:
    """How many entries lie behind `after`, up to and with `upto`; no more than `MOST_COUNTED` and one are counted."""
    counted, end = 0, position(upto)
    while counted <= MOST_COUNTED:
        entries = (await app.backend.glimpse(topic, after, _PAGE)).entries
        inside = [entry for entry in entries if position(entry.id) <= end]
        counted += len(inside)
        if len(inside) < _PAGE:
            return counted
        after = entries[-1].id
    return MOST_COUNTED + 1


def counted_text(count: int) -> str:
    """A count of `count_behind`, in words."""
    return f"more than {MOST_COUNTED:,}" if count > MOST_COUNTED else f"{count:,}"


async def refuse_if_read(app: "Penstock", topic: str, groups: Iterable[GroupView], what: str) -> None:
    """`TopicError` if somebody of one of these groups has asked for anything lately: it would bring it back."""
    for group in groups:
        turn = await app.backend.turn(topic, group.name)
        if turn is not None and turn.holder is not None and turn.until is not None and turn.until > turn.now:
            raise TopicError(f"{turn.holder!r} reads {topic!r} in sequence as {group.name!r}: stop it, and {what} then")
        for one in group.consumers:
            if one.idle < _ALIVE:
                raise TopicError(
                    f"consumer {one.name!r} of group {group.name!r} on {topic!r} was there {span_text(one.idle)} ago:"
                    f" stop it, wait half a minute, and {what} then"
                )
