"""One message of a change stream, as its reader sees it."""

from typing import Generic, Protocol, TypeVar

from msgspec import Struct

from penstock.message import fields
from penstock.message.message import Message

T = TypeVar("T")


class Settles(Protocol):
    """Where a change came from, and where it is settled."""

    topic: str

    async def ack(self, entry_id: str, *, token: int | None = None) -> None: ...


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
