"""Flows that `penstock pipeline run` loads in tests, and a gallows for its driver.

`$PENSTOCK_TEST_FLOW` is a directory. If it holds a file `kill`, the driver and its JVM are killed when the topic has
the rows of that batch, and the lake has not.
"""

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.spark import flow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PLACE = "PENSTOCK_TEST_FLOW"
NOT_A_FLOW = 1


@flow("dice", topics="numbers", schema="n bigint", to="thrown", table="thrown")
def dice(numbers: "DataFrame") -> "DataFrame":
    """What it gives is never the same twice."""
    from pyspark.sql.functions import rand

    _hang_over_the_tables()
    return numbers.select("n", rand().alias("dice"))


def _hang_over_the_tables() -> None:
    from penstock.spark.flows.tables import Tables

    write = Tables.write

    def killing(self: Tables, rows: Any, number: int) -> Any:
        plan = Path(os.environ[PLACE], "kill")
        if plan.exists() and number >= int(plan.read_text()):
            plan.unlink()
            from pyspark import SparkContext

            context = SparkContext._active_spark_context
            assert context is not None
            for pid in (context._gateway.proc.pid, os.getpid()):  # type: ignore[union-attr]
                os.kill(pid, signal.SIGKILL)
        return write(self, rows, number)

    Tables.write = killing  # type: ignore[method-assign]
