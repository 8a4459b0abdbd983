"""Turning what users hand in into messages on a topic, and telling them where each one is."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from itertools import chain, islice
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from penstock.backend.base import StreamBackend
from penstock.errors import (
    AuthenticationError,
    ConfigurationError,
    NotDurableError,
    PenstockError,
    PublishUnknownError,
    ServerError,
)
from penstock.message.fields import EXPIRES_AT
from penstock.message.ids import canonical, new_id
from penstock.message.message import Message
from penstock.message.times import write_time
from penstock.options import Durability, Sending

Trace: TypeAlias = Callable[[str], tuple[str | None, str | None]]
"""For a message to this topic: the trace context it is to carry, as `traceparent` and `tracestate`."""

Tell: TypeAlias = Callable[[str, PenstockError], None]
"""What went wrong beside a publish to this topic, which itself went well."""

_ONCE_PER_CALL = 100


class Receipt(Struct, frozen=True, gc=False):
    """The server has the message."""

    id: str
    """The message's UUID."""

    entry_id: str | None
    """Where it is in its topic; None while it is delayed."""

    topic: str

    duplicate: bool = False
    """It was there already: an earlier publish of the same id has succeeded."""

    replicas: int = 0
    """How many replicas are known to have it, if that was asked for."""

    on_disk: bool = False
    """Whether it is known to be on the server's disk, if that was asked for."""


class Publisher:
    """Publishes to one topic."""

    def __init__(self, backend: Callable[[], StreamBackend], topic: str, trace: Trace | None, tell: Tell) -> None:
        self._backend = backend
        self._topic = topic
        self._trace = trace
        self._tell = tell
        self._is_unlisted = True

    async def publish(self, message: Message[Any], *, once: bool, sending: Sending | None) -> Receipt:
        if sending is not None or self._trace is not None:
            message = self._stamped(message, sending)
        if sending is None and not once:  # the common case, with no more frames than it needs
            receipt = Receipt(message.id, await self._backend().publish(self._topic, message), self._topic)
        else:
            receipt = await self._specially(message, once=once, sending=sending)
        if self._is_unlisted:
            await self._list()
        return receipt

    async def _specially(self, message: Message[Any], *, once: bool, sending: Sending | None) -> Receipt:
        try:
            return await self._publish(message, once=once, sending=sending)
        except NotDurableError:
            await self._list()  # it is stored all the same
            raise

    async def _publish(self, message: Message[Any], *, once: bool, sending: Sending | None) -> Receipt:
        if sending is not None and sending.delay:
            return await self._later(message, sending.delay, once=once)
        if sending is not None and sending.durability is not None:
            return await self._durably(message, sending.durability, once=once)
        if once:
            (found,) = await self._backend().publish_once(self._topic, [message])
            return Receipt(message.id, found.entry_id or None, self._topic, found.duplicate)
        return Receipt(message.id, await self._backend().publish(self._topic, message), self._topic)

    async def publish_many(self, messages: Iterable[Message[Any]], *, once: bool) -> "list[Receipt | PenstockError]":
        results = await (self._many_once(messages) if once else self._many(messages))
        if self._is_unlisted and any(isinstance(result, Receipt) for result in results):
            await self._list()
        return results

    async def _list(self) -> None:
        """Have the topic listed, once. The messages are stored by now, so what goes wrong is only told.

        It is tried again with the next publish, but not if we may not: that will not change by itself.
        """
        if not self._is_unlisted:
            return
        self._is_unlisted = False
        try:
            await self._backend().register(self._topic)
        except PenstockError as error:
            self._is_unlisted = not isinstance(error, AuthenticationError)
            self._tell(self._topic, error)

    async def _many(self, messages: Iterable[Message[Any]]) -> "list[Receipt | PenstockError]":
        ids: list[str] = []
        topic = self._topic
        written = await self._backend().publish_many(topic, self._noted(messages, ids))
        return [
            Receipt(id, result, topic) if isinstance(result, str) else result
            for id, result in zip(ids, written, strict=True)
        ]

    def _noted(self, messages: Iterable[Message[Any]], ids: list[str]) -> Iterator[Message[Any]]:
        parent, state = self._trace(self._topic) if self._trace is not None else (None, None)
        for message in messages:
            ids.append(message.id)
            if parent is None or message.traceparent is not None:
                yield message
            else:
                yield replace(message, traceparent=parent, tracestate=state)

    async def _many_once(self, messages: Iterable[Message[Any]]) -> "list[Receipt | PenstockError]":
        results: list[Receipt | PenstockError] = []
        given = self._noted(messages, [])
        while some := list(islice(given, _ONCE_PER_CALL)):
            try:
                found = await self._backend().publish_once(self._topic, some)
            except (ServerError, PublishUnknownError) as error:
                # Nobody is there, or nobody who can: those that follow would wait as long each.
                return [*results, *[error for _ in chain(some, given)]]
            except PenstockError:
                # Safe to send again, and one by one it shows which of them is at fault.
                results += await asyncio.gather(*[self._one_of_many(message) for message in some])
            else:
                results += [
                    Receipt(message.id, one.entry_id or None, self._topic, one.duplicate)
                    for message, one in zip(some, found, strict=True)
                ]
        return results

    async def _one_of_many(self, message: Message[Any]) -> "Receipt | PenstockError":
        try:
            return await self._publish(message, once=True, sending=None)
        except PenstockError as error:
            return error

    async def _later(self, message: Message[Any], delay: timedelta, *, once: bool) -> Receipt:
        (found,) = await self._backend().publish_later(self._topic, [message], delay=delay, once=once)
        if isinstance(found, PenstockError):
            raise found
        return Receipt(message.id, None, self._topic, found.duplicate)

    async def _durably(self, message: Message[Any], durability: Durability, *, once: bool) -> Receipt:
        if once:
            raise ConfigurationError("a durability cannot be asked for together with once, or an id, yet")
        replicas, aof = durability.replicas, durability.aof
        confirmed = await self._backend().publish_durably(
            self._topic, message, replicas=replicas, aof=aof, timeout=durability.timeout
        )
        if confirmed.replicas < replicas or (aof and not confirmed.aof):
            reached = f"{confirmed.replicas} replicas, {'on' if confirmed.aof else 'not known to be on'} disk"
            raise NotDurableError(self._topic, message.id, confirmed.entry_id, reached)
        return Receipt(message.id, confirmed.entry_id, self._topic, False, confirmed.replicas, confirmed.aof)

    def _stamped(self, message: Message[Any], sending: Sending | None) -> Message[Any]:
        if sending is not None:
            headers = message.headers
            if sending.expires_at is not None:
                headers = {**headers, EXPIRES_AT: write_time(sending.expires_at)}
            time, kind = sending.time or message.time, sending.type or message.type
            message = replace(message, headers=headers, time=time, type=kind)
        if message.traceparent is not None:
            return message
        parent, state = self._trace(self._topic) if self._trace is not None else (None, None)
        return message if parent is None else replace(message, traceparent=parent, tracestate=state)


def as_message(
    body: Any, key: str | None = None, id: str | None = None, headers: Mapping[str, str] | None = None
) -> Message[Any]:
    """`body` in an envelope; one that is a message already is left as it is."""
    if isinstance(body, Message):
        if key is not None or id is not None or headers is not None:
            raise ConfigurationError("a Message carries its own key, id and headers: do not give them again")
        return body
    if id is not None and not isinstance(id, str):
        raise ConfigurationError(f"a message's id is a UUID as text, not {id!r}")
    # One that is no UUID stays as it is: writing it says what is wrong with it.
    id = new_id() if id is None else canonical(id) or id
    return Message(body, id, None, key, dict(headers) if headers else {})
