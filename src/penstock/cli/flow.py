"""`penstock pipeline run`: a flow of the user's on Spark, as a process that a service manager can look after.

Exit codes: 0 done, or asked to stop and the batch in progress is done; 1 it failed, or could not start; 2 the command
line makes no sense; 4 the server cannot be reached; killed by SIGTERM or SIGINT (143 or 130 in a shell) if that came
twice.
"""

import os
import signal
import sys
from collections.abc import Callable
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from rich.console import Console

from penstock.backend.address import URL_VARIABLE
from penstock.cli.loading import import_users_module, log_events
from penstock.cli.moments import Span
from penstock.cli.saying import say
from penstock.cli.servers import HERE, At
from penstock.cli.spark_session import start_spark
from penstock.cli.usage import UsageError
from penstock.diagnosis.finding import amount
from penstock.lake import Lake
from penstock.process import stopped_by_signals

if TYPE_CHECKING:
    from penstock.spark.flows.flow import Flow
    from penstock.spark.flows.progress import Progress

_EVERY = timedelta(seconds=5)


def run(
    target: Annotated[str, Parameter(name="MODULE:FLOW")],
    /,
    *,
    home: Path,
    once: Annotated[bool, Parameter(negative=(), show_default=False)] = False,
    every: Span | None = None,
    master: str | None = None,
    restarts: int = 0,
    adapt: Annotated[bool, Parameter(negative=(), show_default=False)] = False,
    server: At = HERE,
) -> None:
    """Run a flow until SIGTERM or Ctrl-C, which let the batch in progress come to its end; asked twice, end at once.

    Exit code 0: done, or stopped. 1: it failed, or could not start. 2: the command line makes no sense. 4: the server
    cannot be reached.

    Parameters
    ----------
    target
        Where the flow is: shop.clicks:sessions is `sessions` in the module shop.clicks, looked for in this directory
        too.
    home
        A lake: the directory of the flow's tables and its checkpoint. It is made if there is none.
    once
        Take what is there, and end: for cron.
    every
        How often to look for new entries; 5s unless given.
    master
        Where Spark runs, like local[2]; on all cores of this machine unless given.
    restarts
        How often to start again after failures with no batch done between them.
    adapt
        Go on although topics or outputs are not those that the checkpoint was made with.
    """
    if once and every is not None:
        raise UsageError("--once takes what is there and ends, so it cannot go with --every: give one of them.")
    server.address()
    os.environ[URL_VARIABLE] = server.found()[0]  # not as an option: Spark shows those, and it may hold a password
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    flow = load_flow(target)
    job = flow.at(home, every=None if once else every or _EVERY, restarts=restarts, adapt=adapt)
    job.check()
    # Functions of the user's module run in processes of Spark's, which import it by its name.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (os.getcwd(), os.environ.get("PYTHONPATH"))))
    server.reach()
    spark = start_spark(Console(file=sys.stderr), Lake.create(home), flow.name, master)
    with ExitStack() as ending:
        ending.callback(spark.stop)
        running = job.start(spark, _watch(ending))

        def stop() -> None:
            running.stop()
            say("Ending the batch in progress. Once more to end at once.")

        with stopped_by_signals(stop):
            say(f"Running flow {flow.name}. Ctrl-C to stop.")
            total = running.wait()
    rows = "".join(f", {count:,} to {output}" for output, count in total.rows.items() if count)
    say(f"Done: {amount(total.entries, 'entry', 'entries')} in {amount(total.batches, 'batch', 'batches')}{rows}")


def load_flow(target: str) -> "Flow":
    """The flow that `target` names, or `UsageError`, which says what there is."""
    name, _, path = target.partition(":")
    if not path.isidentifier() or not all(part.isidentifier() for part in name.split(".")):
        raise UsageError(f"say which flow to run as MODULE:FLOW, as in shop.clicks:sessions, not as {target!r}.")
    from penstock.spark.flows.flow import Flow  # it loads the client, which `--help` does not need

    module = import_users_module(name)
    found = getattr(module, path, None)
    if isinstance(found, Flow):
        return found
    flows = [f"{name}:{one}" for one, value in vars(module).items() if isinstance(value, Flow)]
    there = f"there is {' and '.join(flows)}" if flows else "make one there, with @flow(...)"
    what = (
        f"module {name!r} has no {path!r}" if found is None else f"{target} is of type {type(found).__name__}, no flow"
    )
    raise UsageError(f"{what}: {there}.")


def _watch(ending: ExitStack) -> "Callable[[Progress], None]":
    """A line that changes on a terminal, else a line for each batch."""
    if not sys.stderr.isatty():
        log_events()
        return lambda _: None
    status = Console(file=sys.stderr).status("waiting for entries")
    ending.enter_context(status)
    return lambda progress: status.update(str(progress))
