"""Where the server is: a URL, read into an `Address` that can be shown to anybody.

No text made here, repr or error, holds any piece of a password. The URL is taken apart by hand for that reason:
the standard parser quotes what it could not read, and in a URL with an unescaped password that is the password.
"""

import ipaddress
import logging
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NoReturn
from urllib.parse import quote, unquote_to_bytes

from penstock.errors import ConfigurationError

Kind = Literal["tcp", "tls", "unix", "embedded"]

URL_VARIABLE = "PENSTOCK_URL"
DEFAULT_PORT = 6379

_KINDS: dict[str, Kind] = {
    "redis": "tcp",
    "valkey": "tcp",
    "rediss": "tls",
    "valkeys": "tls",
    "unix": "unix",
    "embedded": "embedded",
}
_SCHEMES: dict[Kind, str] = {"tcp": "redis", "tls": "rediss", "unix": "unix", "embedded": "embedded"}
_EXAMPLES: dict[Kind, str] = {
    "tcp": "redis://user:password@host:6379/0",
    "tls": "rediss://user:password@host:6379/0?ssl_ca_certs=/etc/ssl/ca.pem",
    "unix": "unix:///run/valkey/valkey.sock?db=0",
    "embedded": "embedded:///absolute/directory, or embedded:// for the default one",
}
_OPTIONS: dict[Kind, tuple[str, ...]] = {
    "tcp": ("db", "client_name"),
    "tls": ("db", "client_name", "ssl_ca_certs", "ssl_certfile", "ssl_keyfile"),
    "unix": ("db", "client_name"),
    "embedded": ("ephemeral", "tcp"),
}
# Names are echoed only from here: what stands in the place of an option may be a piece of a password.
_REFUSED_OPTIONS = {
    "password": "credentials stand before the host",
    "username": "credentials stand before the host",
    "ssl_cert_reqs": "certificates are always checked; name a private authority with ssl_ca_certs",
    "ssl_check_hostname": "certificates are always checked; name a private authority with ssl_ca_certs",
    "ssl_ca_certs": "it needs rediss://",
    "ssl_certfile": "it needs rediss://",
    "ssl_keyfile": "it needs rediss://",
    "ephemeral": "it needs embedded://",
    "tcp": "it needs embedded://",
    "db": "the embedded server is used with database 0",
}


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

    @property
    def password(self) -> str | None:
        return None if self.secret is None else self.secret.reveal()

    @property
    def options(self) -> dict[str, str]:
        """What to pass on to the client, as far as given: `client_name` and the paths `ssl_*`."""
        return dict(self.client_options)

    @property
    def directory(self) -> Path | None:
        """Where an embedded server keeps its data; None for the default directory, or a fresh one if `ephemeral`."""
        return Path(self.path) if self.kind == "embedded" and self.path else None

    def __str__(self) -> str:
        credentials = "" if self.secret is None else f"{quote(self.username or '', safe='')}:***@"
        start = f"{_SCHEMES[self.kind]}://{credentials}"
        if self.kind == "embedded":
            flags = "&".join(f"{name}=true" for name in ("ephemeral", "tcp") if getattr(self, name))
            return f"{start}{quote(self.path)}{'?' if flags else ''}{flags}"
        if self.kind == "unix":
            return f"{start}{quote(self.path)}?db={self.db}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{start}{host}:{self.port}/{self.db}"

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
            f" or name a place, like {_EXAMPLES['embedded']}"
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
        _refuse(source, f"must be a str, not {type(url).__name__}", "tcp")
    return _Reader(url, source).address()


def _refuse(source: str, problem: str, kind: Kind) -> NoReturn:
    raise ConfigurationError(f"{source} {problem}; a good one looks like {_EXAMPLES[kind]}")


class _Reader:
    """Takes one URL apart. Never raises inside an `except`: the first error would travel along as its context."""

    def __init__(self, url: str, source: str) -> None:
        scheme, separator, rest = url.partition("://")
        self._source = source
        self._kind: Kind = _KINDS.get(scheme.lower(), "tcp")
        self._check_scheme(scheme.lower() if separator else "")
        self._check_characters(rest)
        authority_end = min((at for at in map(rest.find, "/?") if at >= 0), default=len(rest))
        self._authority, behind = rest[:authority_end], rest[authority_end:]
        if "@" in behind and self._kind != "embedded":
            self._refuse(
                "has an '@' behind its host: if the password holds one of / ? # @ %, write it percent-encoded"
                " (/ as %2F, ? as %3F, # as %23, @ as %40, % as %25)"
            )
        self._path, _, self._query = behind.partition("?")

    def address(self) -> Address:
        options = self._options()
        if self._kind == "embedded":
            return self._embedded(options)
        username, secret = self._credentials()
        host, port = self._host_and_port()
        db = self._db(options.pop("db", None))
        return Address(
            kind=self._kind,
            host=host,
            port=port,
            path=self._socket_path() if self._kind == "unix" else "",
            db=db,
            username=username,
            secret=secret,
            client_options=tuple(options.items()),
        )

    def _refuse(self, problem: str) -> NoReturn:
        _refuse(self._source, problem, self._kind)

    def _check_scheme(self, scheme: str) -> None:
        if scheme == "redis+sentinel":
            self._refuse(
                "is a redis+sentinel:// URL, which this version does not open:"
                " pass the client of Sentinel.master_for() to RedisBackend.from_client()"
            )
        if scheme == "redis+cluster":
            self._refuse("is a redis+cluster:// URL, which this version does not open: name one server")
        if scheme not in _KINDS:
            self._refuse(f"must start with one of {', '.join(f'{name}://' for name in _KINDS)}")

    def _check_characters(self, rest: str) -> None:
        if any(character.isspace() or not character.isprintable() for character in rest):
            self._refuse("holds a space, line break or control character: percent-encode it or remove it")
        if "#" in rest:
            self._refuse("holds a '#': write it as %23")
        if re.search("%(?![0-9A-Fa-f]{2})", rest):
            self._refuse("holds a '%' that is not followed by two hexadecimal digits: write it as %25")

    def _decode(self, text: str, part: str) -> str:
        try:
            decoded = unquote_to_bytes(text).decode()
        except UnicodeError:
            decoded = "\0"
        if "\0" in decoded:
            self._refuse(f"has a {part} that is not UTF-8 text, or holds a zero byte")
        return decoded

    def _credentials(self) -> tuple[str | None, Secret | None]:
        username, colon, password = self._authority.rpartition("@")[0].partition(":")
        if username and not colon:
            # Most likely a password whose colon was forgotten; as a user name it would be shown.
            self._refuse("has one word before the '@': write user:password@, or :password@ for the default user")
        if not username and not password:
            return None, None
        return self._decode(username, "user name") or None, Secret(self._decode(password, "password"))

    def _host_and_port(self) -> tuple[str, int]:
        place = self._authority.rpartition("@")[2]
        if self._kind == "unix":
            if place:
                self._refuse("names a host, but a unix socket has none: the path starts with a third slash")
            return "", DEFAULT_PORT
        if place.startswith("["):
            host, bracket, port = place[1:].partition("]")
            host = unquote_to_bytes(host).decode("ascii", "replace")
            if not bracket or not _is_ipv6(host):
                self._refuse("has no IPv6 address between its brackets")
        else:
            host, colon, port = place.partition(":")
            port = colon + port
            if not host:
                self._refuse("has no host")
            if not re.fullmatch("[A-Za-z0-9._-]+", host):
                self._refuse("has a host with characters that no host name has")
        return host, self._port(port)

    def _port(self, text: str) -> int:
        if not text:
            return DEFAULT_PORT
        match = re.fullmatch(":([0-9]{1,5})", text)
        if match is None or not 1 <= int(match[1]) <= 65535:
            self._refuse("has no valid port: it is a number from 1 to 65535 (an IPv6 host stands in brackets)")
        return int(match[1])

    def _socket_path(self) -> str:
        path = self._decode(self._path, "path")
        if len(path) < 2:
            self._refuse("has no path to the socket")
        return path

    def _db(self, option: str | None) -> int:
        in_path = self._path[1:] if self._kind != "unix" else ""
        given = [text for text in (in_path, option) if text]
        if not all(re.fullmatch("[0-9]{1,9}", text) for text in given):
            self._refuse("has no valid database: it is a number from 0, after the host or as ?db=")
        numbers = {int(text) for text in given}
        if len(numbers) > 1:
            self._refuse("names two different databases, in its path and as ?db=")
        return numbers.pop() if numbers else 0

    def _embedded(self, options: dict[str, str]) -> Address:
        if self._authority:
            self._refuse("names a host, but the embedded server has none: the directory starts with a third slash")
        for name, value in options.items():
            if value not in ("true", "false"):
                self._refuse(f"has an option {name!r} that is neither true nor false")
        path = self._decode(self._path, "path")
        path = "" if path == "/" else path
        ephemeral = options.get("ephemeral") == "true"
        if path and ephemeral:
            self._refuse("names a directory and ephemeral=true, which uses a temporary one: leave one of them out")
        return Address(kind="embedded", path=path, ephemeral=ephemeral, tcp=options.get("tcp") == "true")

    def _options(self) -> dict[str, str]:
        options: dict[str, str] = {}
        for number, pair in enumerate(self._query.split("&") if self._query else (), start=1):
            name, _, value = pair.partition("=")
            if name not in _OPTIONS[self._kind]:
                self._refuse_option(name, number)
            if name in options:
                self._refuse(f"gives the option {name!r} twice")
            options[name] = self._decode(value, f"value of {name!r}")
            if not options[name]:
                self._refuse(f"gives the option {name!r} no value")
        self._check_options(options)
        return options

    def _refuse_option(self, name: str, number: int) -> NoReturn:
        allowed = ", ".join(_OPTIONS[self._kind])
        reason = _REFUSED_OPTIONS.get(name)
        what = f"gives the option {name!r}, but {reason}" if reason else f"has an unknown option (number {number})"
        self._refuse(f"{what}; the options of {_SCHEMES[self._kind]}:// are {allowed}")

    def _check_options(self, options: dict[str, str]) -> None:
        if not re.fullmatch("[!-~]+", options.get("client_name", "-")):
            self._refuse("has a client_name that is not plain printable ASCII without spaces")
        if "ssl_keyfile" in options and "ssl_certfile" not in options:
            self._refuse("gives ssl_keyfile without ssl_certfile")


def _is_ipv6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True
