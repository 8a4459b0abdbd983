"""`penstock bench`: how fast the user's own server is, with plain commands and through Penstock, in the same run."""

import math
import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from penstock.cli.bench_sides import (
    CALLERS,
    LEAST,
    PER_READ,
    PER_WRITE,
    consume,
    consume_raw,
    publish_each,
    publish_many,
    publish_raw,
)
from penstock.cli.bench_topic import bench_topic
from penstock.cli.given import Count
from penstock.cli.printing import Form, print_rows
from penstock.cli.progress import progress
from penstock.cli.saying import warn
from penstock.cli.servers import HERE, At, Server, ask
from penstock.cli.usage import UsageError

if TYPE_CHECKING:
    from penstock.app import Penstock

Rates: TypeAlias = dict[str, float]

_SHORTEST_SECONDS = 0.03  # below it, one pause of the machine is most of what is measured
_ROUND_NUMBER = 5_000

_COLUMNS = ("what", "way", "rate", "of_raw", "low", "high")
_RAW_PUBLISH, _RAW_CONSUME = f"XADD, {PER_WRITE} a write", f"XREADGROUP, {PER_READ} a read, and XACK"
_MANY, _EACH, _BUS = "publish_many", f"publish, {CALLERS} callers", "a bus and its handler"
_WAYS = {
    "publish": (_RAW_PUBLISH, _MANY, _EACH),
    "consume": (_RAW_CONSUME, _BUS),
}
"""What plain commands do comes first: the others are measured by it."""


def bench(
    *, messages: int = 50_000, size: Count = 200, rounds: Count = 3, output: Form = None, server: At = HERE
) -> None:
    """Measure publishing and consuming on your server: plain commands beside Penstock, in turns, and their ratios.

    Rates are messages per second of one process, medians of the rounds; of_raw is the part of what plain commands
    reach, with its lowest and highest. On every side 2,000 messages go first that are not timed, so neither connecting
    nor any first time counts. It writes to topics of its own, named penstock-bench:..., and removes them at the end;
    nothing else is touched. The server is busy meanwhile.

    Parameters
    ----------
    messages
        How many in each measurement; fewer than 5,000 come in a few reads, and tell nothing.
    size
        Bytes of each body.
    rounds
        How often all is measured.
    """
    if messages < LEAST:
        raise UsageError(f"--messages is a number of at least {LEAST:,}, not {messages:,}.")
    with _running(server) as here, progress("measuring") as show:
        found: list[Rates] = []
        for done in range(rounds):
            show(done, rounds)
            found.append(_by_hand(here, messages, size) | _through_penstock(here, messages, size))
    print_rows(_rows(found), output, _COLUMNS)
    fastest = max(rate for rates in found for rate in rates.values())
    if messages / fastest < _SHORTEST_SECONDS:
        enough = math.ceil(fastest * _SHORTEST_SECONDS / _ROUND_NUMBER) * _ROUND_NUMBER
        warn(
            f"{messages:,} messages took {messages / fastest * 1000:.0f} ms in the fastest of these, which is too short"
            f" to mean much: give --messages {enough} or more"
        )


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
