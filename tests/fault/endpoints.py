"""How a process of a fault test uses Penstock: the only place that knows the public API."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from penstock.app import Penstock
from penstock.delivery import janitor
from penstock.errors import ServerUnreachableError
from penstock.options import AckMode, Retention, Retry, Subscription
from tests.fault.setup import ProducerSetup, WorkerSetup


@asynccontextmanager
async def open_publisher(url: str, setup: ProducerSetup) -> AsyncIterator[Any]:
    app = Penstock.connect(url)
    await opened(app)
    async with app:
        yield app.bus(setup.topic)


async def opened(app: Penstock) -> None:
    """Connect, however busy the machine is: a first connection that fails is not what is tested here."""
    for _ in range(10):
        try:
            await app.open()
        except ServerUnreachableError:
            await asyncio.sleep(0.2)
        else:
            return


def declared(url: str, setup: WorkerSetup) -> tuple[Any, Any]:
    """The app and the bus of a worker, not connected yet."""
    janitor._EVERY_SECONDS = setup.cleans_every
    app = Penstock.connect(url)
    lease = timedelta(seconds=setup.lease)
    if setup.as_shipped:
        return app, app.bus(setup.topic, group=setup.group, lease=lease)
    retry = Retry(
        attempts=setup.attempts,
        initial=timedelta(seconds=setup.initial),
        maximum=timedelta(seconds=setup.maximum),
        factor=2.0,
        jitter=False,
    )
    options = Subscription(
        timeout=timedelta(seconds=setup.timeout),
        drain=timedelta(seconds=setup.drain),
        scan=timedelta(seconds=setup.scan),
        dedupe=timedelta(hours=1) if setup.dedupe else None,
        ack=AckMode(setup.ack),
        retention=None if setup.keep is None else Retention(keep=timedelta(seconds=setup.keep)),
    )
    bus = app.bus(setup.topic, group=setup.group, retry=retry, lease=lease, start="earliest", options=options)
    return app, bus
