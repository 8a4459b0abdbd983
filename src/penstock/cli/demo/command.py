"""`penstock demo`: puts the shop, its lake and its view together, and has the last word.

Exit codes: 0 everything adds up; 1 it does not; 2 the command line makes no sense; 130 Ctrl-C, or 128 and the number of
whatever signal ended it; 141 nobody reads what it says. Nothing is left running, or lying about, in any case.
"""

import asyncio
import shlex
import signal
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console

from penstock.cli.demo.sabotage import Sabotage
from penstock.cli.demo.script import Script
from penstock.cli.leaving import stopping_signals
from penstock.cli.screen import Screen
from penstock.cli.usage import UsageError

_FEWEST = 100


def demo(
    *,
    orders: int = 3000,
    archive: bool = True,
    sabotage: Sabotage | None = None,
    prepare: Annotated[str, Parameter(show=False)] = "",
) -> None:
    """A small shop on a server of its own: watch it work, fail and mend itself, and see that all adds up.

    Three producers, two groups of handlers (of which one fails now and then), a queue of jobs in three lanes, a stream
    of changes, a follower over HTTP, dead letters and their replay; and Spark, which archives it all to a lake.

    Exit code 0: it does. 1: it does not. 2: the command line makes no sense. 130: interrupted.

    Parameters
    ----------
    orders
        How many orders to publish.
    archive
        Let Spark archive the topics. Needs `pip install 'penstock[spark,lake]'`.
    sabotage
        Break it on purpose, to see that this is noticed: drop loses an order, swallow hides a failure, kill ends a
        worker.
    prepare
        A command that installs Spark, run beside the shop.
    """
    if orders < _FEWEST:
        raise UsageError(f"--orders is at least {_FEWEST}, not {orders}: fewer have not enough troubles.")
    console = Screen()
    script = Script(orders, archive, sabotage, tuple(shlex.split(prepare)))
    interrupted = asyncio.run(_until_interrupted(script, console))
    if interrupted is not None:
        console.print(f"Interrupted by {interrupted.name}. Nothing is left running.", highlight=False)
        sys.exit(128 + interrupted)


async def _until_interrupted(script: Script, console: Console) -> signal.Signals | None:
    """Which signal it was; None if it came to its end."""
    caught: list[signal.Signals] = []
    playing = asyncio.create_task(perform(script, console))

    def interrupt(number: signal.Signals) -> None:
        if not caught:  # who insists would cut off the clearing up, which takes seconds at most
            playing.cancel()
        caught.append(number)

    for number in stopping_signals():
        asyncio.get_running_loop().add_signal_handler(number, interrupt, number)
    try:
        await playing
    except asyncio.CancelledError:
        if not caught:  # something else ends us: nobody reads what is printed any more
            raise
        return caught[0]
    return None


async def perform(script: Script, console: Console) -> None:
    """The whole play. Raises `DemoFailedError` unless everything adds up."""
    console.print("Starting a Valkey server of its own, which keeps nothing …", highlight=False)
    # Late: these take as long to load as the server takes to start, and somebody waits for a sign of life.
    from penstock.backend.embedded import EmbeddedServer
    from penstock.cli.demo.stage import Stage
    from penstock.cli.demo.view import Showing

    can_draw = console.is_terminal and not console.is_dumb_terminal
    showing = Showing.LIVE if can_draw else Showing.LINES
    started = time.monotonic()
    with EmbeddedServer.start(ephemeral=True) as server, TemporaryDirectory(prefix="penstock-demo-") as place:
        stage = Stage(script, server.url, Path(place), console, showing)
        stage.view.tell(f"The server is up, after {time.monotonic() - started:.2f} s")
        await stage.perform()
