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
    """`hold_cursor`, `move_cursor` and `forget_cursor` of the Redis backend."""

    async def hold_cursor(self, topic: str, name: str, start: Position) -> Position:
        hash, doing = _checked(topic, name), f"cannot open cursor {name!r} of {topic!r}, noted in {keys.cursors(topic)}"
        # Two commands will do: whoever sets it first, all are told the same, and nothing of ours removes it between.
        await self._links.command(doing, "HSETNX", hash, name, _written(start))
        held = await self._links.command(doing, "HGET", hash, name)
        found = _HELD.fullmatch(held.decode(errors="replace")) if held is not None else None
        if found is None:
            raise TopicError(
                f"cursor {name!r} of topic {topic!r} holds no position: remove it from {hash}, or use another name"
            )
        # One that was written by hand has an id alone; nobody counted up to there.
        return Position(found["id"], int(found["ordinal"] or -1), found["epoch"] or "")

    async def move_cursor(self, topic: str, name: str, to: Position) -> Moved:
        hash, doing = _checked(topic, name), f"cannot move cursor {name!r} of {topic!r} to {to.id}"
        args = (name, entry_id("a cursor's place", to.id), to.epoch, to.ordinal, keys.OWN_GROUP)
        verdict = await self._links.repeatable_script(doing, load("move_cursor"), [topic, hash], *args)
        return Moved(verdict.decode())

    async def forget_cursor(self, topic: str, name: str) -> bool:
        hash, doing = _checked(topic, name), f"cannot remove cursor {name!r} of {topic!r}"
        return bool(await self._links.command(doing, "HDEL", hash, name))


def _checked(topic: str, name: str) -> str:
    keys.check_topic(topic)
    keys.check_name("cursor", name)
    return keys.cursors(topic)


def _written(place: Position) -> str:
    return f"{entry_id('a cursor', place.id)} {place.epoch} {place.ordinal}"
