"""`penstock bench`: how fast the user's own server is, with plain commands and through Penstock, in the same run."""

import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from penstock.cli.bench_sides import (
    CALLERS,
    PER_READ,
    PER_WRITE,
    consume,
    consume_raw,
    publish_each,
    publish_many,
    publish_raw,
)
from penstock.cli.bench_topic import bench_topic
from penstock.cli.printing import Form, print_rows
from penstock.cli.progress import progress
from penstock.cli.servers import HERE, At, Server, ask
from penstock.cli.usage import UsageError

if TYPE_CHECKING:
    from penstock.app import Penstock

Rates: TypeAlias = dict[str, float]

_COLUMNS = ("what", "way", "rate", "of_raw", "low", "high")
_RAW_PUBLISH, _RAW_CONSUME = f"XADD, {PER_WRITE} a write", f"XREADGROUP, {PER_READ} a read, and XACK"
_MANY, _EACH, _BUS = "publish_many", f"publish, {CALLERS} callers", "a bus and its handler"
_WAYS = {
    "publish": (_RAW_PUBLISH, _MANY, _EACH),
    "consume": (_RAW_CONSUME, _BUS),
}
"""What plain commands do comes first: the others are measured by it."""


def bench(*, messages: int = 50_000, size: int = 200, rounds: int = 3, output: Form = None, server: At = HERE) -> None:
    """Measure publishing and consuming on your server: plain commands beside Penstock, in turns, and their ratios.

    Rates are messages per second of one process, medians of the rounds; of_raw is the part of what plain commands
    reach, with its lowest and highest. It writes to topics of its own, named penstock-bench:..., and removes them at
    the end; nothing else is touched. The server is busy meanwhile.

    Parameters
    ----------
    messages
        How many in each measurement.
    size
        Bytes of each body.
    rounds
        How often all is measured.
    """
    for option, number, least in (("--messages", messages, 100), ("--size", size, 1), ("--rounds", rounds, 1)):
        if number < least:
            raise UsageError(f"{option} is a number of at least {least}, not {number}.")
    with _running(server) as here, progress("measuring") as show:
        found: list[Rates] = []
        for done in range(rounds):
            show(done, rounds)
            found.append(_by_hand(here, messages, size) | _through_penstock(here, messages, size))
    print_rows(_rows(found), output, _COLUMNS)


@contextmanager
def _running(server: Server) -> Iterator[Server]:
    """The server; an embedded one is started, if that is what was asked for."""
    from penstock.backend.embedded import EmbeddedServer

    address = server.address()
    if address.kind != "embedded":
        yield server
        return
    with EmbeddedServer.start(address.directory, ephemeral=address.ephemeral) as started:
        yield Server(url=started.url)


def _by_hand(server: Server, messages: int, size: int) -> Rates:
    from penstock.backend.redis.blocking import BlockingLink

    with bench_topic(server) as topic, BlockingLink.open(server.address()) as link:
        return {
            _RAW_PUBLISH: publish_raw(link, topic, messages, size),
            _RAW_CONSUME: consume_raw(link, topic, messages),
        }


def _through_penstock(server: Server, messages: int, size: int) -> Rates:
    with bench_topic(server) as many, bench_topic(server) as each:

        async def measure(app: "Penstock") -> Rates:
            return {
                _MANY: await publish_many(app, many, messages, size),
                _BUS: await consume(app, many, messages),
                _EACH: await publish_each(app, each, messages, size),
            }

        return ask(server, measure)


def _rows(found: Sequence[Rates]) -> Iterator[dict[str, Any]]:
    for what, ways in _WAYS.items():
        for way in ways:
            of_raw = [rates[way] / rates[ways[0]] for rates in found]
            yield {
                "what": what,
                "way": way,
                "rate": round(statistics.median(rates[way] for rates in found)),
                "of_raw": round(statistics.median(of_raw), 2),
                "low": round(min(of_raw), 2),
                "high": round(max(of_raw), 2),
            }
