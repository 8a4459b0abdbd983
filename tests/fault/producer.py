"""A producer process: publishes messages that name their own fate, and writes down what it was told about each."""

import asyncio
import random
import uuid
from collections.abc import Iterator
from typing import Any

from penstock.errors import ConfigurationError, EncodeError, PenstockError, PublishUnknownError, ServerError
from tests.fault.endpoints import open_publisher
from tests.fault.journal import Journal, payload_of, sha_of
from tests.fault.setup import BODY_CANARY, ProducerSetup, directory_of, read, url


def bodies(setup: ProducerSetup) -> Iterator[dict[str, Any]]:
    """The same for the same seed."""
    chance = random.Random(setup.seed)
    fates = [do for do, count in setup.fates.items() for _ in range(count)]
    fates = ["ok"] * (setup.messages - len(fates)) + fates
    if not setup.in_order:
        chance.shuffle(fates)
    for do in fates:
        body = {
            "tag": str(uuid.UUID(int=chance.getrandbits(128), version=4)),
            "do": do,
            "for": setup.seconds,
            "secret": BODY_CANARY,
        }
        gate = {"gate": setup.gate} if setup.gate else {}
        yield body | gate | ({"pad": "x" * setup.pad} if setup.pad else {})


class Producer:
    def __init__(self, setup: ProducerSetup, journal: Journal, bus: Any) -> None:
        self._setup = setup
        self._journal = journal
        self._bus = bus
        self._chance = random.Random(setup.seed + 1)

    async def run(self) -> None:
        left = bodies(self._setup)
        if self._setup.many:
            while batch := [body for _, body in zip(range(self._setup.many), left, strict=False)]:
                await self._publish_many(batch)
            return
        await asyncio.gather(*(self._publish_all(left) for _ in range(self._setup.abreast)))

    async def _publish_all(self, left: Iterator[dict[str, Any]]) -> None:
        for body in left:
            again = self._chance.random() < self._setup.duplicates
            self._intend(body, again=again)
            await self._publish(body)
            if again:
                await self._publish(body)
            if self._setup.pause:
                await asyncio.sleep(self._setup.pause)

    def _intend(self, body: dict[str, Any], *, again: bool = False) -> None:
        sha = sha_of(payload_of(body))
        self._journal.write(
            "intent", tag=body["tag"], sha=sha, do=body["do"], topic=self._setup.topic, facts={"again": again}
        )

    async def _publish(self, body: dict[str, Any]) -> None:
        while not await self._publish_one(body) and self._setup.persist:
            await asyncio.sleep(0.05)

    async def _publish_one(self, body: dict[str, Any]) -> bool:
        """True if there is nothing more to try."""
        tag = body["tag"]
        try:
            if self._setup.once:
                receipt = await self._bus.publish(body, id=tag, once=True)
            else:
                receipt = await self._bus.publish(body)
        except PenstockError as error:
            return self._refused(tag, error)
        self._journal.write("acked", tag=tag, id=receipt.id, entry=receipt.entry_id)
        return True

    def _refused(self, tag: str, error: PenstockError) -> bool:
        unknown = isinstance(error, PublishUnknownError)
        self._journal.write("unknown" if unknown else "failed", tag=tag, error=f"{type(error).__name__}: {error}")
        if isinstance(error, (ConfigurationError, EncodeError)):
            return True
        if unknown:
            return not self._setup.once  # a plain publish is never repeated
        return not isinstance(error, ServerError)

    async def _publish_many(self, batch: list[dict[str, Any]]) -> None:
        for body in batch:
            self._intend(body)
        results = await self._bus.publish_many(batch)
        for body, result in zip(batch, results, strict=True):
            if isinstance(result, PenstockError):
                self._refused(body["tag"], result)
            else:
                self._journal.write("acked", tag=body["tag"], id=result.id, entry=result.entry_id)


async def main(setup: ProducerSetup) -> None:
    journal = Journal(directory_of(setup), "producer")
    async with open_publisher(url(), setup) as bus:
        await Producer(setup, journal, bus).run()
    journal.write("left")


def run(setup: str) -> None:
    asyncio.run(main(read(ProducerSetup, setup)))
