"""Messages that a group gave up, on a real server."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from penstock.backend.entry import ClaimedMessage, DeadLetter
from penstock.backend.redis import RedisBackend
from penstock.message.message import Message


async def give_up(url: str, topic: str, bodies: Sequence[Any], group: str = "g") -> list[str]:
    """Publish these and let a group give up as many as it reads then; the ids of what it gave up."""
    async with await RedisBackend.connect(url) as backend:
        await backend.create_group(topic, group)
        await backend.publish_many(topic, [Message(body, type="order") for body in bodies])
        held: list[ClaimedMessage] = []
        while len(held) < len(bodies):
            found = await backend.read_new(topic, group, "c", len(bodies) - len(held), timedelta(0))
            held += [one for one in found if isinstance(one, ClaimedMessage)]
        letters = [
            DeadLetter(one, f"no use {one.id}", {"try": "1"}, error="ValueError", traceback="here") for one in held
        ]
        await backend.settle(topic, group, "c", dead=letters)
        return [one.message.id for one in held]
