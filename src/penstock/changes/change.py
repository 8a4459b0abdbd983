"""One message of a change stream, as its reader sees it."""

from collections.abc import Sequence
from types import TracebackType
from typing import Generic, Protocol, Self, TypeVar

from msgspec import Struct

from penstock.delivery.outcome import Reject
from penstock.message import fields
from penstock.message.message import Message

T = TypeVar("T")


class Settles(Protocol):
    """Where a change came from, and where it is settled."""

    topic: str

    async def ack(self, entry_id: str, *, token: int | None = None) -> None: ...

    async def retry(self, entry_id: str, error: BaseException | str, *, token: int | None = None) -> None: ...

    async def dead_letter(
        self, entry_id: str, reason: str, *, error: BaseException | None = None, token: int | None = None
    ) -> None: ...


class Change(Struct, Generic[T], frozen=True, gc=False):
    """A message, and where it stands in its stream. The next one comes when this one is acknowledged."""

    body: T
    message: Message[T]
    entry_id: str
    """Its place in the topic: changes come in the order of these."""

    token: int
    """The fencing token of whoever was given it: larger with every new holder of the reader's turn.

    A store that keeps the largest one it has seen, and refuses writes that carry a smaller one, is safe from a process
    that was frozen, and woke up when another had taken its place.
    """

    attempt: int
    """The first counts as 1. Failures count, and crashes once the message is suspected of them."""

    stream: Settles

    fields: Sequence[bytes] = ()
    """Names and values as they are stored, alternating."""

    @property
    def id(self) -> str:
        """The message's canonical UUID."""
        return self.message.id

    @property
    def data(self) -> T:
        """The body."""
        return self.body

    @property
    def topic(self) -> str:
        return self.stream.topic

    @property
    def fence(self) -> int:
        """The token, by the name that deliveries have for theirs."""
        return self.token

    @property
    def key(self) -> str | None:
        return self.message.key

    @property
    def type(self) -> str | None:
        return self.message.type

    @property
    def headers(self) -> dict[str, str]:
        return self.message.headers

    @property
    def trace_parent(self) -> str | None:
        """W3C trace context of whoever published it: `traceparent`."""
        return self.message.traceparent

    @property
    def trace_state(self) -> str | None:
        """W3C trace context of whoever published it: `tracestate`."""
        return self.message.tracestate

    @property
    def enqueue_time(self) -> int:
        """When it was enqueued, in nanoseconds since 1970: as its writer says, else by the server's clock."""
        said = self.message.headers.get(fields.ENQUEUE_TIME_HEADER)
        return int(said) if said is not None else int(self.entry_id.partition("-")[0]) * 1_000_000

    async def ack(self) -> None:
        """It is done: the next `recv` gives the one behind it. See `ChangeStream.ack`."""
        await self.stream.ack(self.entry_id, token=self.token)

    async def retry(self, error: BaseException | str) -> None:
        """It failed: have it given again, after a while. See `ChangeStream.retry`."""
        await self.stream.retry(self.entry_id, error, token=self.token)

    async def reject(self, reason: str) -> None:
        """Give it up: it goes to the dead letters, and the next one is given."""
        await self.stream.dead_letter(self.entry_id, reason, token=self.token)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: TracebackType | None) -> bool:
        """Settle it by how the block ends: it is done, or it failed and comes again, or, by `Reject`, is given up.

        What the block raised is told as an event, and goes no further; but for what ends a task or a process.
        """
        if error is None:
            await self.ack()
        elif isinstance(error, Reject):
            await self.stream.dead_letter(self.entry_id, str(error), error=error, token=self.token)
        elif isinstance(error, Exception):
            await self.retry(error)
        else:
            return False
        return True
