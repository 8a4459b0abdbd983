"""How a process of a fault test uses Penstock: the only place that knows the public API."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import cycle
from typing import Any, NamedTuple

from penstock.app import Penstock
from penstock.delivery import janitor
from penstock.errors import ServerUnreachableError
from penstock.jobs.timetable import Missed
from penstock.message.message import Message
from penstock.options import AckMode, JobOptions, Priority, Retention, Retry, Subscription
from tests.fault.lanes import apart
from tests.fault.setup import ProducerSetup, WorkerSetup

SCHEDULE = "tick"


@asynccontextmanager
async def open_publisher(url: str, setup: ProducerSetup) -> AsyncIterator[Any]:
    app = Penstock.connect(url)
    await opened(app)
    async with app:
        yield Enqueuer(app, setup) if setup.lanes else app.bus(setup.topic)


class Receipt(NamedTuple):
    id: str
    entry_id: str


class Enqueuer:
    """Publishes jobs as a bus does messages: one after the other to the next lane, unless the setup names one."""

    def __init__(self, app: Penstock, setup: ProducerSetup) -> None:
        self._queue = app.jobs(setup.topic, group="g")
        self._setup = setup
        self._lanes = cycle(Priority)

    async def publish(self, body: Any, *, id: str | None = None, once: bool = False) -> Receipt:
        priority = Priority(self._setup.priority) if self._setup.priority else next(self._lanes)
        how: dict[str, Any] = {"priority": priority}
        if self._setup.delay:
            how["delay"] = timedelta(seconds=self._setup.delay)
        if id is None:
            job = await self._queue.enqueue(body, **how)
        else:  # the same job again, perhaps in another lane: one of them stands for both
            how |= {"unique_key": id, "unique": timedelta(hours=1)}
            job = await self._queue.enqueue(Message(body, id), **how)
        return Receipt(job.id, apart(job.lane, job.entry_id) if job.entry_id else "")


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
    if setup.lanes:
        return app, _queue(app, setup)
    if setup.as_shipped:
        return app, app.bus(setup.topic, group=setup.group, lease=lease)
    retry = _retry(setup)
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


def _queue(app: Penstock, setup: WorkerSetup) -> Any:
    options = JobOptions(
        timeout=timedelta(seconds=setup.timeout),
        drain=timedelta(seconds=setup.drain),
        scan=timedelta(seconds=setup.scan),
    )
    lease = timedelta(seconds=setup.lease)
    queue = app.jobs(setup.topic, group=setup.group, retry=_retry(setup), lease=lease, options=options)
    if setup.cron:
        queue.cron(setup.cron, {"tag": "tick", "do": "ok"}, name=SCHEDULE, missed=Missed.all(1000))
    return queue


def _retry(setup: WorkerSetup) -> Retry:
    return Retry(
        attempts=setup.attempts,
        initial=timedelta(seconds=setup.initial),
        maximum=timedelta(seconds=setup.maximum),
        factor=2.0,
        jitter=False,
    )
