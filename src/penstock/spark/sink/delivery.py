"""What a way of delivering rows is: requests for the rows, and what their replies mean."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from penstock.backend import keys
from penstock.backend.redis import scripts
from penstock.backend.redis.blocking import BlockingLink
from penstock.backend.redis.link import pack
from penstock.backend.redis.links import raised
from penstock.errors import FencedError, PublishError, ServerUnreachableError
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


@dataclass(frozen=True)
class Newest:
    """The row that came to a stream last, of those the server has confirmed, and how to find it again."""

    stream: str
    id: bytes
    """What the delivery knows the row by."""
    entry_id: bytes = b""
    request: int = 0
    """The attempt's request that it came with, where the server keeps that."""


@dataclass(frozen=True)
class Step:
    """Rows of a request that go in together, or not at all, and what is noted of them."""

    rows: int
    """Of the request, up to here."""
    expects: str
    """What must be noted before."""
    leaves: str


@dataclass
class Request:
    """Rows that were sent; what to send again, the mode says."""

    rows: Rows
    wire: bytes | memoryview
    replies: int = 1
    """None if it is a note that tells."""
    number: int = 0
    steps: Sequence[Step] = ()


class Mode:
    """Turns rows into requests, and their replies into a count of rows written. One per attempt."""

    script: ClassVar[str] = ""
    needs_id: ClassVar[bool] = False
    needs_same_bytes: ClassVar[bool] = False
    """A row must become the same bytes in each attempt: no id and no time may be made up for it."""
    bears_speculation: ClassVar[bool] = True
    window: ClassVar[int] = 1000
    """Rows of a request, unless told: so few that a script of them keeps nobody else waiting."""
    most_under_way: ClassVar[int] = 3
    """Requests that have no reply yet."""

    def __init__(self, attempt: Attempt) -> None:
        self.attempt = attempt
        self.newest: dict[str, Newest] = {}
        """By stream, for those that must be looked at to know that nothing is lost."""

    def begin(self, link: BlockingLink, stream: str) -> None:
        """Called before the first request for a stream, while no other is under way."""

    def request(self, rows: Rows) -> Request | None:
        """What to send for these rows; None if they are in the stream already."""
        raise NotImplementedError

    def send(self, link: BlockingLink, request: Request) -> None:
        link.send(request.wire)

    def receive(self, link: BlockingLink, request: Request) -> Sequence[Any]:
        """The replies to a request, all of those sent before it having been received."""
        replies = [link.reply() for _ in range(request.replies)]
        if isinstance(replies[0], Exception) and str(replies[0]).startswith("NOSCRIPT"):
            raise ServerUnreachableError("the server has forgotten our script")
        return replies

    def settle(self, request: Request, replies: Sequence[Any]) -> None:
        """Note in `newest` that the rows are in the stream; raises if they are not."""
        raise NotImplementedError

    def again(self, link: BlockingLink, unsettled: "list[Request]") -> "list[Request]":
        """What to send again on a new connection, of that for which no reply came; raises if the server lost more."""
        self.check_kept(link, self.newest.values())
        return unsettled

    def note(self, newest: Newest, *, fresh: bool) -> None:
        """Take a row for the newest of its stream. One that was written just now is newer than those of all others."""
        if fresh:
            self.newest.clear()
        self.newest[newest.stream] = newest

    def check_kept(self, link: BlockingLink, rows: Iterable[Newest]) -> None:
        """Raises if the server went back to a state in which it does not have one of these rows.

        A server loses its last writes, not some in between: it has all that came before a row that is there. A row
        that an earlier attempt wrote proves nothing about newer ones, even if it was confirmed after them.
        """
        for newest in rows:
            if not self.has(link, newest):
                raise self._missing(newest)

    def _missing(self, newest: Newest) -> PublishError:
        at = self.attempt
        return PublishError(
            f"rows of part {at.part} of batch {at.batch} of query {at.query} are missing in {newest.stream!r}: the"
            f" server had confirmed them up to {newest.id.decode(errors='replace')!r} and does not know that one any"
            " more, as after a crash that cost it its last writes, or a failover. The next attempt writes them again;"
            " if the server has lost nothing, the option remember is shorter than the batch takes"
        )

    def has(self, link: BlockingLink, newest: Newest) -> bool:
        """Whether the server still knows this row."""
        raise NotImplementedError

    def ahead(self, stream: str, batch: int) -> FencedError:
        at = self.attempt
        return FencedError(
            f"batch {at.batch} of query {at.query} must not be written to {stream!r}, which has rows of batch {batch}"
            " already. If no other run of the query is under way, its checkpoint is older than the stream: go on with"
            " the newer checkpoint, or start a new one behind what was written"
        )

    def evalsha(
        self, keys_: Sequence[str], arguments: Sequence[bytes | str | int], rows: Sequence[memoryview], count: int
    ) -> bytes:
        """A call of the mode's script; `rows` hold `count` words in all."""
        head = (b"EVALSHA", scripts.load(self.script).sha, len(keys_), *keys_, *arguments)
        return b"".join((b"*%d\r\n" % (len(head) + count), *map(word, head), *rows))


def is_done(link: BlockingLink, stream: str, attempt: Attempt) -> bool:
    """Whether the sink's commit has noted that the attempt's batch, or a newer one, is in the stream."""
    done = batch_done(link, stream, attempt.query)
    return done is not None and done[0] >= attempt.batch


def batch_done(link: BlockingLink, stream: str, query: str) -> tuple[int, int] | None:
    """The number of the newest batch that is done, and how many rows it has; None if none is."""
    doing = f"looking which batch of query {query} is in {stream!r}"
    batch, _, rows = (link.command(doing, "HGET", keys.fence(stream, query), "done") or b"").partition(b" ")
    return (int(batch), int(rows)) if batch else None


def accounts_for(link: BlockingLink, stream: str, entry_id: bytes) -> bool:
    """Whether a stream has an entry, or had it: the oldest may have been trimmed since, and any may have been deleted.

    A server that lost the entry is not found out if others have added newer ones since and trimmed or deleted these.
    """
    doing = f"looking for entry {entry_id.decode()} in {stream!r}"
    ask = [pack("XRANGE", stream, entry_id, entry_id), pack("XINFO", "STREAM", stream)]
    found, info = link.pipeline(doing, ask)
    if raised(found, doing):
        return True
    if not isinstance(info, list):  # an error: there is no such stream
        return False
    facts = dict(zip(info[::2], info[1::2], strict=True))
    here, first = entry_order(entry_id), facts[b"first-entry"]
    trimmed = here < entry_order(first[0]) if first else here <= entry_order(facts[b"last-generated-id"])
    return trimmed or here <= entry_order(facts[b"max-deleted-entry-id"])


def entry_order(entry_id: bytes) -> tuple[int, ...]:
    """Entries of a stream in the order in which they came; no entry comes before all."""
    return tuple(map(int, entry_id.split(b"-"))) if entry_id else ()


def may_create(stream: str) -> str:
    return "1" if keys.may_create(stream) else "0"


def added(reply: Any, stream: str) -> Any:
    """The reply, unless it says that nothing could be added."""
    raised(reply, f"cannot write to {stream!r}")
    if reply is None or reply == b"missing":
        raise keys.refusal(stream)
    return reply
