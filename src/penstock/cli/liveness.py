"""Signs of life for whoever watches over the process: a file that stays young, or a port that answers."""

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from penstock.errors import ConfigurationError

_log = logging.getLogger("penstock")
_CLIENT_SECONDS = 5.0


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
    """A file whose age tells: touched while all is well, and gone when the process is."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._is_failing = False
        try:
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


class LivenessPort:
    """Answers any GET on 127.0.0.1 with 200 while `is_alive()`, else with 503; from a thread, so always."""

    def __init__(self, port: int, is_alive: Callable[[], bool]) -> None:
        class Answer(BaseHTTPRequestHandler):
            timeout = _CLIENT_SECONDS

            def do_GET(self) -> None:
                alive = is_alive()
                text = b"alive\n" if alive else b"stuck\n"
                self.send_response(HTTPStatus.OK if alive else HTTPStatus.SERVICE_UNAVAILABLE)
                self.send_header("Content-Type", "text/plain")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, format: str, *args: object) -> None:
                """A probe every few seconds is no news."""

        try:
            self._server = ThreadingHTTPServer(("127.0.0.1", port), Answer)
        except OSError as error:
            raise ConfigurationError(
                f"--liveness-port {port} cannot be listened on: {error.strerror}; choose another, or 0 for a free one"
            ) from None
        self.url = f"http://127.0.0.1:{self._server.server_port}/"
        threading.Thread(target=self._server.serve_forever, name="penstock-liveness", daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
