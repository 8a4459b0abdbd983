"""One connection for code that has no event loop: Spark's tasks and planner.

redis-py resolves, connects, encrypts and logs in, as for a `Link`; then only its socket is used.
"""

import contextlib
import socket
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import hiredis
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from penstock.backend.address import Address
from penstock.backend.redis.failures import failure
from penstock.backend.redis.link import Reply, pack
from penstock.backend.redis.links import Word, raised
from penstock.backend.redis.opening import Opener, connection_options
from penstock.backend.redis.primaries import SERVICES, WHERE, Answers
from penstock.backend.redis.scripts import Script
from penstock.errors import ConfigurationError, ServerUnreachableError

_CLASSES: dict[str, type[Any]] = {
    "tcp": redis.Connection,
    "tls": redis.SSLConnection,
    "unix": redis.UnixDomainSocketConnection,
}
_CHUNK = 1 << 16
NOT_PROTOCOL = "it sent what is not Redis protocol"


class BlockingLink:
    """A logged-in connection to a server we support. One thread uses it at a time.

    Nothing is repeated after a broken connection: `ServerUnreachableError` then says that what was sent may have run.
    Any failure to get a reply in time ends the connection, because later replies could no longer be told apart.
    """

    def __init__(self, connected: socket.socket, place: str) -> None:
        self._socket = connected
        self.place = place
        self._reader = hiredis.Reader()
        self._doing = "talking to the server"

    @classmethod
    def open(cls, address: Address, *, timeout: float = 5.0) -> Self:
        """Connect, log in and check the server; `timeout` is how long any later wait for it may last, in seconds."""
        if address.kind not in _CLASSES:
            raise ConfigurationError(f"{address} has no server running yet: start it, and open the address it gives")
        if address.sentinels:
            address = _primary(address)
        opener = Opener.to(address)
        connection, refusal = _connection(address, timeout), None
        try:
            connection.connect()
        except redis.RedisError as error:
            refusal = opener.refusal(error)
        if refusal is not None:
            # Outside the handler: the error of redis-py would travel along, and its text may hold what we sent.
            raise refusal
        link = cls(_take_over(connection), opener.place)
        try:
            link._check(opener)
        except BaseException:
            link.close()
            raise
        return link

    def _check(self, opener: Opener) -> None:
        hello, ping = self.pipeline(f"opening {opener.place}", [pack("HELLO"), pack("PING")])
        opener.check_version(hello)
        # A server that is still loading lets us log in, but answers nothing else; PING tells.
        if isinstance(ping, hiredis.ReplyError) and str(ping).startswith("LOADING"):
            raise failure(ping, f"cannot use {opener.place} yet")

    def command(self, doing: str, *words: Word) -> Reply:
        """Run one command; an error reply is raised. `doing` names the action and what it concerns, for that error."""
        self._doing = doing
        self.send(pack(*words))
        return raised(self.reply(), doing)

    def pipeline(self, doing: str, requests: Sequence[bytes]) -> list[Reply]:
        """Send packed requests in one write and collect their replies; error replies are values."""
        self._doing = doing
        self.send(b"".join(requests))
        return [self.reply() for _ in requests]

    def script(self, doing: str, script: Script, keys: Sequence[str], *args: Word) -> Reply:
        """Run a script; an error reply is raised. Sent once, but for a server that has forgotten the script's text."""
        self._doing = doing
        tail = (len(keys), *keys, *args)
        self.send(pack("EVALSHA", script.sha, *tail))
        reply = self.reply()
        if isinstance(reply, hiredis.ReplyError) and str(reply).startswith("NOSCRIPT"):
            self.send(pack("EVAL", script.text, *tail))
            reply = self.reply()
        if isinstance(reply, hiredis.ReplyError) and str(reply).startswith("WRONGTYPE"):
            doing = f"{doing}, which uses {', '.join(keys[:4])}"
        return raised(reply, doing)

    def send(self, request: bytes | memoryview) -> None:
        """Send packed requests without waiting for any reply."""
        try:
            self._socket.sendall(request)
        except OSError as error:
            raise self._lost(error) from None

    def reply(self) -> Reply:
        """The next reply to what was sent, parsed; an error reply is a value."""
        try:
            while (reply := self._reader.gets()) is False:
                self._reader.feed(self._some(self._socket.recv(_CHUNK)))
        except hiredis.ProtocolError:
            raise self._lost(NOT_PROTOCOL) from None
        except OSError as error:
            raise self._lost(error) from None
        return reply

    def receive(self, buffer: bytearray, filled: int) -> int:
        """Put the next raw bytes of the server behind the first `filled`, growing a full buffer; the new fill.

        Not to be mixed with `reply()` on one answer: what that has read already does not come again.
        """
        if filled == len(buffer):
            buffer.extend(bytes(max(_CHUNK, len(buffer))))
        try:
            with memoryview(buffer) as whole, whole[filled:] as free:
                count = self._socket.recv_into(free)
        except OSError as error:
            raise self._lost(error) from None
        self._some(count)
        return filled + count

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _some(self, received: Any) -> Any:
        if not received:
            raise self._lost("it closed the connection")
        return received

    def _lost(self, why: OSError | str) -> ServerUnreachableError:
        self.close()
        if isinstance(why, TimeoutError):
            why = "it did not answer in time"
        elif isinstance(why, OSError):
            why = f"the connection broke ({type(why).__name__})"
        return ServerUnreachableError(f"{self._doing}: lost the connection to {self.place}: {why}")


def parse_reply(raw: bytes, doing: str = "reading a reply") -> Reply:
    """The reply that `raw` is, no less and no more; an error reply is a value.

    `ServerUnreachableError` if it is anything else: whoever answers there does not speak Redis protocol, or not now.
    """
    reader, reply = hiredis.Reader(), False
    reader.feed(raw)
    with contextlib.suppress(hiredis.ProtocolError):
        reply = reader.gets()
    if reply is False or reader.has_data():
        raise ServerUnreachableError(f"{doing}: {NOT_PROTOCOL}")
    return reply


def _connection(address: Address, timeout: float, **options: Any) -> Any:
    own = {"retry": Retry(NoBackoff(), 0), "socket_timeout": timeout}
    return _CLASSES[address.kind](**connection_options(address) | own | options)


def _primary(address: Address) -> Address:
    """Where the server is by the first of its sentinels that knows. Each connection begins with the first of all."""
    answers = Answers(address)
    for sentinel in address.sentinels:
        connection = _connection(sentinel, answers.seconds, socket_connect_timeout=answers.seconds)
        try:
            where, services = _ask(connection, address.service)
        except redis.RedisError as error:
            answers.failed(sentinel, error)
        else:
            if (found := answers.answered(sentinel, where, services)) is not None:
                return found
        finally:
            connection.disconnect()
    raise answers.failure()


def _ask(connection: Any, service: str) -> tuple[Reply, Reply]:
    connection.connect()
    connection.send_command(*WHERE, service)
    where, services = connection.read_response(), []
    if where is None:
        with contextlib.suppress(redis.ResponseError):  # an account may have no right to that; it only helps the error
            connection.send_command(*SERVICES)
            services = connection.read_response()
    return where, services


def _take_over(connection: Any) -> socket.socket:
    # redis-py has no public way to hand its socket over; it is pinned below 9.
    taken: socket.socket = connection._sock  # noqa: SLF001
    connection._sock = None  # noqa: SLF001
    return taken
