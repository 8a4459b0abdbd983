"""Durable cursors: where readers without a group are done. Each holds back trimming until it is moved or removed."""

import re

from penstock.backend import keys
from penstock.backend.entry import Moved
from penstock.backend.redis.scripts import load
from penstock.backend.redis.verbs import Verbs, entry_id
from penstock.backend.survey import Position
from penstock.errors import TopicError

_HELD = re.compile(r"(?P<id>[0-9]+-[0-9]+)(?: (?P<epoch>[0-9a-f]*) (?P<ordinal>-?[0-9]+))?")


class Cursors(Verbs):
    """`held_cursor`, `hold_cursor`, `move_cursor`, `place_cursor` and `forget_cursor` of the Redis backend."""

    async def held_cursor(self, topic: str, name: str) -> Position | None:
        held = await self._links.command(_opening(topic, name), "HGET", _checked(topic, name), name)
        if held is None:
            return None
        found = position_in(held.decode(errors="replace"))
        if found is None:
            raise _spoilt(topic, name)
        return found

    async def hold_cursor(self, topic: str, name: str, start: Position) -> Position:
        # Two commands will do: whoever sets it first, all are told the same, and nothing of ours removes it between.
        await self._links.command(_opening(topic, name), "HSETNX", _checked(topic, name), name, _written(start))
        held = await self.held_cursor(topic, name)
        if held is None:
            raise _spoilt(topic, name)
        return held

    async def move_cursor(self, topic: str, name: str, to: Position) -> Moved:
        hash, doing = _checked(topic, name), f"cannot move cursor {name!r} of {topic!r} to {to.id}"
        args = (name, entry_id("a cursor's place", to.id), to.epoch, to.ordinal, keys.OWN_GROUP)
        verdict = await self._links.repeatable_script(doing, load("move_cursor"), [topic, hash], *args)
        return Moved(verdict.decode())

    async def place_cursor(self, topic: str, name: str, to: Position) -> bool:
        hash, doing = _checked(topic, name), f"cannot put cursor {name!r} of {topic!r} to {to.id}"
        return bool(await self._links.repeatable_script(doing, load("place_cursor"), [hash], name, _written(to)))

    async def forget_cursor(self, topic: str, name: str) -> bool:
        hash, doing = _checked(topic, name), f"cannot remove cursor {name!r} of {topic!r}"
        return bool(await self._links.command(doing, "HDEL", hash, name))


def position_in(held: str) -> Position | None:
    """What is noted of a cursor; None if that is no place."""
    found = _HELD.fullmatch(held)
    # One that was written by hand has an id alone; nobody counted up to there.
    return Position(found["id"], int(found["ordinal"] or -1), found["epoch"] or "") if found else None


def _checked(topic: str, name: str) -> str:
    keys.check_topic(topic)
    keys.check_name("cursor", name)
    return keys.cursors(topic)


def _opening(topic: str, name: str) -> str:
    return f"cannot open cursor {name!r} of {topic!r}, noted in {keys.cursors(topic)}"


def _spoilt(topic: str, name: str) -> TopicError:
    return TopicError(
        f"cursor {name!r} of topic {topic!r} holds no position: remove it from {keys.cursors(topic)},"
        " or use another name"
    )


def _written(place: Position) -> str:
    return f"{entry_id('a cursor', place.id)} {place.epoch} {place.ordinal}"
