"""A worker process: handles messages as they ask to be handled, and writes down each start and each end.

What the engine tells its listeners goes into the same journal.
"""

import asyncio
import logging
import sys
from pathlib import Path
from typing import Any

from penstock import AckMode, events
from tests.fault.behaviour import BEHAVIOURS, Forgotten
from tests.fault.endpoints import declared, opened
from tests.fault.journal import Journal, payload_of, sha_of
from tests.fault.lanes import apart
from tests.fault.setup import WorkerSetup, directory_of, read, url
from tests.fault.witness import Witness


class Worker:
    def __init__(self, setup: WorkerSetup, journal: Journal) -> None:
        self._setup = setup
        self._journal = journal

    def subscribe(self, bus: Any) -> None:
        if self._setup.batch:
            bus.on(dict, batch=self._setup.batch)(self.handle_batch)
        elif self._setup.in_thread:
            bus.on(dict)(self.handle_in_thread)
        else:
            bus.on(dict)(self.handle)

    async def handle(self, event: Any) -> None:
        self._note("start", event)
        try:
            await BEHAVIOURS[event.body["do"]](event.body, event.attempt, event.redelivered)
        except Forgotten:
            self._note("raised", event, error="Forgotten")
            return
        except BaseException as error:
            self._note("raised", event, error=type(error).__name__)
            raise
        self._note("end", event)  # first: we may be killed as soon as it is settled
        if self._setup.ack == AckMode.MANUAL.value:
            await event.ack()

    def handle_in_thread(self, event: Any) -> None:
        asyncio.run(self.handle(event))

    async def handle_batch(self, batch: list[Any]) -> list[BaseException | None]:
        """Each by itself: what one of them raises is its own outcome."""
        outcomes: list[BaseException | None] = []
        for event in batch:
            try:
                await self.handle(event)
            except Exception as error:  # noqa: BLE001
                outcomes.append(error)
            else:
                outcomes.append(None)
        return outcomes

    def _note(self, what: str, event: Any, error: str = "") -> None:
        body = event.body
        self._journal.write(
            what,
            tag=body["tag"],
            id=event.id,
            entry=apart(event.topic, event.entry_id),
            topic=event.topic,
            group=self._setup.group,
            sha=sha_of(payload_of(body)) if what == "start" else "",
            do=body["do"],
            attempt=event.attempt,
            redelivered=event.redelivered,
            error=error,
        )

    def listen(self, event: events.Event) -> None:
        facts = {
            name: plain(getattr(event, name)) for name in event.__struct_fields__ if name not in {"topic", "group"}
        }
        for name in {"entry_id", "first", "last"} & facts.keys():
            facts[name] = apart(event.topic, facts[name])
        if "entry_ids" in facts:
            facts["entry_ids"] = [apart(event.topic, one) for one in facts["entry_ids"]]
        self._journal.write("event", name=type(event).__name__, topic=event.topic, group=event.group, facts=facts)


def plain(value: Any) -> Any:
    if isinstance(value, BaseException):
        return f"{type(value).__name__}: {value}"
    if isinstance(value, events.Scope):
        return value.value
    return value


async def main(setup: WorkerSetup) -> None:
    logging.basicConfig(stream=sys.stderr, level=logging.INFO)
    journal = Journal(directory_of(setup), "worker")
    Witness(lambda since: journal.write("stalled", facts={"since": since}))
    app, bus = declared(url(), setup)
    worker = Worker(setup, journal)
    app.listen(worker.listen)
    worker.subscribe(bus)
    await opened(app)
    async with app:
        journal.write("ready", group=setup.group, topic=setup.topic)
        await app.run(bus, concurrency=setup.concurrency)
    journal.write("left", facts={"peak_rss": peak_rss()})


def peak_rss() -> int:
    """Bytes. Not by getrusage: that counts what our parent had when it forked us."""
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM:")).split()[1]) * 1024


def run(setup: str) -> None:
    asyncio.run(main(read(WorkerSetup, setup)))
