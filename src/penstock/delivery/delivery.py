"""One attempt to deliver a message, as its handler sees it."""

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from msgspec import Struct

from penstock.backend.entry import ClaimedMessage
from penstock.delivery.outcome import Reject, Snooze
from penstock.message.message import Message

if TYPE_CHECKING:
    from penstock.delivery.desk import Desk

T = TypeVar("T")


class Delivery(Struct, Generic[T], frozen=True, gc=False):
    """A message, and what is known of this attempt to handle it. Leased to this process until it is settled."""

    body: T
    entry: ClaimedMessage
    desk: "Desk"

    @property
    def message(self) -> Message[T]:
        return self.entry.message

    @property
    def id(self) -> str:
        """The message's canonical UUID: the same in every attempt, group and replay. Good as an idempotency key."""
        return self.entry.message.id

    @property
    def key(self) -> str | None:
        return self.entry.message.key

    @property
    def type(self) -> str | None:
        return self.entry.message.type

    @property
    def headers(self) -> dict[str, str]:
        return self.entry.message.headers

    @property
    def topic(self) -> str:
        return self.desk.topic

    @property
    def group(self) -> str:
        return self.desk.group

    @property
    def entry_id(self) -> str:
        """Where the message is, or once was, in its topic: the same on every attempt."""
        return self.entry.origin

    @property
    def attempt(self) -> int:
        """The first counts as 1. Failures and crashes count; being handed back or snoozed does not."""
        return self.entry.state.attempt

    @property
    def max_attempts(self) -> int:
        return self.desk.max_attempts

    @property
    def redelivered(self) -> bool:
        """Somebody was given this message before: it may have been handled already."""
        return self.entry.state.redelivered

    @property
    def fence(self) -> int:
        """How often the group was handed this message, this time included: a fencing token.

        It is larger than in every earlier delivery of the message to this group, be it a retry, a replay, or one that
        was taken over from a worker whose lease ran out. So a store that keeps the largest one it has seen for an
        `entry_id`, and refuses writes that carry a smaller one, is safe from a worker that woke up too late. Only a
        group that was itself deleted and made again, or was moved back to the message, counts from 1.
        """
        return self.entry.state.deliveries

    async def ack(self) -> None:
        """It is done, for good once this returns. Raises `LeaseLostError` if another consumer holds it by now.

        For manual acknowledgement; in the other modes the engine does it.
        """
        await self.desk.settle_by_hand(self.entry, None)

    async def retry(self, delay: timedelta | None = None, reason: str = "asked for by the handler") -> None:
        """Have it tried again: after `delay` without spending an attempt, or else as if the handler had failed."""
        error = RuntimeError(reason) if delay is None else Snooze(delay, reason)
        await self.desk.settle_by_hand(self.entry, error)

    async def reject(self, reason: str) -> None:
        """Give it up: it goes to the dead letters."""
        await self.desk.settle_by_hand(self.entry, Reject(reason))


AnyDelivery = Delivery[Any]
