"""Rows and what is noted of them in one transaction, which lets no row into the stream unless the fence is as expected.

Its first command closes the stream to it if not, and its last opens the stream again: so no look at the fence has to be
waited for, and transactions can be small. The server is told to answer nothing within them: what it would say for each
row costs as much to read as a row to send. Whether they went through, the fence says.

A script that does the same costs the server half as much again. It is for the rest of an attempt that met any trouble,
because it can say what the matter is.
"""

import logging
from collections.abc import Sequence
from typing import Any, ClassVar

from penstock.backend import keys
from penstock.backend.redis import scripts
from penstock.backend.redis.blocking import BlockingLink
from penstock.backend.redis.link import pack
from penstock.errors import ServerUnreachableError
from penstock.spark.sink.delivery import Attempt, Mode, Request, Step
from penstock.spark.sink.identities import as_noted
from penstock.spark.sink.rows import Rows
from penstock.spark.sink.words import flowing, word

_log = logging.getLogger("penstock.spark")
_SILENT, _TALKING = pack("CLIENT", "REPLY", "OFF"), pack("CLIENT", "REPLY", "ON")
_MULTI, _EXEC = pack("MULTI"), pack("EXEC")
_ROWS = 250  # of a transaction: one that is larger outgrows the server's cache


class Valved(Mode):
    """By transactions, or after any trouble by the mode's script."""

    window = 2000
    notes_ids: ClassVar[bool] = False
    """Rows are let in only if their ids are not known."""

    def __init__(self, attempt: Attempt) -> None:
        super().__init__(attempt)
        self._by_script = False

    def begin(self, link: BlockingLink, stream: str) -> None:
        if self._by_script or self._is_allowed(link, stream):
            return
        self._go_by_script()
        _log.warning(
            "the server lets this account have no transactions (MULTI, EXEC, XSETID, see docs/spark.md): the rows for"
            " %r go by scripts, which cost it half as much again", stream,
        )  # fmt: skip
        raise ServerUnreachableError("a connection may be within a transaction that it cannot end")

    def field(self, stream: str) -> str:
        """Where the fence says how far this attempt is."""
        raise NotImplementedError

    def as_script(self, request: Request) -> Request:
        """The same rows by the mode's script."""
        raise NotImplementedError

    def send(self, link: BlockingLink, request: Request) -> None:
        if self._by_script and not request.replies:  # made before there was trouble
            script = self.as_script(request)
            request.wire, request.replies, request.steps = script.wire, script.replies, script.steps
        super().send(link, request)

    def receive(self, link: BlockingLink, request: Request) -> Sequence[Any]:
        if request.replies:
            return super().receive(link, request)
        if (link.reply(), link.reply()) != (b"OK", request.steps[-1].leaves.encode()):
            raise ServerUnreachableError(f"a transaction for {request.rows.stream!r} did not go through")
        return [b"ok"]

    def _is_allowed(self, link: BlockingLink, stream: str) -> bool:
        """Whether the server lets us: within a transaction we would not hear of it."""
        trial = pack("EVAL", scripts.load("sink_try").text, 2, stream, keys.valve(stream), int(self.notes_ids))
        replies = link.pipeline(f"trying a transaction for {stream!r}", [_TALKING, _MULTI, trial, _EXEC])
        return replies == [b"OK", b"OK", b"QUEUED", [1]]

    def _go_by_script(self) -> None:
        self._by_script, self.window = True, Mode.window  # type: ignore[misc]

    def _transactions(self, rows: Rows, steps: "Sequence[Step]") -> bytes:
        """One for each step."""
        at, stream, field = self.attempt, rows.stream, self.field(rows.stream)
        fence = keys.fence(stream, at.query)
        where = (4, stream, keys.valve(stream), fence, keys.written(stream, at.query, at.batch))
        ids = as_noted(rows.ids) if self.notes_ids else None
        # By their text: a server that had forgotten them would add the rows whatever the fence says.
        opening, noting = (_words("EVAL", scripts.load(name).text, *where) for name in ("sink_open", "sink_note"))
        parts: list[bytes | memoryview] = [_SILENT]
        start = 0
        for step in steps:
            count = step.rows - start
            known = [] if ids is None else [bytes(flowing(ids.slice(start, count)))]
            first = _request(opening, at.batch, field, step.expects, count, *known)
            last = _request(noting, field, step.leaves, at.remember_ms, count, *known)
            parts += (_MULTI, first, flowing(rows.appends.slice(start, count)), last, _EXEC)
            start = step.rows
        return b"".join((*parts, _TALKING, pack("HGET", fence, field)))


def cuts(rows: Rows) -> "list[tuple[int, int]]":
    """Where each of the transactions begins and ends."""
    return [(start, min(start + _ROWS, len(rows))) for start in range(0, len(rows), _ROWS)]


def _words(*values: bytes | str | int) -> tuple[int, bytes]:
    return len(values), b"".join(map(word, values))


def _request(head: tuple[int, bytes], *arguments: bytes | str | int) -> bytes:
    return b"".join((b"*%d\r\n" % (head[0] + len(arguments)), head[1], *map(word, arguments)))
