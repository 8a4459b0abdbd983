"""Taking items from a tail, and saying what they must be."""

import asyncio
from typing import Any

from penstock import Gap, Tail, Tailed
from penstock.tail.items import Item
from tests.support.stage import Stage


async def take(tail: Tail, count: int, within: float = 10) -> list[Item]:
    """The next so many items."""
    items: list[Item] = []
    async with asyncio.timeout(within):
        while len(items) < count:
            items.append(await anext(tail))
    return items


def bodies(items: list[Item]) -> list[Any]:
    """Of messages, and nothing else."""
    assert all(isinstance(item, Tailed) for item in items), items
    return [item.message.body for item in items if isinstance(item, Tailed)]


def numbers(items: list[Item]) -> list[int]:
    return [body["n"] for body in bodies(items)]


async def next_gap(tail: Tail) -> Gap:
    (item,) = await take(tail, 1)
    assert isinstance(item, Gap), item
    return item


async def publish(stage: Stage, *wanted: int) -> list[str]:
    """Messages of these numbers; gives their entry ids."""
    return [(await stage.app.bus(stage.topic).publish({"n": number})).entry_id for number in wanted]


def add(stage: Stage, number: int, id: str) -> None:
    """A message of this number under an entry id of the test's own."""
    stage.admin.xadd(stage.topic, {"payload": f'{{"n": {number}}}'}, id=id)


def restore(stage: Stage, old: bytes, new: dict[int, str]) -> None:
    """The server falls back to this, and is given others."""
    with stage.admin.pipeline(transaction=True) as at_once:
        at_once.restore(stage.topic, 0, old, replace=True)
        for number, id in new.items():
            at_once.xadd(stage.topic, {"payload": f'{{"n": {number}}}'}, id=id)
        at_once.execute()
