"""Where orders come from: three producers, and another program that writes what nobody can read."""

import asyncio

from penstock.app import Penstock
from penstock.bus.bus import Bus
from penstock.bus.publisher import Receipt
from penstock.cli.demo.books import Books
from penstock.cli.demo.goods import ORDERS, order
from penstock.cli.demo.sabotage import Sabotage
from penstock.errors import PenstockError
from penstock.message.message import Message
from penstock.message.wire import Wire

PRODUCERS = 3
_BEATS = 60
"""Into how many portions each cuts what it has to publish."""


async def publish(url: str, books: Books, seconds: float, sabotage: Sabotage | None) -> None:
    """Publish all orders, spread over about so many seconds, and something unreadable among them."""
    async with Penstock.connect(url, logs=None) as app:
        orders = app.bus(ORDERS)
        if sabotage is Sabotage.DROP:
            books.published.append(_noted(await app.bus("elsewhere").publish(order(books.wanted))))
        async with asyncio.TaskGroup() as producers:
            for first in range(PRODUCERS):
                numbers = range(first, books.wanted, PRODUCERS)
                producers.create_task(_produce(orders, books, numbers, seconds / _BEATS))
            producers.create_task(_disturb(url, books))


async def _produce(orders: Bus, books: Books, numbers: range, pause: float) -> None:
    portion = max(1, len(numbers) // _BEATS)
    for start in range(0, len(numbers), portion):
        messages = [Message(order(number), key=f"o-{number}") for number in numbers[start : start + portion]]
        books.published += map(_noted, await orders.publish_many(messages))
        await asyncio.sleep(pause)


async def _disturb(url: str, books: Books) -> None:
    """As a program would that knows nothing of ours: fields of its own, and no payload."""
    stranger = Penstock.connect(url, logs=None)
    stranger.use_wire(ORDERS, Wire("flat"))
    async with stranger:
        books.published.append(_noted(await stranger.bus(ORDERS).publish({"hello": "world"})))


def _noted(result: Receipt | PenstockError) -> str:
    if isinstance(result, PenstockError):
        raise result
    return str(result.entry_id)
