"""What a gateway serves, to whom, and how much of it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from urllib.parse import urlsplit

from penstock.errors import ConfigurationError
from penstock.options import check_count, check_duration, check_flag
from penstock.tail.tail import QUEUE

ANY_TOPIC = ("*",)
_SHORTEST_TOKEN = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class WebOptions:
    """The terms of a gateway. Without `tokens` it answers programs on its own machine only."""

    read: Sequence[str] = ANY_TOPIC
    """Topics that may be followed: names, or beginnings of names that end in `*`."""

    write: Sequence[str] = ANY_TOPIC
    """Topics that may be published to, likewise; `()` for none."""

    tokens: Sequence[str] = field(default=(), repr=False)
    """Any of these lets a request in, as `Authorization: Bearer TOKEN`."""

    open_to_all: bool = False
    """Answer everybody, without a token, because whatever this is mounted in decides who may come here."""

    origins: Sequence[str] = ()
    """Pages of these origins may come here too, as in `https://shop.example`; those of our own always may."""

    connections: int = 1000
    """How many may follow at the same time."""

    per_topic: int = 1000
    """How many may follow one topic at the same time."""

    queue: int = QUEUE
    """How many messages a client may be behind the newest before it is told of a gap and given newer ones."""

    heartbeat: timedelta = timedelta(seconds=15)
    """After so long without a message a comment is sent, so that nothing in between takes the connection for dead."""

    retry: timedelta = timedelta(seconds=3)
    """How long clients are told to wait before they come back; up to half as long again, so as not to come together."""

    patience: timedelta = timedelta(minutes=1)
    """A client that takes nothing for so long, though there is something to take, is cut off."""

    request_bytes: int = 1024 * 1024
    """Longest request to publish a message."""

    def __post_init__(self) -> None:
        for name in ("connections", "per_topic", "queue", "request_bytes"):
            check_count(f"WebOptions({name}=...)", getattr(self, name))
        for name in ("heartbeat", "retry", "patience"):
            check_duration(f"WebOptions({name}=...)", getattr(self, name))
        check_flag("WebOptions(open_to_all=...)", self.open_to_all)
        for name in ("read", "write", "tokens", "origins"):
            _check_texts(f"WebOptions({name}=...)", getattr(self, name))
        for pattern in (*self.read, *self.write):
            if "*" in pattern[:-1]:
                raise ConfigurationError(f"a topic to serve is a name, or a beginning and a final '*', not {pattern!r}")
        if any(len(token) < _SHORTEST_TOKEN or not token.isascii() or " " in token for token in self.tokens):
            # Not which one: it may be nearly right.
            raise ConfigurationError(
                f"a token is at least {_SHORTEST_TOKEN} ASCII characters without blanks: make one with"
                " `python -c 'import secrets; print(secrets.token_urlsafe())'`"
            )
        for origin in self.origins:
            _check_origin(origin)


def _check_texts(what: str, value: Sequence[str]) -> None:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise ConfigurationError(f"{what} must be a list or tuple of texts, not a {type(value).__name__}")
    if not all(isinstance(one, str) and one for one in value):
        raise ConfigurationError(f"{what} must hold texts, and no empty one")


def _check_origin(origin: str) -> None:
    if not _is_origin(origin.lower()):
        raise ConfigurationError(
            f"an origin is a scheme and a host, and a port if it is not the usual one, as in https://shop.example,"
            f" not {origin!r}"
        )


def _is_origin(text: str) -> bool:
    try:
        parts = urlsplit(text)
        port = "" if parts.port is None else f":{parts.port}"
    except ValueError:
        return False
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return False
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return text == f"{parts.scheme}://{host}{port}"
