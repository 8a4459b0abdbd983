"""The tree of commands, and the one place that turns errors into exit codes.

Exit codes: 0 done, 1 Penstock could not do it, 2 the command line makes no sense. An error is one line on stderr.
"""

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from cyclopts import App, CycloptsError

from penstock import __version__
from penstock.cli.usage import UsageError
from penstock.errors import PenstockError

app = App(
    name="penstock",
    help="Dependable messaging on Redis and Valkey Streams.",
    version=f"penstock {__version__}",
    help_format="plaintext",
)
# Named by strings, so that only the command that runs is loaded, with all that it imports.
app.command("penstock.cli.up:up", name="up", help="Run the embedded Valkey server until Ctrl-C.")
app.command(
    "penstock.cli.demo.command:demo",
    name="demo",
    help="A small shop on a server of its own: watch it work, fail and mend itself, and see that all adds up."
    "\n\nExit code 0: it does. 1: it does not. 2: the command line makes no sense. 130: interrupted.",
)
app.command(
    "penstock.cli.run:run",
    name="run",
    help="Run the handlers of an app until SIGTERM or Ctrl-C, then drain; asked twice, end at once."
    "\n\nExit code 0: drained. 1: it could not start, or did not end in time. 2: the command line makes no sense.",
)
app.command(
    "penstock.cli.serve:serve",
    name="serve",
    help="Serve topics over HTTP: followed as server-sent events, published to by POST."
    "\n\nExit code 0: asked to stop, and stopped. 1: it could not start, or did not end in time. 2: the command line"
    " makes no sense.",
)
spark = App(name="spark", help="Streams in and out of Spark.", help_format="plaintext")
spark.command(
    "penstock.cli.spark:doctor",
    name="doctor",
    help="Say what Spark needs, what of it is here, and how to get the rest."
    "\n\nExit code 0: a session can start. 1: something is missing or unfit.",
)
app.command(spark)
lake = App(name="lake", help="What was archived, without Spark.", help_format="plaintext")
lake.command("penstock.cli.lake:query", name="query", help="Ask the tables of a lake in SQL.")
lake.command("penstock.cli.lake:tables", name="tables", help="Say what is in a lake.")
lake.command("penstock.cli.lake:files", name="files", help="List the files of a table, for other readers.")
lake.command("penstock.cli.lake_schema:schema", name="schema", help="Say which columns a topic has as a table.")
lake.command("penstock.cli.lake_care:compact", name="compact", help="Merge small files, and keep each message once.")
lake.command("penstock.cli.lake_care:drop", name="drop", help="Take days out of a lake that are old enough.")
lake.command("penstock.cli.replay:replay", name="replay", help="Bring messages back from a lake to a topic or group.")
lake.command("penstock.cli.failures:failures", name="failures", help="Say what goes wrong: dead letters by their kind.")
app.command(lake)
pipeline = App(name="pipeline", help="From streams to a lake and back, by Spark.", help_format="plaintext")
pipeline.command("penstock.cli.pipeline:archive", name="archive", help="Copy what is new in topics to a lake.")
pipeline.command("penstock.cli.metrics:metrics", name="metrics", help="Measure topics by windows of time.")
pipeline.command(
    "penstock.cli.alerts:alerts", name="alerts", help="Tell of messages that did not follow others in time."
)
pipeline.command(
    "penstock.cli.flow:run",
    name="run",
    help="Run a flow of your own until SIGTERM or Ctrl-C, which let the batch in progress come to its end."
    "\n\nExit code 0: done, or stopped. 1: it failed, or could not start. 2: the command line makes no sense.",
)
app.command(pipeline)
job = App(name="job", help="Jobs of a queue.", help_format="plaintext")
job.command(
    "penstock.cli.migrate:migrate",
    name="migrate",
    help="Move the jobs of a queue in a sorted set into lanes: each once, however often it is interrupted."
    "\n\nExit code 0: all were moved. 1: some cannot be, or it could not go on. 2: the command line makes no sense.",
)
app.command(job)
cron = App(name="cron", help="Schedules of a queue.", help_format="plaintext")
cron.command("penstock.cli.cron:ls", name="ls", help="List the schedules of a queue.")
cron.command("penstock.cli.cron:pause", name="pause", help="Have a schedule tick no more until it is resumed.")
cron.command("penstock.cli.cron:resume", name="resume", help="Have a schedule tick again, from now on.")
cron.command("penstock.cli.cron:rm", name="rm", help="Forget a schedule that no code declares any more.")
app.command(cron)
app.command("penstock.cli.trace:trace", name="trace", help="Say what became of a message, from publishing to now.")
app.command("penstock.cli.worker:worker", name="worker", show=False)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; leave with its exit code if it failed. Only a bug in Penstock ends in a traceback."""
    try:
        app(arguments, exit_on_error=False, print_error=False, result_action="return_none")
    except (CycloptsError, UsageError) as error:
        fail(f"{one_line(error)} See: penstock --help", code=2)
    except PenstockError as error:
        fail(one_line(error), code=1)
    except BrokenPipeError:
        # The reader of our output left, as `| head` does. Python would complain about it once more on its way out.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def fail(text: str, *, code: int) -> NoReturn:
    print(f"penstock: {text}", file=sys.stderr)
    sys.exit(code)
