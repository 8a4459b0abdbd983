"""What every sequential change stream can do."""

from typing import Protocol, TypeVar, runtime_checkable

from penstock.changes.change import Change

T = TypeVar("T")


@runtime_checkable
class SequentialChangeStream(Protocol[T]):
    """Gives messages one at a time and in order; the next one only when the last is acknowledged.

    Every verb raises nothing but `ChangeStreamError`, and `ConfigurationError` for what can never work.
    """

    async def recv(self) -> Change[T] | None:
        """The next message; the same one again until it is acknowledged. None once the stream is closed."""
        ...

    async def ack(self, entry_id: str) -> None:
        """The message that `recv` returned is done. Raises `AckOutOfSequenceError` for any other id."""
        ...

    async def unsubscribe(self) -> None:
        """Read no more, and have the server forget how far this reader came."""
        ...
