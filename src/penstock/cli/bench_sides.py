"""What `penstock bench` measures: the same messages, by hand with plain commands, and through Penstock."""

import asyncio
import time
from collections.abc import Callable, Iterator
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
WARM = 2 * PER_READ
"""So many messages go first, on every side, and are not timed: meanwhile connections are opened, scripts are loaded,
and the size of a batch is found."""

LEAST = 5 * PER_READ
"""Whoever reads ahead has a batch in hand when the clock starts. Among fewer messages that would be most of them."""

_PATIENCE_SECONDS = 300
_encode, _decode = msgspec.json.encode, msgspec.json.decode


class Stopwatch:
    """Times `count` messages: from the last that only warms to the last of all."""

    def __init__(self, count: int, clock: Callable[[], float] = time.perf_counter) -> None:
        self.left = WARM + count
        self._count = count
        self._clock = clock
        self._began = self._ended = 0.0

    def tick(self, body: Any) -> bool:
        """One more was handled; True if it was the last."""
        self.left -= 1
        if self.left == self._count:
            self._began = self._clock()
        if self.left == 0:
            self._ended = self._clock()
        return self.left <= 0

    @property
    def rate(self) -> float:
        return self._count / (self._ended - self._began)


def bodies(count: int, size: int) -> Iterator[dict[str, Any]]:
    """Different each, of about so many bytes as JSON."""
    text = "x" * max(0, size - 20)
    return ({"n": number, "text": text} for number in range(count))


def publish_raw(link: "BlockingLink", topic: str, count: int, size: int) -> float:
    """Pipelined XADD: how many per second."""
    _add(link, topic, WARM, size)
    began = time.perf_counter()
    _add(link, topic, count, size)
    return count / (time.perf_counter() - began)


def _add(link: "BlockingLink", topic: str, count: int, size: int) -> None:
    """The next write leaves before the answers to the last one are read."""
    from penstock.backend.redis.link import pack

    given, unanswered = bodies(count, size), 0
    while some := list(islice(given, PER_WRITE)):
        link.send(b"".join([pack("XADD", topic, "*", "id", new_id(), "payload", _encode(body)) for body in some]))
        _read(link, unanswered)
        unanswered = len(some)
    _read(link, unanswered)


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
                f"{watch.left:,} of {WARM + count:,} messages are not there any more: somebody else deleted them"
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
    bus = app.bus(topic)

    async def publish(some: int) -> None:
        for result in await bus.publish_many(bodies(some, size)):
            if isinstance(result, Exception):
                raise result

    await publish(WARM)
    began = time.perf_counter()
    await publish(count)
    return count / (time.perf_counter() - began)


async def publish_each(app: "Penstock", topic: str, count: int, size: int) -> float:
    """So many callers, each of which awaits its own message: how many per second."""
    bus = app.bus(topic)

    async def caller(given: Iterator[Any]) -> None:
        for body in given:
            await bus.publish(body)

    async def publish(some: int) -> None:
        given = bodies(some, size)
        await asyncio.gather(*(caller(given) for _ in range(CALLERS)))

    await publish(WARM)
    began = time.perf_counter()
    await publish(count)
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
        raise ServerError(
            f"{watch.left:,} of {WARM + count:,} messages were not delivered in {_PATIENCE_SECONDS} s"
        ) from None
    return watch.rate


def _read(link: "BlockingLink", count: int) -> None:
    for _ in range(count):
        _answer(link)


def _answer(link: "BlockingLink") -> Any:
    from penstock.backend.redis.links import raised

    return raised(link.reply(), "cannot measure")
