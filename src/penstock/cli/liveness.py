"""Signs of life for whoever watches over the process: a file that stays young, or a port that answers."""

import contextlib
import logging
import re
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

from penstock.cli.usage import UsageError
from penstock.errors import CannotListenError, ConfigurationError

_log = logging.getLogger("penstock")
_CLIENT_SECONDS = 5.0
_ENDPOINT = re.compile(r"(?:(?:\[(?P<bracketed>[^\[\]]+)\]|(?P<plain>[^:\[\]]+)):)?(?P<port>[0-9]{1,5})")


class Pulse:
    """When an event loop last had a turn. Told in the loop, asked from any thread."""

    def __init__(self, patience: float = 0.0) -> None:
        self.patience = patience
        """Seconds without a turn after which it counts as stuck."""

        self._last: float | None = None

    def beat(self) -> None:
        self._last = time.monotonic()

    def is_alive(self) -> bool:
        """False also before the first beat."""
        return self._last is not None and time.monotonic() - self._last <= self.patience


class LivenessFile:
    """A file whose age tells: touched while all is well, and gone when the process is.

    One that an earlier run may have left is removed at once, which is an empty one: nothing else is ever touched.
    """

    def __init__(self, path: Path) -> None:
        self._path = path.absolute()  # whatever directory the user's module may change to
        self._is_failing = False
        try:
            self._refuse_what_is_not_ours(path)
            path.touch()
            path.unlink()  # not alive yet; and what an earlier process left must not look so
        except OSError as error:
            raise ConfigurationError(f"--liveness-file {path} cannot be written: {error.strerror}") from None

    def touch(self) -> None:
        try:
            self._path.touch()
        except OSError as error:
            if not self._is_failing:
                _log.error("the liveness file %s cannot be touched: %s", self._path, error)
            self._is_failing = True
        else:
            self._is_failing = False

    def remove(self) -> None:
        with contextlib.suppress(OSError):
            self._path.unlink()

    @staticmethod
    def _refuse_what_is_not_ours(path: Path) -> None:
        if not path.exists():
            return
        what = "is no plain file" if not path.is_file() else "holds something" if path.stat().st_size else None
        if what is not None:
            raise ConfigurationError(
                f"--liveness-file {path} {what}, so no earlier run has left it there: name a file that does not exist;"
                " it is made and removed by this command"
            )


@dataclass(frozen=True)
class Endpoint:
    """Where to listen."""

    host: str
    port: int
    """0 takes a free one."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """From `[HOST:]PORT`; raises `UsageError`. Without a host only this machine itself can ask."""
        found = _ENDPOINT.fullmatch(text)
        if found is None or int(found["port"]) > 65535:
            raise UsageError(
                "--liveness-port is PORT or HOST:PORT with a port from 0 to 65535, as in 8080, 0.0.0.0:8080 or"
                f" [::]:8080, not {text!r}."
            )
        return cls(found["bracketed"] or found["plain"] or "127.0.0.1", int(found["port"]))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class LivenessPort:
    """Answers any GET or HEAD with 200 while `is_alive()`, else with 503; from a thread, so always."""

    def __init__(self, endpoint: Endpoint, is_alive: Callable[[], bool]) -> None:
        class Answer(BaseHTTPRequestHandler):
            timeout = _CLIENT_SECONDS

            def do_GET(self) -> None:
                alive = is_alive()
                text = b"alive\n" if alive else b"stuck\n"
                self.send_response(HTTPStatus.OK if alive else HTTPStatus.SERVICE_UNAVAILABLE)
                self.send_header("Content-Type", "text/plain")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(text)

            def do_HEAD(self) -> None:
                self.do_GET()

            def log_message(self, format: str, *args: object) -> None:
                """A probe every few seconds is no news."""

        try:
            self._server = _Server(endpoint, Answer)
        except (OSError, UnicodeError) as error:  # Unicode: what cannot be the name of a host
            why = error.strerror if isinstance(error, OSError) else f"{endpoint.host!r} is no host"
            raise CannotListenError(
                f"--liveness-port {endpoint} cannot be listened on: {why}; choose another, or 0 for a free one"
            ) from None
        self.url = f"http://{Endpoint(endpoint.host, self._server.server_port)}/"
        threading.Thread(target=self._server.serve_forever, name="penstock-liveness", daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    def __init__(self, endpoint: Endpoint, answer: type[BaseHTTPRequestHandler]) -> None:
        (self.address_family, *_, address), *_ = socket.getaddrinfo(
            endpoint.host, endpoint.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        super().__init__((str(address[0]), int(address[1])), answer)

    def server_bind(self) -> None:
        # Not what HTTPServer does: it asks the name service for a name that nobody needs, and may wait long for it.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), OSError):  # else the one who asked hung up
            super().handle_error(request, client_address)
