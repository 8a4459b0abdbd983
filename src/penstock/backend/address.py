"""Where the server is: a URL, read into an `Address` that can be shown to anybody.

No text made here, repr or error, holds any piece of a password.
"""

import dataclasses
import logging
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from penstock.backend.url import EMBEDDED, SCHEMES, TCP, Kind, UrlReader, refuse
from penstock.errors import ConfigurationError

URL_VARIABLE = "PENSTOCK_URL"
DEFAULT_PORT = 6379
_SENTINEL_PORT = 26379


class Secret:
    """A text that shows itself only to `reveal()`."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text itself; hand it to the server and to nobody else."""
        return self._text

    def __repr__(self) -> str:
        return "***"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Address:
    """All that is needed to open a connection. Printing it, or any of its fields, shows no password."""

    kind: Kind
    host: str = ""
    port: int = DEFAULT_PORT
    path: str = ""
    """The socket of `unix`; the directory of `embedded`, where empty means the default one."""
    db: int = 0
    username: str | None = None
    secret: Secret | None = None
    client_options: tuple[tuple[str, str], ...] = ()
    ephemeral: bool = False
    tcp: bool = False
    service: str = ""
    """What sentinels call the server and its replicas, if they were asked, or are to be asked, where it is."""
    sentinels: tuple["Address", ...] = ()
    """Who is to be asked, in this order; host and port mean nothing until then."""

    @property
    def password(self) -> str | None:
        return None if self.secret is None else self.secret.reveal()

    @property
    def holds_secrets(self) -> bool:
        """Whether the URL that this was read from is not to be shown."""
        return any(one.secret is not None for one in (self, *self.sentinels))

    @property
    def options(self) -> dict[str, str]:
        """What to pass on to the client, as far as given: `client_name` and the paths `ssl_*`."""
        return dict(self.client_options)

    @property
    def directory(self) -> Path | None:
        """Where an embedded server keeps its data; None for the default directory, or a fresh one if `ephemeral`."""
        return Path(self.path) if self.kind == "embedded" and self.path else None

    @property
    def place(self) -> str:
        """Host and port; of all sentinels, if these are to be asked."""
        if self.sentinels:
            return ",".join(sentinel.place for sentinel in self.sentinels)
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def at(self, host: str, port: int) -> "Address":
        """The same, where its sentinels have said that the server is."""
        return dataclasses.replace(self, host=host, port=port, sentinels=())

    def __str__(self) -> str:
        credentials = "" if self.secret is None else f"{quote(self.username or '', safe='')}:***@"
        start = f"{SCHEMES[self.kind]}{'+sentinel' if self.sentinels else ''}://{credentials}"
        if self.kind == "embedded":
            flags = "&".join(f"{name}=true" for name in ("ephemeral", "tcp") if getattr(self, name))
            return f"{start}{quote(self.path)}{'?' if flags else ''}{flags}"
        if self.kind == "unix":
            return f"{start}{quote(self.path)}?db={self.db}"
        service = f"/{quote(self.service, safe='')}" if self.sentinels else ""
        return f"{start}{self.place}{service}/{self.db}"

    def __repr__(self) -> str:
        return f"Address({str(self)!r})"


def default_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """Where the embedded server keeps its data unless told otherwise: `$XDG_STATE_HOME/penstock/default`."""
    state = environ.get("XDG_STATE_HOME", "")
    if os.path.isabs(state):
        return Path(state, "penstock", "default")
    home = environ.get("HOME") or os.path.expanduser("~")
    if not os.path.isabs(home):
        raise ConfigurationError(
            "there is no home directory to keep the embedded server's data in: set $HOME or $XDG_STATE_HOME,"
            f" or name a place, like {EMBEDDED.example}"
        )
    return Path(home, ".local", "state", "penstock", "default")


def resolve(url: str | None = None, environ: Mapping[str, str] = os.environ) -> Address:
    """The address to use: `url`, else `$PENSTOCK_URL`, else the default embedded server, which it says in a warning."""
    if url is not None:
        return parse(url)
    from_environment = environ.get(URL_VARIABLE, "")
    if from_environment:
        return parse(from_environment, source=f"${URL_VARIABLE}")
    directory = default_directory(environ)
    logging.getLogger("penstock").warning(
        "no URL given and $%s is not set: using the embedded server in %s", URL_VARIABLE, directory
    )
    return Address(kind="embedded", path=str(directory))


def parse(url: str, *, source: str = "the server URL") -> Address:
    """Read a URL; what cannot be read raises `ConfigurationError`, which names `source` and no piece of the URL."""
    if not isinstance(url, str):
        refuse(source, f"must be a str, not {type(url).__name__}", TCP)
    reader = UrlReader(url, source)
    if reader.form.kind == "embedded":
        return _embedded(reader)
    if reader.form.by_sentinels:
        return _by_sentinels(reader)
    options = reader.options()
    username, password = reader.credentials()
    is_unix = reader.form.kind == "unix"
    if is_unix and reader.place:
        reader.refuse("names a host, but a unix socket has none: the path starts with a third slash")
    host, port = ("", DEFAULT_PORT) if is_unix else reader.host_and_port(reader.place, DEFAULT_PORT)
    db = _db(reader, "" if is_unix else reader.path[1:], options.pop("db", None))
    return Address(
        kind=reader.form.kind,
        host=host,
        port=port,
        path=_socket_path(reader) if is_unix else "",
        db=db,
        username=username,
        secret=_secret(password),
        client_options=tuple(options.items()),
    )


def _by_sentinels(reader: UrlReader) -> Address:
    options = reader.options()
    if reader.authority.count("@") > 1:
        reader.refuse("has more than one '@': credentials stand once, before all hosts; in a password it is %40")
    username, password = reader.credentials()
    name, _, db = reader.path[1:].partition("/")
    service = reader.decode(name, "service")
    if not service:
        reader.refuse("names no service: what the sentinels call the server stands behind the hosts")
    number = _db(reader, db, options.pop("db", None))
    return Address(
        kind=reader.form.kind,
        db=number,
        username=username,
        secret=_secret(password),
        service=service,
        sentinels=_sentinels(reader, options),
        client_options=tuple((name, value) for name, value in options.items() if not name.startswith("sentinel_")),
    )


def _sentinels(reader: UrlReader, options: dict[str, str]) -> tuple[Address, ...]:
    secured = reader.form.kind == "tls" and reader.is_true(options, "sentinel_tls", "true")
    files = tuple((name, value) for name, value in options.items() if name.startswith("ssl_")) if secured else ()
    places = [reader.host_and_port(place, _SENTINEL_PORT) for place in reader.place.split(",")]
    return tuple(
        Address(
            kind="tls" if secured else "tcp",
            host=host,
            port=port,
            username=options.get("sentinel_username"),
            secret=_secret(options.get("sentinel_password")),
            client_options=files,
        )
        for host, port in places
    )


def _embedded(reader: UrlReader) -> Address:
    options = reader.options()
    if reader.authority:
        reader.refuse("names a host, but the embedded server has none: the directory starts with a third slash")
    ephemeral, tcp = (reader.is_true(options, name, "false") for name in ("ephemeral", "tcp"))
    path = reader.decode(reader.path, "path")
    path = "" if path == "/" else path
    if path and ephemeral:
        reader.refuse("names a directory and ephemeral=true, which uses a temporary one: leave one of them out")
    return Address(kind="embedded", path=path, ephemeral=ephemeral, tcp=tcp)


def _socket_path(reader: UrlReader) -> str:
    path = reader.decode(reader.path, "path")
    if len(path) < 2:
        reader.refuse("has no path to the socket")
    return path


def _db(reader: UrlReader, in_path: str, option: str | None) -> int:
    given = [text for text in (in_path, option) if text]
    if not all(re.fullmatch("[0-9]{1,9}", text) for text in given):
        where = "service" if reader.form.by_sentinels else "host"
        reader.refuse(f"has no valid database: it is a number from 0, after the {where} or as ?db=")
    numbers = {int(text) for text in given}
    if len(numbers) > 1:
        reader.refuse("names two different databases, in its path and as ?db=")
    return numbers.pop() if numbers else 0


def _secret(text: str | None) -> Secret | None:
    return None if text is None else Secret(text)
