"""How rows reach a stream so that a retry does not write them twice. Each way has conditions, and says which.

- `batch`: each row once, in no promised order, whatever the plan. Every row has an `id`, the same in each attempt; rows
  of one batch with the same stream and id are one message. The ids of a batch stay on the server until it is done.
- `fence`: each row once, in order within its partition. Each attempt must have the same rows in the same order in the
  same partitions: no shuffle in the plan, or `sortWithinPartitions` and the option `orderedBy`. A digest proves it
  before any row is skipped: a plan that breaks the condition ends in an error, never in a row lost or doubled.
- `uuid`: each row once as long as its UUID is remembered, across queries, and also beside `publish(once=True)`.
- `explicit_id`: each row under the `entry_id` it comes with. All rows of a stream are in one partition with rising ids,
  and nobody else adds to the stream, or trims it, meanwhile. Whatever cannot be placed is an error.
- `at_least_once`: a retry may write rows again.

Speculation runs copies of a task beside each other: only `batch` and `uuid` bear that, the others refuse to start.
`batch` and `fence` hold while the query's checkpoint and their keys live: `remember` long after the last write.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.backend import keys
from penstock.backend.redis import scripts
from penstock.errors import EncodeError, PublishError
from penstock.spark.sink.delivery import Attempt, Mode, Request, added, may_create
from penstock.spark.sink.envelopes import canonical_ids
from penstock.spark.sink.fence import Fence
from penstock.spark.sink.rows import Rows
from penstock.spark.sink.words import Column, flowing, joined_rows, word, words


class AtLeastOnce(Mode):
    bears_speculation = False

    def request(self, rows: Rows) -> Request:
        create = keys.may_create(rows.stream)
        head = [b"XADD", rows.stream.encode(), *([] if create else [b"NOMKSTREAM"]), b"*"]
        start, counts = b"".join(map(word, head)), rows.counts + len(head)
        if counts.min() == counts.max():
            lines = joined_rows([b"*%d\r\n" % counts[0] + start, rows.entries])
        else:
            lines = joined_rows([b"*", _texts(counts), b"\r\n" + start, rows.entries])
        return Request(rows, flowing(lines), len(rows))

    def written(self, request: Request, replies: Sequence[Any]) -> int:
        for reply in replies:
            if type(reply) is not bytes:
                added(reply, request.rows.stream)
        return len(replies)


class Batch(Mode):
    script = "sink_batch"
    needs_id = True

    def request(self, rows: Rows) -> Request:
        at, stream, names = self.attempt, rows.stream, rows.names
        where = (stream, keys.fence(stream, at.query), keys.written(stream, at.query, at.batch))
        if b"id" in names:
            place, (lines, count) = names.index(b"id") + 1, rows.for_script()
        else:
            names, place = (), 0
            lines = flowing(joined_rows([words(rows.ids), rows.counted()]))
            count = int(rows.counts.sum()) + 2 * len(rows)
        arguments = (at.batch, at.remember_ms, may_create(stream), place, len(names))
        return Request(rows, self.evalsha(where, (*arguments, *names), lines, count))

    def written(self, request: Request, replies: Sequence[Any]) -> int:
        reply = added(replies[0], request.rows.stream)
        return 0 if reply == b"done" else int(reply)


class Uuid(Mode):
    script = "publish_once"
    needs_id = True

    def request(self, rows: Rows) -> Request:
        stream = rows.stream
        known = words(joined_rows([keys.once(stream, "").encode(), canonical_ids(rows.ids, len(rows))]))
        head: tuple[bytes | str | int, ...] = (b"EVALSHA", scripts.load(self.script).sha, 1 + len(rows), stream)
        arguments = (str(self.attempt.remember_ms), may_create(stream))
        count = len(head) + len(rows) + len(arguments) + int(rows.counts.sum()) + len(rows)
        parts = (*map(word, head), flowing(known), *map(word, arguments), flowing(rows.counted()))
        return Request(rows, b"".join((b"*%d\r\n" % count, *parts)))

    def written(self, request: Request, replies: Sequence[Any]) -> int:
        found = added(replies[0], request.rows.stream)
        if b"" in found:
            raise keys.refusal(request.rows.stream)
        return sum(not each.startswith(b"=") for each in found)


class ExplicitId(Mode):
    script = "sink_explicit"
    needs_same_bytes = True
    bears_speculation = False

    def __init__(self, attempt: Attempt) -> None:
        super().__init__(attempt)
        self._last: dict[str, tuple[int, int]] = {}

    def request(self, rows: Rows) -> Request:
        self._check_order(rows)
        lines = flowing(joined_rows([words(rows.entry_ids), rows.counted()]))
        count = int(rows.counts.sum()) + 2 * len(rows)
        return Request(rows, self.evalsha((rows.stream,), (may_create(rows.stream),), lines, count))

    def _check_order(self, rows: Rows) -> None:
        last = self._last.get(rows.stream, (0, 0))
        for each in map(bytes, pc.fill_null(rows.entry_ids, b"").to_pylist()):
            here = _entry_id(each, rows.stream)
            if here <= last:
                raise EncodeError(
                    f"entry {each.decode()} for {rows.stream!r} comes after {last[0]}-{last[1]}: with explicit ids the"
                    " rows of a stream must be in one partition, sorted by time and number of their entry id"
                )
            last = here
        self._last[rows.stream] = last

    def written(self, request: Request, replies: Sequence[Any]) -> int:
        stream = request.rows.stream
        reply = added(replies[0], stream)
        if isinstance(reply, list):
            why = "is past it and does not have it" if reply[0] == b"absent" else "has another entry there"
            raise PublishError(
                f"entry {reply[1].decode()} cannot be written to {stream!r}, which {why}: write to a new stream, or to"
                " one that holds these very entries from an earlier attempt and that nobody else adds to or trims"
            )
        return int(reply)


MODES: dict[str, type[Mode]] = {
    "batch": Batch,
    "fence": Fence,
    "uuid": Uuid,
    "explicit_id": ExplicitId,
    "at_least_once": AtLeastOnce,
}


def _texts(numbers: "np.ndarray[Any, Any]") -> Column:
    return pa.array(numbers).cast(pa.string()).cast(pa.binary())


def _entry_id(raw: bytes, stream: str) -> tuple[int, int]:
    milliseconds, _, sequence = raw.partition(b"-")
    here = (int(milliseconds), int(sequence)) if milliseconds.isdigit() and sequence.isdigit() else (0, 0)
    if here == (0, 0) or max(here) >= 1 << 64:
        raise EncodeError(f"{raw!r} is no entry id for {stream!r}: fill the column `entry_id` like 1700000000000-0")
    return here
