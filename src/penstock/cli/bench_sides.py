"""What `penstock bench` measures: the same messages, by hand with plain commands, and through Penstock."""

import asyncio
import time
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.cli.bench_topic import GROUP
from penstock.errors import ServerError
from penstock.message.ids import new_id

if TYPE_CHECKING:
    from penstock.app import Penstock
    from penstock.backend.redis.blocking import BlockingLink
    from penstock.delivery.delivery import Delivery

PER_WRITE, PER_READ, CALLERS = 500, 1000, 100
_PATIENCE_SECONDS = 300
_encode, _decode = msgspec.json.encode, msgspec.json.decode


class Stopwatch:
    """Times from the first message that is handled to the last of `count`."""

    def __init__(self, count: int) -> None:
        self.left = count
        self._count = count
        self._began = self._ended = 0.0

    def tick(self, body: Any) -> bool:
        """One more was handled; True if it was the last."""
        if self.left == self._count:
            self._began = time.perf_counter()
        self.left -= 1
        if self.left == 0:
            self._ended = time.perf_counter()
        return self.left <= 0

    @property
    def rate(self) -> float:
        return self._count / (self._ended - self._began)


def bodies(count: int, size: int) -> Iterator[dict[str, Any]]:
    """Different each, of about so many bytes as JSON."""
    text = "x" * max(0, size - 20)
    return ({"n": number, "text": text} for number in range(count))


def publish_raw(link: "BlockingLink", topic: str, count: int, size: int) -> float:
    """Pipelined XADD: how many per second. The next write leaves before the answers to the last one are read."""
    from penstock.backend.redis.link import pack

    given, began, unanswered = bodies(count, size), time.perf_counter(), 0
    while some := list(islice(given, PER_WRITE)):
        link.send(b"".join([pack("XADD", topic, "*", "id", new_id(), "payload", _encode(body)) for body in some]))
        _read(link, unanswered)
        unanswered = len(some)
    _read(link, unanswered)
    return count / (time.perf_counter() - began)


def consume_raw(link: "BlockingLink", topic: str, count: int) -> float:
    """XREADGROUP, a look at each body, one XACK for each batch on its way with the next read: how many per second."""
    from penstock.backend.redis.link import pack

    link.command("cannot measure", "XGROUP", "CREATE", topic, GROUP, "0")
    watch, asking = Stopwatch(count), pack("XREADGROUP", "GROUP", GROUP, "me", "COUNT", PER_READ, "STREAMS", topic, ">")
    link.send(asking)
    while watch.left > 0:
        answer = _answer(link)
        if answer is None:
            raise ServerError(
                f"{watch.left:,} of {count:,} messages are not there any more: somebody else deleted them"
            )
        ((_, entries),) = answer
        ack = pack("XACK", topic, GROUP, *[id for id, _ in entries])
        link.send(ack + asking if watch.left > len(entries) else ack)
        for _, fields in entries:
            watch.tick(_decode(fields[3])["n"])
        _answer(link)
    return watch.rate


async def publish_many(app: "Penstock", topic: str, count: int, size: int) -> float:
    """One call: how many per second."""
    bus, began = app.bus(topic), time.perf_counter()
    for result in await bus.publish_many(bodies(count, size)):
        if isinstance(result, Exception):
            raise result
    return count / (time.perf_counter() - began)


async def publish_each(app: "Penstock", topic: str, count: int, size: int) -> float:
    """So many callers, each of which awaits its own message: how many per second."""
    bus, given = app.bus(topic), bodies(count, size)

    async def caller() -> None:
        for body in given:
            await bus.publish(body)

    began = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(CALLERS)))
    return count / (time.perf_counter() - began)


async def consume(app: "Penstock", topic: str, count: int) -> float:
    """A bus with a handler that looks at each body: how many per second."""
    bus, watch = app.bus(topic, group=GROUP), Stopwatch(count)

    @bus.on(dict)
    async def handle(event: "Delivery[dict[str, Any]]") -> None:
        if watch.tick(event.body["n"]):
            app.stop()

    try:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            await app.run(bus, signals=False)
    except TimeoutError:
        raise ServerError(f"{watch.left:,} of {count:,} messages were not delivered in {_PATIENCE_SECONDS} s") from None
    return watch.rate


def _read(link: "BlockingLink", count: int) -> None:
    for _ in range(count):
        _answer(link)


def _answer(link: "BlockingLink") -> Any:
    from penstock.backend.redis.links import raised

    return raised(link.reply(), "cannot measure")
