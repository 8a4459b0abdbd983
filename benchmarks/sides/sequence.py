"""What people write who want one message at a time: XREADGROUP COUNT 1, then XACK, both awaited, in a loop.

`redis-py` is that loop with its asyncio client and an orderly JSON decoder; `hiredis` is the same by hand, with nothing
between the loop and the socket. Neither keeps others out, notices a loss, or survives a restart in order.
"""

import asyncio

import redis.asyncio

from benchmarks import raw
from benchmarks.job import GROUP, TOPIC, Job, Ticks


def consume(job: Job, ticks: Ticks) -> None:
    asyncio.run((_by_redis_py if job.mode == "redis-py" else _by_hand)(job, ticks))


async def _by_redis_py(job: Job, ticks: Ticks) -> None:
    view = ticks.view
    client = redis.asyncio.Redis.from_url(job.url)
    while True:
        answer = await client.xreadgroup(GROUP, "one", {TOPIC: ">"}, count=1, block=1000)
        for _, entries in answer or []:
            for entry_id, fields in entries:
                raw.decode(fields[b"payload"])
                await client.xack(TOPIC, GROUP, entry_id)
                view[0] += 1


async def _by_hand(job: Job, ticks: Ticks) -> None:
    view = ticks.view
    connection = await raw.connect(job.url)
    request = raw.pack("XREADGROUP", "GROUP", GROUP, "one", "COUNT", 1, "BLOCK", 1000, "STREAMS", TOPIC, ">")
    while True:
        answer = await connection.call(request)
        for entry_id, fields in answer[0][1] if answer else []:
            raw.decode(fields[fields.index(b"payload") + 1])
            await connection.call(raw.pack("XACK", TOPIC, GROUP, entry_id))
            view[0] += 1
