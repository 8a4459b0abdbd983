"""Verbs that write messages. The words are those of `backend/base.py`."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol

from penstock.backend.entry import Confirmed, Published
from penstock.errors import PenstockError
from penstock.message.message import Message
from penstock.options import DEDUPE_WINDOW


class Publishes(Protocol):
    """Verbs that write messages."""

    async def publish(self, stream: str, message: Message[Any]) -> str:
        """Append a message and return its entry id, once the server has it. Atomic; not idempotent.

        It is sent once. If the connection breaks before the answer, `PublishUnknownError` carries the message's id.
        Calls that run at the same time share one write, in the order they were made.
        """
        ...

    async def publish_many(self, stream: str, messages: Iterable[Message[Any]]) -> list[str | PenstockError]:
        """Append messages in order; one result for each, its entry id or what went wrong with it.

        Each is written or not by itself: one that cannot be encoded does not keep the others from being sent. They are
        taken as they are sent, so what a generator gives need not fit into memory; if it raises, so does this, and what
        it gave before may or may not have been sent.
        """
        ...

    async def publish_once(
        self, stream: str, messages: Sequence[Message[Any]], *, window: timedelta = DEDUPE_WINDOW
    ) -> list[Published]:
        """Append the messages whose id was not published to this stream within `window`. Idempotent.

        Up to 100 messages, or about a MiB of them, are atomic at a time. Sent again by itself after a lost connection,
        and safe to call again after `PublishUnknownError`, as long as the window lasts. Calls that run at the same time
        share one script call, and none of them fails for what another one publishes.
        """
        ...

    async def publish_later(
        self,
        topic: str,
        messages: Sequence[Message[Any]],
        *,
        delay: timedelta | None = None,
        until: datetime | None = None,
        once: bool = False,
        window: timedelta = DEDUPE_WINDOW,
    ) -> list[Published | PenstockError]:
        """Put messages aside until `delay` is over, or `until`, by the server's clock; one result for each.

        They are no entries yet, so their `entry_id` is empty and nobody reads them: `promote_later` appends them when
        they are due. Up to 100 messages, or about a MiB of them, are atomic at a time; one that cannot be encoded does
        not keep the others from being sent. It is sent once, and a broken connection makes `PublishUnknownError` of
        every message that was on its way. With `once` it is idempotent: an id that was published within `window`, for
        later or by `publish_once`, is a duplicate. The window begins when the message is put aside, not when it is due.
        """
        ...

    async def schedule(
        self,
        topic: str,
        group: str,
        messages: Sequence[Message[Any]],
        *,
        delay: timedelta | None = None,
        until: datetime | None = None,
    ) -> list[datetime | PenstockError]:
        """Put messages aside for one group alone, as if parked before their first attempt; `promote` makes them ready.

        One result for each: when it is due, by the server's clock, or what went wrong with it. Up to 100 messages, or
        about a MiB of them, are atomic at a time. After a lost answer it is sent again, which does no harm: a message
        that is there is not there twice. If that fails too, `PublishUnknownError` is the result.
        """
        ...

    async def promote_later(self, topic: str, limit: int = 100) -> tuple[int, timedelta | None]:
        """Append up to `limit` messages that are due to the topic itself, for every group, earliest first. Atomic.

        Returns how many were taken, and how long it is until the next one is due, by the server's clock; None if none
        waits. What cannot be opened becomes a dead letter of no group.
        """
        ...

    async def publish_durably(
        self, stream: str, message: Message[Any], *, replicas: int = 0, aof: bool = False, timeout: timedelta
    ) -> Confirmed:
        """As `publish`, and wait up to `timeout` from there until that many replicas, and the server's disk, have it.

        Reports what was reached, and never raises because it is less than asked for: the message is written then, and
        nothing is undone. What the server cannot tell, or does not allow us to ask, counts as not reached. Calls with
        the same wish that run at the same time share one wait, on a connection apart from all others.
        """
        ...
