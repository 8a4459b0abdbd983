"""The Spark of `penstock pipeline`: one session, which says what it has to say in a file."""

import logging
import signal
from typing import TYPE_CHECKING

from rich.console import Console

from penstock.cli.redirecting import stderr_to
from penstock.lake import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def start_spark(console: Console, lake: Lake, name: str, master: str | None = None) -> "SparkSession":
    """What Spark says goes to a file: its own words for an error are pages of Java."""
    from penstock.spark import session

    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # it repeats errors, with their tracebacks
    log = lake.log_file(name)
    if console.is_terminal:  # a line and no spinner: that would be drawn into the log
        console.print(f"Starting Spark, which logs to {log} …", highlight=False, soft_wrap=True)
    with stderr_to(log):
        spark = session(f"penstock {name}", master)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Spark has put a handler of its own there
    return spark
