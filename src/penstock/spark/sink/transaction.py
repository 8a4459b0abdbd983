"""Rows of one part in one transaction with the count of them, dropped if the part changed hands since we looked.

The server is told to answer nothing within it: what it would say for each row costs as much to read as a row to send.
Whether it went through, the fence says.
"""

from penstock.backend import keys
from penstock.backend.redis import scripts
from penstock.backend.redis.blocking import BlockingLink
from penstock.backend.redis.link import Reply, pack
from penstock.errors import ServerUnreachableError
from penstock.spark.sink.delivery import Attempt

_SILENT = pack("CLIENT", "REPLY", "OFF")
_TALKING = pack("CLIENT", "REPLY", "ON")


class Transactions:
    """Of one attempt to write one stream, one after the other: `begin`, rows, `end`, with a `check` before each end."""

    def __init__(self, at: Attempt, stream: str) -> None:
        self._at = at
        self._stream = stream
        self._fence, self._own = keys.fence(stream, at.query), keys.fence_of_part(stream, at.query, at.part)
        self._look = pack("HGET", self._fence, at.part)
        watch = pack("WATCH", self._own, keys.fence_of_batch(stream, at.query))
        # By their text, also below: a server that had forgotten them would append the rows and not note it.
        opening = pack("EVAL", scripts.load("sink_open").text, 2, stream, self._fence, at.part)
        self.begin = b"".join((watch, self._look, _SILENT, pack("MULTI"), opening))

    def end(self, expects: str, leaves: str, rows: int) -> bytes:
        """Have the fence hold `leaves`, if so many rows came."""
        facts = (self._at.part, expects, leaves, self._at.remember_ms, rows)
        note = pack("EVAL", scripts.load("sink_note").text, 3, self._stream, self._fence, self._own, *facts)
        return b"".join((note, pack("EXEC"), _TALKING, self._look))

    def check(self, link: BlockingLink, held: str) -> None:
        """Receive what the fence held at the last begin or end; `ServerUnreachableError` if it was not this."""
        replies = link.reply(), link.reply()
        if replies != (b"OK", held.encode()):
            raise ServerUnreachableError(f"a transaction for {self._stream!r} did not go through")

    def are_allowed(self, link: BlockingLink) -> bool:
        """Whether the server lets us: within a transaction we would not hear that there is none."""
        replies = link.pipeline(f"trying a transaction for {self._stream!r}", [pack("MULTI"), pack("DISCARD")])
        return replies == [b"OK", b"OK"]

    def drop(self, link: BlockingLink) -> Reply:
        """Have the server drop those that are still on their way; what the fence holds from now on."""
        doing, where = f"reading the fence of {self._stream!r}", (self._fence, self._own)
        return link.script(doing, scripts.load("sink_drop"), where, self._at.part, self._at.token, self._at.remember_ms)
