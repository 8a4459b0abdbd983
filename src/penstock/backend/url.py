"""Takes the URL of a server apart by hand, so that no error holds any piece of a password.

The standard parser quotes what it could not read, and in a URL with an unescaped password that is the password.
"""

import ipaddress
import re
from dataclasses import dataclass
from typing import Literal, NoReturn
from urllib.parse import unquote_to_bytes

from penstock.errors import ConfigurationError

Kind = Literal["tcp", "tls", "unix", "embedded"]

SCHEMES: dict[Kind, str] = {"tcp": "redis", "tls": "rediss", "unix": "unix", "embedded": "embedded"}


@dataclass(frozen=True, slots=True)
class Form:
    """What URLs of a scheme look like."""

    kind: Kind
    example: str
    options: tuple[str, ...]
    by_sentinels: bool = False
    """The hosts are sentinels, and know where the server is."""

    @property
    def scheme(self) -> str:
        return f"{SCHEMES[self.kind]}{'+sentinel' if self.by_sentinels else ''}"


_NETWORK = ("db", "client_name")
_TLS = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
_SENTINEL = ("sentinel_username", "sentinel_password")
_SERVICE = "user:password@host:26379,other:26379/service/0"

TCP = Form("tcp", "redis://user:password@host:6379/0", _NETWORK)
EMBEDDED = Form("embedded", "embedded:///absolute/directory, or embedded:// for the default one", ("ephemeral", "tcp"))
_TO_TLS = Form("tls", "rediss://user:password@host:6379/0?ssl_ca_certs=/etc/ssl/ca.pem", (*_NETWORK, *_TLS))
_TO_SENTINELS = Form("tcp", f"redis+sentinel://{_SERVICE}", (*_NETWORK, *_SENTINEL), True)
_TO_SENTINELS_BY_TLS = Form(
    "tls", f"rediss+sentinel://{_SERVICE}", (*_NETWORK, *_TLS, *_SENTINEL, "sentinel_tls"), True
)
_FORMS = {
    "redis": TCP,
    "valkey": TCP,
    "rediss": _TO_TLS,
    "valkeys": _TO_TLS,
    "unix": Form("unix", "unix:///run/valkey/valkey.sock?db=0", _NETWORK),
    "embedded": EMBEDDED,
    "redis+sentinel": _TO_SENTINELS,
    "valkey+sentinel": _TO_SENTINELS,
    "rediss+sentinel": _TO_SENTINELS_BY_TLS,
    "valkeys+sentinel": _TO_SENTINELS_BY_TLS,
}
# Names are echoed only from here: what stands in the place of an option may be a piece of a password.
_REFUSED_OPTIONS = {
    "password": "credentials stand before the host",
    "username": "credentials stand before the host",
    "ssl_cert_reqs": "certificates are always checked; name a private authority with ssl_ca_certs",
    "ssl_check_hostname": "certificates are always checked; name a private authority with ssl_ca_certs",
    **dict.fromkeys(_TLS, "it needs rediss:// or rediss+sentinel://"),
    **dict.fromkeys(_SENTINEL, "it needs redis+sentinel:// or rediss+sentinel://"),
    "sentinel_tls": "it needs rediss+sentinel://",
    "ephemeral": "it needs embedded://",
    "tcp": "it needs embedded://",
    "db": "the embedded server is used with database 0",
}


def refuse(source: str, problem: str, form: Form) -> NoReturn:
    raise ConfigurationError(f"{source} {problem}; a good one looks like {form.example}")


class UrlReader:
    """The parts of one URL. Never raises inside an `except`: the first error would travel along as its context."""

    def __init__(self, url: str, source: str) -> None:
        scheme, separator, rest = url.partition("://")
        self._source = source
        self.form = _FORMS.get(scheme.lower(), TCP)
        self._check_scheme(scheme.lower() if separator else "")
        self._check_characters(rest)
        authority_end = min((at for at in map(rest.find, "/?") if at >= 0), default=len(rest))
        self.authority, behind = rest[:authority_end], rest[authority_end:]
        if "@" in behind and self.form.kind != "embedded":
            self.refuse(
                "has an '@' behind its host: if the password holds one of / ? # @ %, write it percent-encoded"
                " (/ as %2F, ? as %3F, # as %23, @ as %40, % as %25)"
            )
        self.path, _, self._query = behind.partition("?")

    def refuse(self, problem: str) -> NoReturn:
        refuse(self._source, problem, self.form)

    def decode(self, text: str, part: str) -> str:
        try:
            decoded = unquote_to_bytes(text).decode()
        except UnicodeError:
            decoded = "\0"
        if "\0" in decoded:
            self.refuse(f"has a {part} that is not UTF-8 text, or holds a zero byte")
        return decoded

    def credentials(self) -> tuple[str | None, str | None]:
        username, colon, password = self.authority.rpartition("@")[0].partition(":")
        if username and not colon:
            # Most likely a password whose colon was forgotten; as a user name it would be shown.
            self.refuse("has one word before the '@': write user:password@, or :password@ for the default user")
        if not username and not password:
            return None, None
        return self.decode(username, "user name") or None, self.decode(password, "password")

    @property
    def place(self) -> str:
        """What stands behind the credentials and before the path."""
        return self.authority.rpartition("@")[2]

    def host_and_port(self, place: str, default: int) -> tuple[str, int]:
        if place.startswith("["):
            host, bracket, port = place[1:].partition("]")
            host = unquote_to_bytes(host).decode("ascii", "replace")
            if not bracket or not _is_ipv6(host):
                self.refuse("has no IPv6 address between its brackets")
        else:
            host, colon, port = place.partition(":")
            port = colon + port
            if not host:
                self.refuse("has no host")
            if not re.fullmatch("[A-Za-z0-9._-]+", host):
                self.refuse("has a host with characters that no host name has")
        return host, self._port(port, default)

    def options(self) -> dict[str, str]:
        options: dict[str, str] = {}
        for number, pair in enumerate(self._query.split("&") if self._query else (), start=1):
            name, _, value = pair.partition("=")
            if name not in self.form.options:
                self._refuse_option(name, number)
            if name in options:
                self.refuse(f"gives the option {name!r} twice")
            options[name] = self.decode(value, f"value of {name!r}")
            if not options[name]:
                self.refuse(f"gives the option {name!r} no value")
        self._check_options(options)
        return options

    def is_true(self, options: dict[str, str], name: str, default: str) -> bool:
        value = options.get(name, default)
        if value not in ("true", "false"):
            self.refuse(f"has an option {name!r} that is neither true nor false")
        return value == "true"

    def _check_scheme(self, scheme: str) -> None:
        if scheme == "redis+cluster":
            self.refuse("is a redis+cluster:// URL, which this version does not open: name one server")
        if scheme not in _FORMS:
            self.refuse(f"must start with one of {', '.join(f'{name}://' for name in _FORMS)}")

    def _check_characters(self, rest: str) -> None:
        if any(character.isspace() or not character.isprintable() for character in rest):
            self.refuse("holds a space, line break or control character: percent-encode it or remove it")
        if "#" in rest:
            self.refuse("holds a '#': write it as %23")
        if re.search("%(?![0-9A-Fa-f]{2})", rest):
            self.refuse("holds a '%' that is not followed by two hexadecimal digits: write it as %25")

    def _port(self, text: str, default: int) -> int:
        if not text:
            return default
        match = re.fullmatch(":([0-9]{1,5})", text)
        if match is None or not 1 <= int(match[1]) <= 65535:
            self.refuse("has no valid port: it is a number from 1 to 65535 (an IPv6 host stands in brackets)")
        return int(match[1])

    def _refuse_option(self, name: str, number: int) -> NoReturn:
        reason = _REFUSED_OPTIONS.get(name)
        what = f"gives the option {name!r}, but {reason}" if reason else f"has an unknown option (number {number})"
        self.refuse(f"{what}; the options of {self.form.scheme}:// are {', '.join(self.form.options)}")

    def _check_options(self, options: dict[str, str]) -> None:
        if not re.fullmatch("[!-~]+", options.get("client_name", "-")):
            self.refuse("has a client_name that is not plain printable ASCII without spaces")
        if "ssl_keyfile" in options and "ssl_certfile" not in options:
            self.refuse("gives ssl_keyfile without ssl_certfile")
        if "sentinel_username" in options and "sentinel_password" not in options:
            self.refuse("gives sentinel_username without sentinel_password")


def _is_ipv6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True
