"""Programs that pull: read some messages of several streams, and say of each what became of it.

    python -m examples.pull

It prints:

    xnai:agent_bus: R-1, acknowledged
    xnai:agent_bus: R-2, comes again later
"""

import asyncio

from redis.asyncio import Redis

from penstock.backend.embedded import EmbeddedServer
from penstock.manager import RedisStreamManager, StreamType


async def main() -> None:
    with EmbeddedServer.start(ephemeral=True) as server:
        await pull(server.url)


async def pull(url: str) -> None:
    async with (
        Redis.from_url(url) as client,
        RedisStreamManager(redis=client, consumer_id="planner-1") as manager,
    ):
        for task in ("R-1", "R-2"):
            await manager.send_message(StreamType.AGENT_BUS, {"task": task})
        for message in await manager.read_messages("agent_wavefront", count=10, block_ms=5000):
            if message.data["task"] == "R-1":
                await manager.acknowledge(message, "agent_wavefront")
                print(f"{message.stream}: R-1, acknowledged")
            elif await manager.retry_message(message):
                print(f"{message.stream}: R-2, comes again later")


if __name__ == "__main__":
    asyncio.run(main())
