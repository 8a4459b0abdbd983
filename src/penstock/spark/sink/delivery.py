"""What a way of delivering rows is: requests for the rows, and what their replies mean."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from penstock.backend import keys
from penstock.backend.redis import scripts
from penstock.backend.redis.blocking import BlockingLink
from penstock.backend.redis.links import raised
from penstock.spark.sink.rows import Rows
from penstock.spark.sink.words import word


@dataclass(frozen=True)
class Attempt:
    """Who writes: one attempt at one part of one batch of one query."""

    query: str
    batch: int
    part: int
    token: str
    """Of this attempt alone; nobody else has it."""
    remember_ms: int


@dataclass
class Request:
    """Rows that were sent; `wire` can be sent again by every mode but `fence`, which looks first what has arrived."""

    rows: Rows
    wire: bytes
    replies: int = 1
    leaves: str = ""


class Mode:
    """Turns rows into requests, and their replies into a count of rows written. One per attempt."""

    script: ClassVar[str] = ""
    needs_id: ClassVar[bool] = False
    needs_same_bytes: ClassVar[bool] = False
    """A row must become the same bytes in each attempt: no id and no time may be made up for it."""
    bears_speculation: ClassVar[bool] = True

    def __init__(self, attempt: Attempt) -> None:
        self.attempt = attempt

    def begin(self, link: BlockingLink, stream: str) -> None:
        """Called before the first request for a stream, while no other is under way."""

    def request(self, rows: Rows) -> Request | None:
        """What to send for these rows; None if they are in the stream already."""
        raise NotImplementedError

    def written(self, request: Request, replies: Sequence[Any]) -> int:
        """How many rows the request has added; raises if it could not."""
        raise NotImplementedError

    def again(self, link: BlockingLink, unsettled: "list[Request]") -> "list[Request]":
        """What to send again on a new connection, of that for which no reply came."""
        return unsettled

    def evalsha(self, keys_: Sequence[str], arguments: Sequence[bytes | str | int], rows: bytes, count: int) -> bytes:
        """A call of the mode's script; `rows` hold `count` words in all."""
        head = (b"EVALSHA", scripts.load(self.script).sha, len(keys_), *keys_, *arguments)
        return b"".join((b"*%d\r\n" % (len(head) + count), *map(word, head), rows))


def may_create(stream: str) -> str:
    return "1" if keys.may_create(stream) else "0"


def added(reply: Any, stream: str) -> Any:
    """The reply, unless it says that nothing could be added."""
    raised(reply, f"cannot write to {stream!r}")
    if reply is None or reply == b"missing":
        raise keys.refusal(stream)
    return reply
