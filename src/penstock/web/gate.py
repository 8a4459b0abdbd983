"""Who may come in. A page in somebody's browser is not that somebody: it must be one of ours, or have a token."""

import hmac
import ipaddress
from http import HTTPStatus
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from penstock.web.answers import Refused
from penstock.web.options import WebOptions

_CHALLENGE = {"WWW-Authenticate": "Bearer"}


class Gate:
    """Lets requests pass that the options allow, and answers all others."""

    def __init__(self, app: ASGIApp, options: WebOptions) -> None:
        self._app = app
        self._tokens = [token.encode() for token in options.tokens]
        self._is_private = not options.tokens and not options.open_to_all
        self._origins = {origin.lower() for origin in options.origins}
        self._hosts = {urlsplit(origin).hostname for origin in self._origins}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self._check(Request(scope))
        except Refused as refused:
            await refused.answer(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _check(self, request: Request) -> None:
        if self._is_private:
            self._check_client(request)
            self._check_host(request)
        self._check_origin(request)
        if self._tokens:
            self._check_token(request)

    def _check_client(self, request: Request) -> None:
        # None: it came by a unix socket, so from a program in front of us that may ask for anybody.
        if request.client is None or not is_loopback(request.client.host):
            raise Refused(
                HTTPStatus.FORBIDDEN,
                "without a token only programs on the same machine are served: give WebOptions(tokens=...), or"
                " open_to_all=True if something in front of this decides who may come here",
            )

    def _check_host(self, request: Request) -> None:
        """A name that an attacker points to this machine makes his page one of our own; an address cannot."""
        host = _host_of(request)
        if host in self._hosts or host == "localhost" or host.endswith(".localhost") or _is_address(host):
            return
        raise Refused(
            HTTPStatus.FORBIDDEN,
            f"this server does not go by the name {host[:100]!r}: name it in WebOptions(origins=...), or give a token",
        )

    def _check_origin(self, request: Request) -> None:
        origin = request.headers.get("origin", "").lower()
        if not origin or origin in self._origins:
            return
        # The scheme may differ: whoever ends TLS in front of us leaves the host as it was.
        if _netloc_of(origin) != request.headers.get("host", "").lower():
            raise Refused(
                HTTPStatus.FORBIDDEN,
                f"pages of {origin[:100]!r} may not come here: name it in WebOptions(origins=...) if they should",
            )

    def _check_token(self, request: Request) -> None:
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer":
            # EventSource can send no headers. Only here: what stands in an address ends up in logs.
            given = request.query_params.get("access_token", "") if request.method == "GET" else ""
        # All are compared, in constant time: how long it takes tells nothing.
        if not sum(hmac.compare_digest(token, given.strip().encode()) for token in self._tokens):
            raise Refused(HTTPStatus.UNAUTHORIZED, "this needs a token: Authorization: Bearer TOKEN", _CHALLENGE)


def is_loopback(host: str) -> bool:
    """Whether this address is one of the machine's own, that nobody else can come from or reach."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _host_of(request: Request) -> str:
    try:
        return urlsplit(f"//{request.headers.get('host', '')}").hostname or ""
    except ValueError:
        return ""


def _netloc_of(origin: str) -> str | None:
    """None if it is no origin at all, and so that of nobody."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None
