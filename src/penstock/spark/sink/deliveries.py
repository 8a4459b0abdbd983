"""How rows reach a stream so that a retry does not write them twice. Each way has conditions, and says which.

- `batch`: each row once, in no promised order, whatever the plan. Every row has an `id`, its own and the same in each
  attempt. Rows of one batch with the same stream and id are one message: if they differ, that is an error where they
  stand close together, and a warning that counts them where they do not. The ids stay on the server until the batch is
  done. A batch write can have a `name`, and be repeated or continued under it.
- `fence`: each row once, in order within its partition. Each attempt must have the same rows in the same order in the
  same partitions: no shuffle in the plan, or `sortWithinPartitions` and the option `orderedBy`. A digest proves it
  before any row is skipped, so no row is lost; other partitions than in an earlier attempt can double rows, which is
  an error at the end of the batch.
- `uuid`: each row once as long as its UUID is remembered, across queries, and also beside `publish(once=True)`.
- `explicit_id`: each row under the `entry_id` it comes with. All rows of a stream are in one partition with rising ids,
  and nobody else adds to the stream, or trims it, meanwhile. Whatever cannot be placed is an error.
- `at_least_once`: a retry may write rows again.

A server that goes back to an older state, and loses rows that it had confirmed, is an error until the batch is done:
the next attempt writes them again. What it loses later is lost, so let it write to disk first (`appendfsync always`).

Speculation runs copies of a task beside each other: only `batch` and `uuid` bear that, the others refuse to start.
`batch` and `fence` hold while the query's checkpoint and their keys live: `remember` long after the last write. A
checkpoint that is older than the stream, say from a backup, is an error.
"""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.backend import keys
from penstock.backend.redis import scripts
from penstock.backend.redis.blocking import BlockingLink
from penstock.errors import EncodeError, PublishError
from penstock.spark.sink.delivery import (
    Attempt,
    Mode,
    Newest,
    Request,
    Step,
    accounts_for,
    added,
    entry_order,
    is_done,
    may_create,
)
from penstock.spark.sink.envelopes import canonical_ids
from penstock.spark.sink.fence import Fence
from penstock.spark.sink.identities import as_noted
from penstock.spark.sink.rows import Rows
from penstock.spark.sink.valve import Valved, cuts
from penstock.spark.sink.words import Column, flowing, joined_rows, word, words


class AtLeastOnce(Mode):
    bears_speculation = False
    window = 2000

    def request(self, rows: Rows) -> Request:
        return Request(rows, flowing(rows.appends), len(rows))

    def settle(self, request: Request, replies: Sequence[Any]) -> None:
        for reply in replies:
            if type(reply) is not bytes:
                added(reply, request.rows.stream)
        self.note(Newest(request.rows.stream, replies[-1]), fresh=True)

    def has(self, link: BlockingLink, newest: Newest) -> bool:
        return accounts_for(link, newest.stream, newest.id)


class Batch(Valved):
    script = "sink_batch"
    needs_id = True
    notes_ids = True

    def __init__(self, attempt: Attempt) -> None:
        super().__init__(attempt)
        self._requests = 0
        self._noted: dict[str, str] = {}

    def field(self, stream: str) -> str:
        return f"at/{self.attempt.token}"

    def request(self, rows: Rows) -> Request:
        rows = without_copies(rows, rows.ids)
        if self._by_script:
            self._requests += 1
            return self.as_script(Request(rows, b"", number=self._requests))
        steps = [self._step(rows.stream, stop) for _, stop in cuts(rows)]
        return Request(rows, self._transactions(rows, steps), replies=0, number=self._requests, steps=steps)

    def _step(self, stream: str, stop: int) -> Step:
        self._requests += 1
        expects, self._noted[stream] = self._noted.get(stream, ""), str(self._requests)
        return Step(stop, expects, self._noted[stream])

    def as_script(self, request: Request) -> Request:
        at, rows, number = self.attempt, request.rows, request.number
        stream, names, (lines, count) = rows.stream, rows.names, rows.for_script()
        where = (stream, keys.fence(stream, at.query), keys.written(stream, at.query, at.batch))
        ids = (len(rows), bytes(flowing(as_noted(rows.ids))))
        arguments = (at.batch, at.remember_ms, may_create(stream), at.token, number, *ids, len(names))
        return Request(rows, self.evalsha(where, (*arguments, *names), lines, count), number=number)

    def again(self, link: BlockingLink, unsettled: "list[Request]") -> "list[Request]":
        """By the script, which leaves out the rows that have arrived; those that are late leave out themselves."""
        if unsettled:
            self._go_by_script()
        return super().again(link, unsettled)

    def settle(self, request: Request, replies: Sequence[Any]) -> None:
        stream = request.rows.stream
        reply = added(replies[0], stream)
        if isinstance(reply, list):
            raise self.ahead(stream, int(reply[1]))
        if reply != b"done":
            self.note(Newest(stream, _last(request.rows.ids), request=request.number), fresh=True)

    def has(self, link: BlockingLink, newest: Newest) -> bool:
        at, stream = self.attempt, newest.stream
        doing = f"looking how far batch {at.batch} of query {at.query} is in {stream!r}"
        held = link.command(doing, "HGET", keys.fence(stream, at.query), self.field(stream))
        return int(held or 0) >= newest.request or is_done(link, stream, at)


class Uuid(Mode):
    script = "publish_once"
    needs_id = True

    def request(self, rows: Rows) -> Request:
        stream, ids = rows.stream, canonical_ids(rows.ids, len(rows))
        each, rows = rows, without_copies(rows, ids)
        if rows is not each:
            ids = canonical_ids(rows.ids, len(rows))
        known = words(joined_rows([keys.once(stream, "").encode(), ids]))
        head: tuple[bytes | str | int, ...] = (b"EVALSHA", scripts.load(self.script).sha, 1 + len(rows), stream)
        arguments = (str(self.attempt.remember_ms), may_create(stream))
        count = len(head) + len(rows) + len(arguments) + int(rows.counts.sum()) + len(rows)
        before, after = b"".join(map(word, head)), b"".join(map(word, arguments))
        parts = (b"*%d\r\n" % count, before, flowing(known), after, flowing(rows.counted()))
        return Request(rows, b"".join(parts))

    def settle(self, request: Request, replies: Sequence[Any]) -> None:
        rows = request.rows
        found = added(replies[0], rows.stream)
        if b"" in found:
            raise keys.refusal(rows.stream)
        fresh = [number for number, each in enumerate(found) if not each.startswith(b"=")]
        places = [entry_order(each[1:]) for each in found] if not fresh else []
        last = fresh[-1] if fresh else max(range(len(found)), key=places.__getitem__)
        here = Newest(rows.stream, _id(rows, last), found[last].removeprefix(b"="))
        before = self.newest.get(rows.stream)
        if fresh or before is None or entry_order(before.entry_id) < entry_order(here.entry_id):
            self.note(here, fresh=bool(fresh))

    def has(self, link: BlockingLink, newest: Newest) -> bool:
        stream, id = newest.stream, newest.id.decode()
        if link.command(f"looking for message {id} in {stream!r}", "EXISTS", keys.once(stream, id)) == 1:
            return True
        # Its time may be over: then the entry must tell. A message for later has none yet.
        return bool(newest.entry_id) and accounts_for(link, stream, newest.entry_id)


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
        return Request(rows, self.evalsha((rows.stream,), (may_create(rows.stream),), [lines], count))

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

    def settle(self, request: Request, replies: Sequence[Any]) -> None:
        stream = request.rows.stream
        reply = added(replies[0], stream)
        if isinstance(reply, list):
            why = "is past it and does not have it" if reply[0] == b"absent" else "has another entry there"
            raise PublishError(
                f"entry {reply[1].decode()} cannot be written to {stream!r}, which {why}: write to a new stream, or to"
                " one that holds these very entries from an earlier attempt and that nobody else adds to or trims"
            )
        self.note(Newest(stream, _last(request.rows.entry_ids)), fresh=int(reply) > 0)

    def has(self, link: BlockingLink, newest: Newest) -> bool:
        return accounts_for(link, newest.stream, newest.id)


MODES: dict[str, type[Mode]] = {
    "batch": Batch,
    "fence": Fence,
    "uuid": Uuid,
    "explicit_id": ExplicitId,
    "at_least_once": AtLeastOnce,
}


def without_copies(rows: Rows, ids: Column) -> Rows:
    """Of rows that are equal, one. Refuses rows with the same id that differ: only one of them would be written."""
    if pc.count_distinct(ids).as_py() == len(rows):
        return rows
    seen: dict[bytes, tuple[int, bytes]] = {}
    for place, (id, entry) in enumerate(zip(ids.to_pylist(), rows.entries.to_pylist(), strict=True)):
        if seen.setdefault(id, (place, entry))[1] != entry:
            raise EncodeError(
                f"two rows for {rows.stream!r} have the id {id.decode(errors='replace')!r} and differ: give each row"
                " an id of its own, made of what tells them apart so that it is the same in each attempt, or drop one"
                " of them with dropDuplicates"
            )
    return rows.take([place for place, _ in seen.values()])


def _last(values: Any) -> bytes:
    return bytes(values[-1].as_py())


def _id(rows: Rows, row: int) -> bytes:
    return _last(canonical_ids(pa.array([_last(rows.slice(row, row + 1).ids)]), 1))


def _entry_id(raw: bytes, stream: str) -> tuple[int, int]:
    milliseconds, _, sequence = raw.partition(b"-")
    here = (int(milliseconds), int(sequence)) if milliseconds.isdigit() and sequence.isdigit() else (0, 0)
    if here == (0, 0) or max(here) >= 1 << 64:
        raise EncodeError(f"{raw!r} is no entry id for {stream!r}: fill the column `entry_id` like 1700000000000-0")
    return here
