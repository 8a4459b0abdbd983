"""A query from its start to its end: followed, told of, and ended between two batches."""

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

from penstock.options import check_duration
from penstock.spark.queries.causes import told
from penstock.spark.queries.gate import Gate
from penstock.spark.queries.place import Place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery

    Hear = Callable[[StreamingQueryProgress], None]

_LOOK_SECONDS = 0.2


def start(
    rows: "DataFrame", place: Place, gate: Gate, every: timedelta | None, mode: str = "append"
) -> "StreamingQuery":
    """Start a query that takes what is there and ends, or with `every` looks so often until it is stopped."""
    writer = rows.writeStream.queryName(place.name).outputMode(mode).foreachBatch(gate.take)
    writer = writer.option("checkpointLocation", str(place.checkpoint))
    if every is None:
        return writer.trigger(availableNow=True).start()
    check_duration("option every", every, least=timedelta(milliseconds=1))
    return writer.trigger(processingTime=f"{every / timedelta(milliseconds=1):.0f} milliseconds").start()


def follow(
    query: "StreamingQuery", gate: Gate, hear: "Hear | None" = None, meanwhile: Callable[[], None] = lambda: None
) -> Exception | None:
    """Wait until the query has ended, or its gate was told to stop and the batch in progress is done.

    Returns what it failed of, in the words of who raised it. `hear` gets what Spark reports of each batch, once and in
    order; `meanwhile` is called now and then.
    """
    from pyspark.errors import StreamingQueryException

    heard = _Heard(query, hear)
    try:
        # A batch that begins in the moment of the stop is refused by the gate before it has done anything.
        while not query.awaitTermination(_LOOK_SECONDS):  # type: ignore[arg-type]  # it takes parts of a second
            heard.catch_up()
            meanwhile()
            if gate.stop.is_set() and not query.status["isTriggerActive"]:
                break
    except StreamingQueryException as error:
        failure = gate.failure[1] if gate.failure is not None else error
        return None if gate.has_refused else failure
    finally:
        query.stop()
        heard.catch_up()
    return None


def carry_out(
    query: "StreamingQuery",
    gate: Gate,
    doing: str,
    hear: "Hear | None" = None,
    meanwhile: Callable[[], None] = lambda: None,
) -> None:
    """As `follow`, and raises what it failed of, as an error of ours: `doing` says what could not be done."""
    if (failure := follow(query, gate, hear, meanwhile)) is not None:
        raise told(failure, doing) from failure


class _Heard:
    """Spark keeps what it reports for the last hundred batches only: so each is listened to in time."""

    def __init__(self, query: "StreamingQuery", hear: "Hear | None") -> None:
        self._query = query
        self._hear = hear
        self._last = -1

    def catch_up(self) -> None:
        # All reports are a hundred calls to the JVM: they are asked for only where one was missed.
        newest = self._query.lastProgress if self._hear is not None else None
        if newest is None or newest.batchId <= self._last:
            return
        for reported in [newest] if newest.batchId == self._last + 1 else self._query.recentProgress:
            # A trigger that found nothing to do is reported too, under the number of the batch that comes next.
            if self._hear is not None and reported.batchId > self._last and "addBatch" in reported.durationMs:
                self._last = reported.batchId
                self._hear(reported)
