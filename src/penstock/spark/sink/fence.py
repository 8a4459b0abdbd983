"""Delivery `fence`: the server counts the rows of each part of a batch, and only the newest attempt may add to them."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.backend import keys
from penstock.backend.redis import scripts
from penstock.backend.redis.blocking import BlockingLink
from penstock.errors import FencedError, PublishError
from penstock.spark.sink.delivery import Attempt, Newest, Request, Step, added, may_create
from penstock.spark.sink.rows import Rows
from penstock.spark.sink.valve import Valved, cuts
from penstock.spark.sink.words import Column, flowing


def _digest() -> Any:
    # The one that processors have instructions for: half the time of SHA-1, a tenth of what a row costs us.
    return hashlib.sha256(usedforsecurity=False)


def _noted(value: str) -> str:
    """What a value of the fence says of rows; behind it is the token."""
    return value.rpartition(" ")[0]


@dataclass
class _Part:
    """How far this attempt is with one stream."""

    done: int
    """Rows that were in the stream when we took over."""
    proof: str
    """Their digest."""
    token: str
    """Of this attempt; another one after each trouble, so that what was sent before and is late finds the old gone."""
    lap: int = 0
    finished: bool = False
    rows: int = 0
    noted: str = ""
    """What the fence says of the rows, before the token, when all that was sent has arrived."""
    digest: Any = field(default_factory=_digest)
    """Of the requests that append the rows, behind each other."""


class Fence(Valved):
    script = "sink_fence"
    needs_same_bytes = True
    bears_speculation = False

    def __init__(self, attempt: Attempt) -> None:
        super().__init__(attempt)
        self._parts: dict[str, _Part] = {}

    def field(self, stream: str) -> str:
        return str(self.attempt.part)

    def begin(self, link: BlockingLink, stream: str) -> None:
        super().begin(link, stream)
        at = self.attempt
        doing = f"taking part {at.part} of batch {at.batch} of query {at.query} for {stream!r}"
        words_ = (at.part, at.batch, at.token, at.remember_ms)
        verdict, *facts = link.script(doing, scripts.load("sink_take"), [keys.fence(stream, at.query)], *words_)
        if verdict == b"ahead":
            raise self.ahead(stream, int(facts[0]))
        if verdict == b"done":
            self._parts[stream] = _Part(0, "", at.token, finished=True)
        else:
            done, proof = int(facts[0]), facts[1].decode()
            self._parts[stream] = _Part(done, proof, at.token, noted=f"{at.batch} {done} {proof}")

    def request(self, rows: Rows) -> Request | None:
        part = self._parts[rows.stream]
        if part.finished:
            return None
        skipped = min(len(rows), max(0, part.done - part.rows))
        if skipped:
            self._follow(part, rows.slice(0, skipped).appends)
            if part.rows == part.done and part.digest.hexdigest() != part.proof:
                raise self._other_rows(rows.stream, part.done)
            rows = rows.slice(skipped)
        if not len(rows):
            return None
        if self._by_script:
            return self.as_script(Request(rows, b"", steps=[self._step(part, rows, 0, len(rows))]))
        steps = [self._step(part, rows, start, stop) for start, stop in cuts(rows)]
        return Request(rows, self._transactions(rows, steps), replies=0, steps=steps)

    def _step(self, part: _Part, rows: Rows, start: int, stop: int) -> Step:
        self._follow(part, rows.appends.slice(start, stop - start))
        before, part.noted = part.noted, f"{self.attempt.batch} {part.rows} {part.digest.hexdigest()}"
        return Step(stop, f"{before} {part.token}", f"{part.noted} {part.token}")

    def as_script(self, request: Request) -> Request:
        """With the token of today, and as one step."""
        at, rows, token = self.attempt, request.rows, self._parts[request.rows.stream].token
        expects, leaves = (_noted(each) for each in (request.steps[0].expects, request.steps[-1].leaves))
        step = Step(len(rows), f"{expects} {token}", f"{leaves} {token}")
        (lines, count), names = rows.for_script(), rows.names
        arguments = (at.part, at.batch, step.expects, step.leaves, at.remember_ms, may_create(rows.stream))
        where = (rows.stream, keys.fence(rows.stream, at.query))
        return Request(rows, self.evalsha(where, (*arguments, len(names), *names), lines, count), steps=[step])

    def _follow(self, part: _Part, appends: Column) -> None:
        part.digest.update(flowing(appends))
        part.rows += len(appends)

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
        if unsettled:
            self._go_by_script()
        rest: list[Request] = []
        for stream in dict.fromkeys(request.rows.stream for request in unsettled):
            waiting = [request for request in unsettled if request.rows.stream == stream]
            rest += self._behind(self._drop(link, stream), waiting)
        return rest

    def _drop(self, link: BlockingLink, stream: str) -> str | None:
        """What the fence says of our rows, from now on: what is still on its way will not be let in."""
        at, part = self.attempt, self._parts[stream]
        part.lap += 1
        part.token = f"{at.token}.{part.lap}"
        where, doing = [keys.fence(stream, at.query)], f"reading the fence of {stream!r}"
        held = link.script(doing, scripts.load("sink_drop"), where, at.part, at.token, part.lap)
        return None if held is None else held.decode()

    def _behind(self, held: str | None, waiting: "list[Request]") -> "Iterator[Request]":
        """Of requests for one stream the rows that the fence does not note yet, by the script."""
        for number, request in enumerate(waiting):
            for place, step in enumerate(request.steps):
                if _noted(step.leaves) == held:
                    rest = Request(request.rows.slice(step.rows), b"", steps=request.steps[place + 1 :])
                    waiting = [*([rest] if rest.steps else []), *waiting[number + 1 :]]
        return map(self.as_script, waiting)

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
