"""Other programs on the same streams: one that writes with plain redis-py, and one that reads the dead letters so.

    python -m examples.plain_redis

It prints:

    handled: o-1
    a dead letter of group billing: the payload is no JSON
"""

import asyncio
import json

from redis.asyncio import Redis

from penstock import Delivery, Penstock
from penstock.backend.embedded import EmbeddedServer
from penstock.testing import drain


async def main() -> None:
    with EmbeddedServer.start(ephemeral=True) as server:
        await write_and_read(server.url)


async def write_and_read(url: str) -> None:
    async with Penstock.connect(url) as app:
        orders = app.bus("orders", group="billing")

        @orders.on(dict)
        async def charge(event: Delivery[dict]) -> None:
            print("handled:", event.body["order"])

        async with Redis.from_url(url) as plain:
            await plain.xadd("orders", {"payload": '{"order": "o-1"}'})  # only the payload is needed
            await plain.xadd("orders", {"payload": "{oops"})  # stops nobody
            await drain(app, orders)
            for _, fields in await plain.xrange("penstock:{orders}:orders:dead"):
                note = json.loads(fields[b"penstock-dead"])
                print(f"a dead letter of group {note['group']}: the payload is no JSON")


if __name__ == "__main__":
    asyncio.run(main())
