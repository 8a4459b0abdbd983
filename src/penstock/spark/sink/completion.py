"""What the driver does when all tasks of a batch have ended: look that nothing was lost, and note that it is done.

Both happen on one connection. A server that goes back to an older state breaks it, and then all is looked at again.
"""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql.datasource import WriterCommitMessage

from penstock.backend import keys
from penstock.backend.redis import scripts
from penstock.backend.redis.blocking import BlockingLink
from penstock.errors import PublishError
from penstock.spark.sink.deliveries import MODES
from penstock.spark.sink.delivery import Attempt, Newest

_logger = logging.getLogger("penstock.spark")


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What one task tells the driver: the rows it had, by stream, and those that show whether all are there."""

    attempt: Attempt
    rows: Mapping[str, int]
    newest: Sequence[Newest]


@dataclass(frozen=True)
class Completion:
    """The end of one batch."""

    delivery: str
    keep_ms: int
    """How long the server knows that it is done."""
    note: bool = True
    """False where rows may still come."""

    def run(self, link: BlockingLink, tasks: Sequence[Written]) -> None:
        """May be repeated; raises `PublishError` if the server does not have all rows of these tasks, each once."""
        mode = MODES[self.delivery]
        for task in tasks:
            mode(task.attempt).check_kept(link, task.newest)
        if self.delivery not in ("batch", "fence"):
            return
        rows: Counter[str] = Counter()
        for task in tasks:
            rows.update(task.rows)
        for stream, count in sorted(rows.items()):
            self._finish(link, tasks[0].attempt, stream, count)

    def _finish(self, link: BlockingLink, at: Attempt, stream: str, rows: int) -> None:
        where = [keys.fence(stream, at.query), keys.written(stream, at.query, at.batch)]
        doing = f"noting that batch {at.batch} of query {at.query} is in {stream!r}"
        by = "parts" if self.delivery == "fence" else "ids"
        words = (at.batch, self.keep_ms, rows, by, int(self.note))
        verdict, number = link.script(doing, scripts.load("sink_done"), where, *words)
        if verdict == b"ahead":
            raise MODES[self.delivery](at).ahead(stream, int(number))
        batch = f"batch {at.batch} of query {at.query}"
        if verdict == b"other":
            raise _other_batch(stream, batch, int(number), rows)
        if verdict == b"parts":
            raise _other_count(stream, batch, int(number), rows)
        self._compare(stream, batch, int(number), rows)

    def _compare(self, stream: str, batch: str, ids: int, rows: int) -> None:
        if ids < rows:
            _logger.warning(
                "%d rows of %s for %r had the id of another one of its %d rows and were not written: right if they are"
                " copies; if not, they are lost, and each row needs an id of its own",
                rows - ids, batch, stream, rows,
            )  # fmt: skip
        if ids > rows and self.note:
            _logger.warning(
                "%s wrote %d rows to %r but its last attempt had %d: rows of an earlier attempt had other ids and may"
                " be there twice; an id must be the same in each attempt",
                batch, ids, stream, rows,
            )  # fmt: skip


def _other_batch(stream: str, batch: str, before: int, rows: int) -> PublishError:
    return PublishError(
        f"{batch} was written to {stream!r} before with {before} rows and has {rows} now, of which none was written:"
        " its checkpoint is older than the stream; go on with the newer checkpoint, or start a new one behind what was"
        " written"
    )


def _other_count(stream: str, batch: str, counted: int, rows: int) -> PublishError:
    found = f"the fence of {stream!r} counts {counted} rows in {batch}, but its tasks had {rows}"
    if counted < rows:
        return PublishError(
            f"{found}: the server lost rows that it had confirmed, as after a crash that cost it its last writes, or a"
            " failover; run the query again, which writes what is missing"
        )
    return PublishError(
        f"{found}: an earlier attempt had other partitions, so rows are in the stream twice; delivery=fence needs the"
        " same partitions in each attempt (no AQE behind a shuffle), delivery=batch does not"
    )
