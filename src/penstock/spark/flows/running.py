"""A flow that runs: followed, stopped between two batches, started again after a failure."""

import logging
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import ConfigurationError, FlowError, PenstockError
from penstock.lake import Lake
from penstock.spark.flows.delivering import Deliveries
from penstock.spark.flows.flow import Flow
from penstock.spark.flows.home import Home
from penstock.spark.flows.progress import Progress, Total, progress_of
from penstock.spark.flows.starting import start_flow
from penstock.spark.queries.causes import Cause, cause_of
from penstock.spark.queries.following import follow
from penstock.spark.queries.gate import Gate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryProgress

_log = logging.getLogger("penstock.spark")
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0

Watch = Callable[[Progress], None]


@dataclass(frozen=True, kw_only=True)
class FlowRun:
    """A flow, and where it runs. The same again goes on where the last run ended."""

    flow: Flow
    home: Path
    """A lake: it holds the flow's tables and its checkpoint, and is made if there is none."""

    url: str | None = None
    """The server, instead of $PENSTOCK_URL."""

    every: timedelta | None = None
    """How often to look for new entries; None: take what is there, and end."""

    restarts: int = 0
    """How often to start again after failures with no batch done between them."""

    adapt: bool = False
    """Go on although topics or outputs are not those that the checkpoint was made with."""

    def __post_init__(self) -> None:
        if self.every is not None and self.every < timedelta(milliseconds=1):
            raise ConfigurationError(f"option every is {self.every}: it must be at least a millisecond")
        if self.restarts < 0:
            raise ConfigurationError(f"option restarts is {self.restarts}: it must not be negative")

    def check(self) -> None:
        """`ConfigurationError` if the home is that of another flow, or this one runs there already. Needs no Spark."""
        home = Home(Lake.create(self.home), self.flow)
        with home.place.taken():
            home.bind(adapt=self.adapt)

    def run(self, spark: "SparkSession", watch: Watch = lambda _: None) -> Total:
        """Run it to its end; `watch` hears of every batch that is done."""
        return self.start(spark, watch).wait()

    def start(self, spark: "SparkSession", watch: Watch = lambda _: None) -> "RunningFlow":
        """Start it. Whatever can be known to be wrong is an error here; `wait` must be called."""
        return RunningFlow(self, spark, watch)


class RunningFlow:
    """A flow under way."""

    def __init__(self, run: FlowRun, spark: "SparkSession", watch: Watch) -> None:
        self.total = Total()
        self._run = run
        self._spark = spark
        self._watch = watch
        self._stopping = threading.Event()
        self._held = ExitStack()
        self._home = Home(Lake.create(run.home), run.flow)
        with ExitStack() as held:
            held.enter_context(self._home.place.taken())
            self._home.bind(adapt=run.adapt)
            self._begin()
            self._held = held.pop_all()

    def stop(self) -> None:
        """Let the batch in progress come to its end, and begin no other. From any thread; does not wait."""
        self._stopping.set()

    def wait(self) -> Total:
        """Until all is done, or the flow was stopped; `FlowError` says why it failed, once no restart is left."""
        failures = 0
        with self._held:
            while (error := self._follow()) is not None:
                failures = 1 if self._gate.passed else failures + 1
                if failures > self._run.restarts or error.is_final:
                    raise FlowError(str(error))
                self._pause(failures, error)
                if self._stopping.is_set():
                    break
                self._begin()
        return self.total

    def _begin(self) -> None:
        server = {"url": self._run.url} if self._run.url else {}
        self._deliveries = Deliveries(self._home, server)
        self._gate = Gate(self._deliveries.write, self._stopping)
        try:
            self._query = start_flow(self._spark, self._deliveries, self._gate, self._run.every)
        except PenstockError:
            raise
        except Exception as error:  # of Spark or of the user's function, whatever its kind
            raise FlowError(f"flow {self._run.flow.name!r} cannot start: {cause_of(error)}") from error

    def _follow(self) -> "_Failure | None":
        """Until the query ends; why, if it failed."""
        error = follow(self._query, self._gate, self._tell)
        if error is None:
            return None
        batch = f" in batch {self._gate.failure[0]}" if self._gate.failure is not None else ""
        return _Failure(f"flow {self._run.flow.name!r} failed{batch}", cause_of(error))

    def _tell(self, reported: "StreamingQueryProgress") -> None:
        rows = self._deliveries.delivered.pop(reported.batchId)
        progress = progress_of(self._run.flow.name, reported, rows)
        self.total.add(progress)
        _log.info("%s", progress)
        self._warn_of_malformed(progress)
        self._watch(progress)

    def _warn_of_malformed(self, progress: Progress) -> None:
        table = self._run.flow.malformed_table
        if found := progress.rows.get(f"table {table}"):
            _log.warning(
                "flow %s: batch %d: %d entries could not be read as messages with its schema: they are in the table"
                " %r of %s, with the reason",
                progress.flow, progress.batch, found, table, self._home.lake.path,
            )  # fmt: skip

    def _pause(self, failures: int, failure: "_Failure") -> None:
        seconds = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** (failures - 1))
        _log.warning("%s; it starts again in %.0f s", failure, seconds)
        self._stopping.wait(seconds)


@dataclass(frozen=True)
class _Failure:
    what: str
    cause: Cause

    @property
    def is_final(self) -> bool:
        """What is set wrongly stays so, however often one tries."""
        return self.cause.kind == ConfigurationError.__name__

    def __str__(self) -> str:
        return f"{self.what}: {self.cause}"
