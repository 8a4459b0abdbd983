"""One connection to the server: requests go out together, replies come back in order.

What callers send during one turn of the event loop leaves together, in writes of up to 50. A request that gets no reply
in time ends the connection, because the replies behind it could no longer be told apart. So does a server that answers
as a replica: after a failover the address may lead to the new primary, but only those who connect anew get there.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

import hiredis

from penstock.backend.redis.failures import is_replica
from penstock.errors import ServerUnreachableError

_OVERSLEPT = 0.1  # seconds
_ENOUGH_TO_SEND = 50  # requests: the server may begin with them while we make the next
_YOUNG = 0.1  # seconds: another connection would lead to the same server, and a busy caller would open thousands

Reply = Any  # bytes, int, None, hiredis.ReplyError, or lists of these


class _Waiting:
    __slots__ = ("count", "deadline", "forgiven", "future", "replies")

    def __init__(self, future: "asyncio.Future[Any]", replies: int, deadline: float) -> None:
        self.future = future
        self.count = replies
        self.replies: list[Reply] | None = [] if replies > 1 else None
        self.deadline = deadline
        self.forgiven = False


class _Errors:
    """Makes the errors of a reader; an object of its own, for a reader that knew its link would never be collected."""

    __slots__ = ("from_replica",)

    def __init__(self) -> None:
        self.from_replica = False

    def __call__(self, text: str) -> hiredis.ReplyError:
        self.from_replica = self.from_replica or is_replica(text)
        return hiredis.ReplyError(text)


class Link(asyncio.Protocol):
    """Speaks to the server over a transport that is open and logged in."""

    def __init__(self, transport: asyncio.Transport, place: str, *, keep: object = None) -> None:
        self._transport = transport
        self._keep = keep
        self.place = place
        self.client_id: int | None = None
        self._loop = asyncio.get_running_loop()
        self._opened_at = self._loop.time()
        self._errors = _Errors()
        self._reader = hiredis.Reader(replyError=self._errors)
        self._waiting: deque[_Waiting] = deque()
        self._outgoing: list[bytes] = []
        self._timer: asyncio.TimerHandle | None = None
        self._closed_why: str | None = None
        self._is_cut = False
        transport.set_protocol(self)

    @property
    def is_open(self) -> bool:
        """Whether it takes requests. Once a replica has answered, it takes none, and ends with its last reply."""
        return self._closed_why is None

    def call(self, request: bytes, *, within: float, replies: int = 1, at_once: bool = False) -> "asyncio.Future[Any]":
        """Send a packed request; the future holds its reply, or, for `replies` > 1 packed together, the list of them.

        Error replies are values, not exceptions. The future fails only if the connection does, with
        `ServerUnreachableError`; the request may then have run. Raises the same at once, with nothing sent, if the
        link is closed already. `at_once` does not wait for the end of the loop's turn.
        """
        if self._closed_why is not None:
            raise self._lost()
        future: asyncio.Future[Any] = self._loop.create_future()
        deadline = self._loop.time() + within
        self._waiting.append(_Waiting(future, replies, deadline))
        if at_once and not self._outgoing:  # one turn of the loop less
            self._transport.write(request)
        else:
            if not self._outgoing:
                self._loop.call_soon(self._flush)
            self._outgoing.append(request)
            if at_once or len(self._outgoing) >= _ENOUGH_TO_SEND:
                self._flush()
        if self._timer is None or self._timer.when() > deadline:
            self._watch_until(deadline)
        return future

    def close(self) -> None:
        """Drop the connection; whatever still waits for a reply fails."""
        self._fail("it was closed")

    def _flush(self) -> None:
        if self._outgoing and not self._is_cut:
            self._transport.write(b"".join(self._outgoing))
        self._outgoing.clear()

    def _watch_until(self, deadline: float) -> None:
        # One timer at a time, so that most calls neither set nor cancel any.
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(deadline, self._check_deadline, deadline)

    def _check_deadline(self, due: float) -> None:
        self._timer = None
        if not self._waiting:
            return
        now, front = self._loop.time(), self._waiting[0]  # replies come in order, so the request in front decides
        if front.deadline > now:
            self._watch_until(front.deadline)
        elif now - due > _OVERSLEPT and not front.forgiven:
            # Something blocked our own loop: the answer may lie unread, or the request unsent, through no fault of the
            # server's. Forgiven once per request, or a loop that is always busy would never notice a dead server.
            front.forgiven = True
            self._watch_until(2 * now - due)
        else:
            self._fail("it did not answer in time")

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        try:
            self._deliver(self._reader.gets)
        except hiredis.ProtocolError:
            self._fail("it sent what is not Redis protocol")
        except IndexError:
            self._fail("it sent a reply that nobody asked for")
        if self._errors.from_replica:
            self._answered_by_replica()

    def _answered_by_replica(self) -> None:
        if self._loop.time() - self._opened_at < _YOUNG:
            self._errors.from_replica = False
            return
        self._closed_why = self._closed_why or "it is a replica now"
        if not self._waiting:  # what was sent behind it is answered yet: cut off, nobody would know that it was refused
            self._fail(self._closed_why)

    def _deliver(self, next_reply: Callable[[], Reply]) -> None:
        # One loop without a call per reply: a write of 500 messages is answered by 500 replies.
        waiting = self._waiting
        while (reply := next_reply()) is not False:
            first = waiting[0]
            if first.replies is not None:
                first.replies.append(reply)
                if len(first.replies) < first.count:
                    continue
                reply = first.replies
            waiting.popleft()
            if not first.future.done():
                first.future.set_result(reply)

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail("it closed the connection" if exc is None else f"the connection broke ({type(exc).__name__})")

    def _fail(self, why: str) -> None:
        if self._is_cut:
            return
        self._is_cut = True
        self._closed_why = self._closed_why or why
        if self._timer is not None:
            self._timer.cancel()
        self._transport.abort()
        waiting, self._waiting = self._waiting, deque()
        for one in waiting:
            if not one.future.done():
                one.future.set_exception(self._lost())
                # The caller may have been cancelled meanwhile; an error nobody collects is then no news.
                one.future.exception()

    def _lost(self) -> ServerUnreachableError:
        return ServerUnreachableError(f"lost the connection to {self.place}: {self._closed_why}")


# Its stub wants a tuple of exactly one word.
pack_command: Callable[[tuple[bytes | str | int, ...]], bytes] = hiredis.pack_command  # type: ignore[assignment]


def pack(*words: bytes | str | int) -> bytes:
    """One request in Redis protocol."""
    return pack_command(words)
