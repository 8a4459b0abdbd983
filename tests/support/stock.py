"""A server with something of everything on it, and what is on a server, to compare."""

import asyncio
from datetime import timedelta
from typing import Any

import redis

from penstock import JobDelivery, Penstock, Reject
from penstock.backend.entry import DeadLetter, Park
from penstock.backend.survey import Position
from penstock.message.message import Message
from tests.support.old_queue import OldPrograms

_HOUR = timedelta(hours=1)
_NOW = timedelta(0)

NAMES = {
    "message": "018bcfe5-6800-7000-8000-000000000001",
    "dead": "018bcfe5-6800-7000-8000-000000000002",
    # Not by time: such a UUID is looked for around that time.
    "job": "3f1d6a52-0c41-4a7e-9b52-000000000001",
    "later": "3f1d6a52-0c41-4a7e-9b52-000000000002",
    "dead_job": "3f1d6a52-0c41-4a7e-9b52-000000000003",
    "held": "1700000000000-1",
}
"""By which it can be asked for."""


def stock(url: str, client: "redis.Redis") -> None:
    """Fill an empty server.

    On topic orders, group billing holds a message, has given up another, and has a third still to come; a cursor and
    a paused group are there too. On topic returns a delivery waits for a retry. Topic quiet has a group of which no
    consumer was ever there, and an entry that is no message. Queue images has jobs that are queued, wait and are dead;
    chores has a schedule; and there is a queue in a sorted set.
    """
    for number, name in enumerate(("message", "dead"), 1):
        client.xadd("orders", {"id": NAMES[name], "payload": f'{{"n": {number}}}'}, id=f"1700000000000-{number}")
    asyncio.run(_stock(url))
    client.xadd("quiet", {"nonsense": "1"})
    OldPrograms(client).enqueue()


async def _stock(url: str) -> None:
    async with Penstock.connect(url) as app:
        backend = app.backend
        await backend.register("orders")
        await backend.create_group("orders", "billing", "0")
        _, second = await backend.read_new("orders", "billing", "w1", 2, _NOW)
        await backend.settle("orders", "billing", "w1", dead=[DeadLetter(second, "no use", traceback="line 1\nline 2")])
        await backend.publish("orders", Message({"n": 3}))
        await backend.publish_later("orders", [Message({"n": 4})], delay=_HOUR)
        await backend.hold_cursor("orders", "reader", Position(NAMES["held"], 1, ""))
        await backend.create_group("orders", "stock", "$")
        await backend.pause("orders", "stock")
        await backend.publish_many("quiet", [Message({"n": number}) for number in range(250)])
        await backend.register("quiet")
        await backend.create_group("quiet", "readers", "$")
        await backend.publish("returns", Message({"n": 1}))
        await backend.create_group("returns", "billing", "0")
        parked = [Park(one, _HOUR, 2, "no") for one in await backend.read_new("returns", "billing", "w1", 1, _NOW)]
        await backend.settle("returns", "billing", "w1", parked=parked)
        await _jobs(app)


async def _jobs(app: Penstock) -> None:
    images, chores = app.jobs("images"), app.jobs("chores")
    images.default(_give_up)
    await images.enqueue(Message({"n": 3}, id=NAMES["dead_job"]))
    running = asyncio.create_task(app.run(images, signals=False))
    await images.drain()
    app.stop()
    await running
    await images.enqueue(Message({"n": 1}, id=NAMES["job"]))
    await images.enqueue(Message({"n": 2}, id=NAMES["later"]), delay=_HOUR)
    chores.cron("0 3 * * *", {}, name="clean")
    await app.backend.speaking({}, chores._terms.trail).look_at_crons({"clean": chores._schedules["clean"].plan})


async def _give_up(job: JobDelivery[Any]) -> None:
    raise Reject("no use")


Keyspace = dict[bytes, tuple[bytes, bool]]
"""Every key, with its value as the server would hand it to another, and whether it ends at some time."""


def keyspace(client: "redis.Redis") -> Keyspace:
    return {key: (client.dump(key), client.ttl(key) > 0) for key in sorted(client.scan_iter(count=1000))}


def put_back(client: "redis.Redis", kept: Keyspace) -> None:
    """Have nothing on a server but this."""
    client.flushall()
    for key, (value, ends) in kept.items():
        client.restore(key, int(_HOUR.total_seconds() * 1000) if ends else 0, value)
