"""Delivery `fence`: the server counts the rows of each part of a batch, and only the newest attempt may add to them."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.backend import keys
from penstock.backend.redis import scripts
from penstock.backend.redis.blocking import BlockingLink
from penstock.errors import FencedError, PublishError
from penstock.spark.sink_mode import Attempt, Mode, Request, added, may_create
from penstock.spark.sink_rows import Rows
from penstock.spark.sink_words import flowing


@dataclass
class _Part:
    """How far this attempt is with one stream."""

    done: int
    """Rows that were in the stream when we took over."""
    proof: str
    """Their digest."""
    expects: str
    finished: bool = False
    rows: int = 0
    digest: Any = field(default_factory=lambda: hashlib.sha1(usedforsecurity=False))


class Fence(Mode):
    script = "sink_fence"
    needs_same_bytes = True
    bears_speculation = False

    def __init__(self, attempt: Attempt) -> None:
        super().__init__(attempt)
        self._parts: dict[str, _Part] = {}

    def begin(self, link: BlockingLink, stream: str) -> None:
        at = self.attempt
        doing = f"taking part {at.part} of batch {at.batch} of query {at.query} for {stream!r}"
        where, words_ = [keys.fence(stream, at.query)], (at.part, at.batch, at.token, at.remember_ms)
        verdict, *facts = link.script(doing, scripts.load("sink_take"), where, *words_)
        if verdict == b"ahead":
            raise self._fenced(stream, f"batch {facts[0].decode()} is being written")
        if verdict == b"done":
            self._parts[stream] = _Part(0, "", "", finished=True)
        else:
            self._parts[stream] = _Part(int(facts[0]), facts[1].decode(), facts[2].decode())

    def request(self, rows: Rows) -> Request | None:
        part = self._parts[rows.stream]
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
        lines, expected = self._follow(part, rows), part.expects
        at, stream = self.attempt, rows.stream
        part.expects = f"{at.batch} {part.rows} {part.digest.hexdigest()} {at.token}"
        arguments = (at.part, at.batch, expected, part.expects, at.remember_ms, may_create(stream))
        where = (stream, keys.fence(stream, at.query))
        wire = self.evalsha(where, arguments, lines, int(rows.counts.sum()) + len(rows))
        return Request(rows, wire, leaves=part.expects)

    def _follow(self, part: _Part, rows: Rows) -> bytes:
        lines = flowing(rows.counted())
        part.digest.update(lines)
        part.rows += len(rows)
        return lines

    def written(self, request: Request, replies: Sequence[Any]) -> int:
        stream = request.rows.stream
        reply = added(replies[0], stream)
        if reply == b"fenced":
            raise self._fenced(stream, "a newer attempt has taken it over")
        if reply == b"done":
            self._parts[stream].finished = True
            return 0
        return len(request.rows)

    def again(self, link: BlockingLink, unsettled: "list[Request]") -> "list[Request]":
        rest: dict[str, list[Request]] = {}
        for request in unsettled:
            rest.setdefault(request.rows.stream, []).append(request)
        for stream, waiting in rest.items():
            held = link.command(
                f"reading the fence of {stream!r}", "HGET", keys.fence(stream, self.attempt.query), self.attempt.part
            )
            arrived = [number for number, each in enumerate(waiting) if each.leaves.encode() == held]
            rest[stream] = waiting[arrived[0] + 1 :] if arrived else waiting
        kept = {id(request) for waiting in rest.values() for request in waiting}
        return [request for request in unsettled if id(request) in kept]

    def check_end(self) -> None:
        """Call after the last row: an attempt that has fewer rows than an earlier one wrote is not the same."""
        for stream, part in self._parts.items():
            if part.rows < part.done:
                raise self._other_rows(stream, part.done)

    def _fenced(self, stream: str, why: str) -> FencedError:
        at = self.attempt
        return FencedError(
            f"part {at.part} of batch {at.batch} of query {at.query} must not be written to {stream!r} by this attempt:"
            f" {why}; if no other run of the query is under way, its next attempt goes on"
        )

    def _other_rows(self, stream: str, rows: int) -> PublishError:
        at = self.attempt
        return PublishError(
            f"an earlier attempt wrote {rows} rows of part {at.part} of batch {at.batch} to {stream!r} that are not the"
            " first rows of this one: the plan does not give the same rows in the same order each time, so no fence can"
            " tell what is missing; use delivery=batch, or sortWithinPartitions and orderedBy, from the start. To get"
            " over this batch: delivery=at_least_once, which may write some of its rows twice"
        )
