"""A process that handles a bus with order by key, and writes down when it began and ended each message.

A naive one handles a bus without, as one does who hopes that what is published in order stays so.
"""

import asyncio
import os
import random
from datetime import timedelta
from typing import Any

import msgspec

from penstock import Delivery, Penstock
from tests.fault.reader import note_stalls
from tests.support.sequential import URL_VARIABLE, Log, Setup

PARTITIONS = 16


async def main(setup: Setup) -> None:
    note_stalls(setup.path)
    log = Log(setup.path)
    app = Penstock.connect(os.environ[URL_VARIABLE])
    lease = timedelta(seconds=setup.lease)
    order: dict[str, Any] = {} if setup.naive else {"partitions": PARTITIONS, "ordering": "key"}
    bus = app.bus(setup.topic, group=setup.reader, lease=lease, **order)

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        facts = {"id": event.entry_id, "token": event.fence, "body": [event.topic, event.key, event.body["n"]]}
        log.write_line("start", **facts)
        await asyncio.sleep(random.uniform(0, 2 * setup.work))  # who works at several has them end in any order
        log.write_line("acked", **facts)

    async with app:
        log.write_line("ready")
        await app.run(bus)
    log.write_line("left")


def run(setup: str) -> None:
    asyncio.run(main(msgspec.json.decode(setup, type=Setup)))
