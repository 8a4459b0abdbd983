"""Delivery `fence`: the server counts the rows of each part of a batch, and only the newest attempt may add to them.

Rows are added by plain commands in a transaction, which the server drops if the part was taken over since we looked: a
script that does the same costs it half as much again. The script is for the rest of an attempt that met any trouble,
because it can say what the matter is.
"""

import hashlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow.compute as pc

from penstock.backend import keys
from penstock.backend.redis import scripts
from penstock.backend.redis.blocking import BlockingLink
from penstock.errors import FencedError, PublishError
from penstock.spark.sink.delivery import Attempt, Mode, Newest, Request, added, appends, may_create
from penstock.spark.sink.rows import Rows
from penstock.spark.sink.transaction import Transactions
from penstock.spark.sink.words import flowing, word

_log = logging.getLogger("penstock.spark")
_ABSENT, _WHOLE = b"$-1\r\n", b""


class _Digest:
    """Of rows in their order: the same however they come in pieces, which may have more or fewer fields in common."""

    def __init__(self) -> None:
        self._rows = 0
        self._fields: dict[bytes, Any] = {}

    def update(self, rows: Rows) -> None:
        fields = rows.fields if rows.whole is None else {_WHOLE: rows.counted()}
        for name in fields.keys() - self._fields.keys():
            self._fields[name] = _hash(_ABSENT * self._rows)
        for name, digest in self._fields.items():
            values = fields.get(name)
            if values is not None and values.null_count:
                values = pc.fill_null(values, _ABSENT)
            digest.update(_ABSENT * len(rows) if values is None else flowing(values))
        self._rows += len(rows)

    def hexdigest(self) -> str:
        each = (word(name) + digest.digest() for name, digest in self._fields.items())
        found: str = _hash(b"".join(sorted(each))).hexdigest()
        return found


def _hash(start: bytes) -> Any:
    # The one that processors have instructions for: half the time of SHA-1, a tenth of what a row costs us.
    return hashlib.sha256(start, usedforsecurity=False)


@dataclass
class _Part:
    """How far this attempt is with one stream."""

    done: int
    """Rows that were in the stream when we took over."""
    proof: str
    """Their digest."""
    expects: str
    transactions: Transactions
    finished: bool = False
    rows: int = 0
    digest: _Digest = field(default_factory=_Digest)


class Fence(Mode):
    script = "sink_fence"
    needs_same_bytes = True
    bears_speculation = False
    window = 2000
    most_under_way = 2  # not more: what ends one is told after what begins the next

    def __init__(self, attempt: Attempt) -> None:
        super().__init__(attempt)
        self._parts: dict[str, _Part] = {}
        self._open: Request | None = None
        """Whose transaction has begun and not ended."""
        self._in_doubt = False

    def begin(self, link: BlockingLink, stream: str) -> None:
        at = self.attempt
        doing = f"taking part {at.part} of batch {at.batch} of query {at.query} for {stream!r}"
        where = [keys.fence(stream, at.query), keys.fence_of_part(stream, at.query, at.part), stream]
        words_ = (at.part, at.batch, at.token, at.remember_ms)
        verdict, *facts = link.script(doing, scripts.load("sink_take"), where, *words_)
        if verdict == b"ahead":
            raise self.ahead(stream, int(facts[0]))
        if verdict == b"done":
            self._parts[stream] = _Part(0, "", "", Transactions(at, stream), finished=True)
        else:
            held = int(facts[0]), facts[1].decode(), facts[2].decode()
            self._parts[stream] = part = _Part(*held, Transactions(at, stream))
            if not self._in_doubt and not part.transactions.are_allowed(link):
                self._in_doubt = True
                _log.warning(
                    "the server lets this account have no transactions (MULTI, DISCARD): the rows for %r go by scripts,"
                    " which cost it half as much again", stream,
                )  # fmt: skip

    def request(self, rows: Rows) -> Request | None:
        part, at = self._parts[rows.stream], self.attempt
        if part.finished:
            return None
        skipped = min(len(rows), max(0, part.done - part.rows))
        if skipped:
            self._follow(part, rows.slice(0, skipped))
            if part.rows == part.done and part.digest.hexdigest() != part.proof:
                raise self._other_rows(rows.stream, part.done)
            rows = rows.slice(skipped)
        if not len(rows):
            return None
        self._follow(part, rows)
        expects, part.expects = part.expects, f"{at.batch} {part.rows} {part.digest.hexdigest()} {at.token}"
        return Request(rows, flowing(appends(rows)), expects=expects, leaves=part.expects)

    def send(self, link: BlockingLink, request: Request) -> None:
        """And what ends the transaction before, which has waited for us to see that the part was ours as it began."""
        if self._in_doubt:
            link.send(self._script(request))
        else:
            begin = self._parts[request.rows.stream].transactions.begin
            ending, self._open = self._ending(link), request
            link.send(b"".join((ending, begin, request.wire)))

    def receive(self, link: BlockingLink, request: Request) -> Sequence[Any]:
        if self._in_doubt:
            return super().receive(link, request)
        if self._open is request:
            ending, self._open = self._ending(link), None
            link.send(ending)
        self._parts[request.rows.stream].transactions.check(link, request.leaves)
        return [b"ok"]

    def _ending(self, link: BlockingLink) -> bytes:
        request = self._open
        if request is None:
            return b""
        transactions = self._parts[request.rows.stream].transactions
        transactions.check(link, request.expects)
        return transactions.end(request.expects, request.leaves, len(request.rows))

    def _script(self, request: Request) -> bytes:
        at, stream, names = self.attempt, request.rows.stream, request.rows.names
        lines, count = request.rows.for_script()
        arguments = (at.part, at.batch, request.expects, request.leaves, at.remember_ms, may_create(stream))
        where = (stream, keys.fence(stream, at.query))
        return self.evalsha(where, (*arguments, len(names), *names), lines, count)

    def _follow(self, part: _Part, rows: Rows) -> None:
        part.digest.update(rows)
        part.rows += len(rows)

    def settle(self, request: Request, replies: Sequence[Any]) -> None:
        stream = request.rows.stream
        reply = added(replies[0], stream)
        if isinstance(reply, list):
            raise self.ahead(stream, int(reply[1]))
        if reply == b"fenced":
            raise self._fenced(stream)
        if reply == b"done":
            self._parts[stream].finished = True

    def has(self, link: BlockingLink, newest: Newest) -> bool:
        """Not asked for: the fence counts rows itself, and a server that lost some refuses what comes next."""
        return True

    def again(self, link: BlockingLink, unsettled: "list[Request]") -> "list[Request]":
        self._in_doubt, self._open = self._in_doubt or bool(unsettled), None
        rest: dict[str, list[Request]] = {}
        for request in unsettled:
            rest.setdefault(request.rows.stream, []).append(request)
        for stream, waiting in rest.items():
            held = self._parts[stream].transactions.drop(link)
            arrived = [number for number, each in enumerate(waiting) if each.leaves.encode() == held]
            rest[stream] = waiting[arrived[0] + 1 :] if arrived else waiting
        kept = {id(request) for waiting in rest.values() for request in waiting}
        return [request for request in unsettled if id(request) in kept]

    def check_end(self) -> None:
        """Call after the last row: an attempt that has fewer rows than an earlier one wrote is not the same."""
        for stream, part in self._parts.items():
            if part.rows < part.done:
                raise self._other_rows(stream, part.done)

    def _fenced(self, stream: str) -> FencedError:
        at = self.attempt
        return FencedError(
            f"part {at.part} of batch {at.batch} of query {at.query} must not be written to {stream!r} by this attempt:"
            " a newer attempt has taken it over, or the server went back to an older state; if no other run of the"
            " query is under way, its next attempt goes on"
        )

    def _other_rows(self, stream: str, rows: int) -> PublishError:
        at = self.attempt
        return PublishError(
            f"an earlier attempt wrote {rows} rows of part {at.part} of batch {at.batch} to {stream!r} that are not the"
            " first rows of this one: the plan does not give the same rows in the same order each time, so no fence can"
            " tell what is missing; use delivery=batch, or sortWithinPartitions and orderedBy, from the start. To get"
            " over this batch: delivery=at_least_once, which may write some of its rows twice"
        )
