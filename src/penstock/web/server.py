"""Serving a gateway by uvicorn, in an event loop and under signals that are the caller's."""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import uvicorn
from starlette.types import ASGIApp

from penstock.errors import CannotListenError, SetupError
from penstock.web.gateway import Gateway
from penstock.web.punctual import PunctualProtocol

_SEND_BUFFER = 128 * 1024
_BESIDE_STREAMS = 200
"""Connections for all that is no stream: publishing, probes, scrapes."""

_SHORTEST_MILLISECONDS = 1000
"""Packets that are lost on the way are sent again within this time: that is no reason to give up."""

_LONGEST_MILLISECONDS = 2**31 - 1
"""What the kernel takes."""

END_SECONDS = 5.0
"""How long the end takes at most, once asked for."""


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens there, on a free port if it is 0; `ConfigurationError` if it cannot."""
    try:
        (family, *_, address), *_ = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            # Handed down to every connection. Else the kernel holds megabytes for each client that does not read.
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
            listening.bind(address)
        except OSError:
            listening.close()
            raise
    except (OSError, UnicodeError) as error:  # Unicode: what cannot be the name of a host
        why = error.strerror if isinstance(error, OSError) else f"{host!r} is no host"
        raise CannotListenError(f"{host}:{port} cannot be listened on: {why}; choose another, or port 0") from None
    return listening


def address_of(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class Serving:
    """One run of a gateway on a socket, or of the web app `within` which it is mounted."""

    def __init__(self, gateway: Gateway, connections: int, within: ASGIApp | None = None) -> None:
        self._gateway = gateway
        config = uvicorn.Config(
            within or gateway,
            http=PunctualProtocol,
            ws="none",
            log_config=None,
            log_level="error",
            access_log=False,  # addresses may hold tokens
            server_header=False,
            proxy_headers=True,  # else whoever comes through a proxy on this machine would be taken for a part of it
            limit_concurrency=connections + _BESIDE_STREAMS,
            timeout_graceful_shutdown=int(END_SECONDS),
        )
        logging.getLogger("uvicorn.error").addFilter(_is_news)
        self._server = _Server(config)

    async def run(self, listening: socket.socket, asked: Awaitable[object], ready: Callable[[], None]) -> None:
        """Serve until `asked` is done; then end every stream in a way that clients see, and return."""
        _give_up_after(self._gateway.patience, listening)
        self._server.ready = ready
        serving = asyncio.create_task(self._server.serve([listening]))
        waiting = asyncio.ensure_future(asked)
        try:
            await asyncio.wait({serving, waiting}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
            self._gateway.end_streams()
            self._server.should_exit = True
            await serving
        if not self._server.started:
            raise SetupError("the web app did not start: what its lifespan raised is in the log")


def _give_up_after(patience: timedelta, listening: socket.socket) -> None:
    """Have the kernel end connections whose peers take nothing for so long. Handed down to every one.

    A stream that was cut off is closed when the rest of its last frame is sent; to a peer with no room for it, never.
    """
    milliseconds = max(_SHORTEST_MILLISECONDS, min(patience // timedelta(milliseconds=1), _LONGEST_MILLISECONDS))
    if hasattr(socket, "TCP_USER_TIMEOUT") and listening.family in (socket.AF_INET, socket.AF_INET6):
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)


def _is_news(record: logging.LogRecord) -> bool:
    """Not so: that a client which takes nothing was cut off, once for each; what the end takes is our own choice."""
    return not str(record.msg).startswith(("ASGI callable returned without completing", "Cancel %s running task(s)"))


class _Server(uvicorn.Server):
    ready: Callable[[], None]

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self.ready()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are the caller's."""
        yield
