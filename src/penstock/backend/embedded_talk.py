"""The few words an embedded server's owner says to it before any client does, over a plain unix socket."""

import socket
from pathlib import Path
from typing import BinaryIO

from penstock.errors import EmbeddedServerError

_REPLY_SECONDS = 2.0
_PORT_ATTEMPTS = 20

Reply = str | list["Reply"]


class RefusedError(Exception):
    """The server answered with an error; its text starts with the error's code."""


def ask(socket_path: Path, *words: str) -> Reply:
    """Send one command, its words quoted as an inline command needs it, and return the reply; nil is an empty text.

    Raises `RefusedError` for an error reply and OSError if there is no server or no whole reply.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_REPLY_SECONDS)
        connection.connect(str(socket_path))
        connection.sendall(" ".join(words).encode() + b"\r\n")
        with connection.makefile("rb") as stream:
            return _reply(stream)


def _reply(stream: BinaryIO) -> Reply:
    line = stream.readline().decode(errors="replace")
    if not line.endswith("\r\n"):
        raise ConnectionResetError("the server closed the connection before its reply was complete")
    kind, rest = line[0], line[1:-2]
    if kind == "-":
        raise RefusedError(rest)
    if kind in "$*" and rest == "-1":
        return ""
    if kind == "$":
        return stream.read(int(rest) + 2)[:-2].decode(errors="replace")
    if kind == "*":
        return [_reply(stream) for _ in range(int(rest))]
    return rest


def is_ready(socket_path: Path) -> bool:
    """Whether a server answers there and has read all its data; False also when there is none."""
    try:
        return ask(socket_path, "PING") == "PONG"
    except (OSError, RefusedError):
        return False


def is_listening(socket_path: Path) -> bool:
    """Whether a server holds the socket. A busy one does too: the kernel accepts connections on its behalf."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.setblocking(False)
        try:
            connection.connect(str(socket_path))
        except BlockingIOError:
            return True
        except OSError:
            return False
        return True


def shut_down(socket_path: Path) -> None:
    """Ask a server to end, if there is one. It flushes its append-only file first."""
    try:
        ask(socket_path, "SHUTDOWN", "NOSAVE")
    except (OSError, RefusedError):
        return


def listening_port(socket_path: Path) -> int | None:
    """The TCP port the server listens on, if any."""
    name_and_value = ask(socket_path, "CONFIG", "GET", "port")
    return int(str(name_and_value[1])) or None


def listen_on_tcp(socket_path: Path) -> int:
    """Have the server listen on 127.0.0.1, on a port nobody else has, and return the port.

    The server itself takes the port or says that it cannot, so there is no moment when another program could get
    what we were promised.
    """
    refusal = ""
    for _ in range(_PORT_ATTEMPTS):
        candidate = _free_port()
        try:
            ask(socket_path, "CONFIG", "SET", "port", str(candidate))
        except RefusedError as error:
            refusal = str(error)
        else:
            return candidate
    raise EmbeddedServerError(
        f"the embedded server found no free TCP port on 127.0.0.1 in {_PORT_ATTEMPTS} attempts; it said: {refusal}"
    )


def _free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
