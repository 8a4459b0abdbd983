"""Writing messages. A bare publish is sent exactly once; only what is published once may be sent again: `once.py`."""

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple

from penstock.backend import keys
from penstock.backend.redis.failures import failure
from penstock.backend.redis.link import Reply, pack_command
from penstock.backend.redis.links import COMMAND_SECONDS, Links
from penstock.backend.redis.verbs import BYTES_PER_CALL, Verbs
from penstock.errors import PenstockError, PublishUnknownError, ServerUnreachableError
from penstock.message import fields
from penstock.message.message import Message

_BULK = b"$%d\r\n%b\r\n"
_MESSAGES_PER_WRITE = 500
_WRITES_UNDER_WAY = 2


class Publishing(Verbs):
    """`publish` and `publish_many` of the Redis backend."""

    async def publish(self, stream: str, message: Message[Any]) -> str:
        request = _append(_append_head(stream), self._wire(stream).pack(message, stream))
        link = self._links.at_hand or await self._links.shared()
        try:
            reply = await link.call(request, within=COMMAND_SECONDS)
        except ServerUnreachableError:
            raise PublishUnknownError(stream, message.id) from None
        if type(reply) is bytes:
            return reply.decode()
        raise not_written(reply, stream)

    async def publish_many(self, stream: str, messages: Iterable[Message[Any]]) -> list[str | PenstockError]:
        results: list[str | PenstockError] = []
        under_way: deque[_Write] = deque()
        left = iter(messages)
        while (write := self._pack_write(stream, left)).ids:
            # One write that found no server is enough: the others would wait as long each.
            await write.send(self._links, unless=under_way[-1].unsent if under_way else None)
            under_way.append(write)
            # The server works on one write while we pack the next; more of them would only fill memory.
            if len(under_way) > _WRITES_UNDER_WAY:
                results += await under_way.popleft().results(stream)
        for write in under_way:
            results += await write.results(stream)
        return results

    def _pack_write(self, stream: str, left: Iterator[Message[Any]]) -> "_Write":
        """The next messages, as many as fit one write."""
        write = _Write()
        head, fields_of = _append_head(stream), self._wire(stream).pack
        size = 0
        for message in islice(left, _MESSAGES_PER_WRITE):
            write.ids.append(message.id)
            try:
                request = _append(head, fields_of(message, stream))
            except PenstockError as error:
                write.refused[len(write.ids) - 1] = error
                continue
            write.requests.append(request)
            size += len(request)
            if size >= BYTES_PER_CALL:
                break
        return write


class _Head(NamedTuple):
    """How every append to a stream begins."""

    words: tuple[bytes, ...]

    bare: bytes
    """The whole request for a message that is an id and a payload, with room for these: 0.6 µs less than packing it."""


@lru_cache(maxsize=4096)
def _append_head(stream: str) -> _Head:
    keys.check_topic(stream)
    words = (b"XADD", stream.encode(), *(() if keys.may_create(stream) else (b"NOMKSTREAM",)), b"*")
    # A name may hold a %, which must not be taken for room to fill in.
    fixed = [(_BULK % (len(word), word)).replace(b"%", b"%%") for word in (*words, fields.ID, fields.PAYLOAD)]
    return _Head(words, b"*%d\r\n" % (len(words) + 4) + b"".join(fixed[:-1]) + _BULK + fixed[-1] + _BULK)


def append_request(stream: str, parts: list[bytes]) -> bytes:
    """The request that appends these fields to the stream, creating it if we may."""
    return _append(_append_head(stream), parts)


def _append(head: _Head, parts: list[bytes]) -> bytes:
    if len(parts) == 4 and parts[0] is fields.ID and parts[2] is fields.PAYLOAD:
        return head.bare % (len(parts[1]), parts[1], len(parts[3]), parts[3])
    return pack_command((*head.words, *parts))


class _Write:
    """One write of `publish_many`: the messages it answers for, and the requests of those that could be packed."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.requests: list[bytes] = []
        self.refused: dict[int, PenstockError] = {}
        self._replies: asyncio.Future[Any] | None = None
        self.unsent: PenstockError | None = None

    async def send(self, links: Links, *, unless: PenstockError | None) -> None:
        self.unsent = unless
        if unless is not None:
            await asyncio.sleep(0)  # there may be many more; others want their turn, and we may be cancelled
        if not self.requests or unless is not None:
            return
        try:
            link = await links.shared()
            request = b"".join(self.requests)
            self._replies = link.call(request, within=COMMAND_SECONDS, replies=len(self.requests), at_once=True)
        except PenstockError as error:
            self.unsent = error

    async def results(self, stream: str) -> "list[str | PenstockError]":
        """One for each message: where it is stored, or why it is not, or that nobody knows."""
        written = iter(await self._written(stream))
        if not self.refused:
            return list(written)
        return [self.refused[n] if n in self.refused else next(written) for n in range(len(self.ids))]

    async def _written(self, stream: str) -> "list[str | PenstockError]":
        if self._replies is None:
            return [self.unsent] * len(self.requests) if self.unsent is not None else []
        try:
            replies = await self._replies
        except ServerUnreachableError:
            sent = (id for n, id in enumerate(self.ids) if n not in self.refused)
            return [PublishUnknownError(stream, id) for id in sent]
        replies = replies if isinstance(replies, list) else [replies]
        return [reply.decode() if type(reply) is bytes else not_written(reply, stream) for reply in replies]


def not_written(reply: Reply, stream: str) -> PenstockError:
    """Why the server did not append a message, by what it answered instead of an entry id."""
    return keys.refusal(stream) if reply is None else failure(reply, f"cannot publish to {stream!r}")
