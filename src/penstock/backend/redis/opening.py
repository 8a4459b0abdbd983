"""Opening a connection: redis-py resolves, connects, encrypts and logs in; then its transport becomes a `Link`.

redis-py's own retries stay off here. It would try for a minute before it says that a server is down, and its command
layer re-sends what may have run.
"""

import asyncio
import inspect
import ssl
from collections.abc import Callable, Mapping
from typing import Any

import hiredis
import redis.asyncio
import redis.exceptions
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import SentinelConnectionPool
from redis.backoff import NoBackoff

from penstock.backend.address import Address
from penstock.backend.redis.failures import failure
from penstock.backend.redis.link import Link, Reply, pack
from penstock.backend.redis.sentinels import let_go, same_place
from penstock.errors import (
    ConfigurationError,
    PenstockError,
    ServerError,
    ServerTooOldError,
    ServerUnreachableError,
)

CONNECT_SECONDS = 3.0
_NEEDED = "Penstock needs Redis 7.0 or Valkey 7.2 or newer"
_OLDEST = {"redis": (7, 0), "valkey": (7, 2)}
CLASSES: dict[str, type[Any]] = {
    "tcp": redis.asyncio.Connection,
    "tls": redis.asyncio.SSLConnection,
    "unix": redis.asyncio.UnixDomainSocketConnection,
}


def place_text(address: Address) -> str:
    """What an opener and its links call the place that they lead to."""
    return f"{address} (primary of {address.service!r})" if address.service else str(address)


class Opener:
    """Opens as many links as are asked for, all to the same place as the same user."""

    def __init__(
        self,
        make_connection: Callable[[], Any],
        place: str,
        *,
        address: Address | None = None,
        pool: Any = None,
        to_primary: bool = False,
    ) -> None:
        self._make_connection = make_connection
        self.place = place
        self.address = address
        """Where it is, or was found last; None if that is known to a client only."""

        self._pool = pool
        self._owns_pool = False
        self._to_primary = to_primary
        self.is_cluster = False
        """Whether the server that was opened last is part of a cluster."""

        self.may_move = False
        """Whether it may be another server in a while: then `has_left` is to be asked."""

    @classmethod
    def to(cls, address: Address) -> "Opener":
        """Open at this address. If sentinels have named it, a replica there counts as a server that is not up."""
        connection_class, options = CLASSES[address.kind], connection_options(address)
        place = place_text(address)
        return cls(lambda: connection_class(**options), place, address=address, to_primary=bool(address.service))

    async def has_left(self, place: str) -> bool:
        """Whether the server is certainly no more where a link of that `place` leads."""
        return False

    @classmethod
    def like(cls, client: "redis.asyncio.Redis") -> "Opener":
        """Open where this client would, with its credentials; the client itself is neither used nor closed."""
        if not isinstance(client, redis.asyncio.Redis):
            raise ConfigurationError(
                f"from_client() takes a redis.asyncio.Redis, not {type(client).__module__}.{type(client).__name__}"
            )
        return cls._like(client.connection_pool)

    def again(self) -> "Opener":
        """One to the same place, for another event loop."""
        if not isinstance(self._pool, SentinelConnectionPool):
            return self
        opener = self._like(same_place(self._pool))
        opener._owns_pool = True
        return opener

    @classmethod
    def _like(cls, pool: Any) -> "Opener":
        connection_class = pool.connection_class
        given = {name: value for name, value in pool.connection_kwargs.items() if _is_ours_to_pass(name)}
        options = {**given, **_our_options()}
        place = given.get("path") or f"{given.get('host', 'the server of the given client')}:{given.get('port', '')}"
        # A Sentinel's connections know their pool by a weak reference, and the caller may have let go of the client.
        return cls(lambda: connection_class(**options), str(place).rstrip(":"), pool=pool)

    async def open(self) -> Link:
        """Connect, log in and check that the server is one we support, within `CONNECT_SECONDS`."""
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                return await self._open()
        except TimeoutError:
            raise ServerUnreachableError(
                f"{self.place} did not answer within {CONNECT_SECONDS:g} s: is it up, and is the address right?"
            ) from None

    async def _open(self) -> Link:
        connection = self._make_connection()
        refusal: PenstockError | None = None
        try:
            await connection.connect()
        except redis.exceptions.RedisError as error:
            refusal = self.refusal(error)
        finally:
            if self._owns_pool:
                await let_go(self._pool)
        if refusal is not None:
            # Outside the handler: the error of redis-py would travel along, and its text may hold what we sent.
            raise refusal
        link = _take_over(connection, self.place)
        try:
            await self._check_server(link)
        except BaseException:
            link.close()
            raise
        return link

    def refusal(self, error: Exception) -> PenstockError:
        """The error to raise for what redis-py said when it could not connect or log in."""
        if isinstance(error.__cause__, redis.exceptions.RedisError):
            error = error.__cause__  # over a unix socket redis-py wraps what the server said
        if isinstance(error, redis.exceptions.ResponseError) and "DB index" in str(error):
            return ConfigurationError(f"{self.place} has no database of the number that its URL ends with: 0 is there")
        if isinstance(error, redis.exceptions.ResponseError) or is_login_failure(error):
            return failure(hiredis.ReplyError(_with_code(error)), f"cannot log in to {self.place}")
        if isinstance(error, redis.exceptions.BusyLoadingError):
            return failure(hiredis.ReplyError(f"LOADING {error}"), f"cannot use {self.place} yet")
        return ServerUnreachableError(
            f"cannot connect to {self.place}: {first_line(error)}; is the server up, and is the address right?"
        )

    async def _check_server(self, link: Link) -> None:
        link.client_id = self.check_version(await link.call(pack("HELLO"), within=CONNECT_SECONDS))
        # A server that is still loading lets us log in, but answers nothing else; PING tells.
        ping = await link.call(pack("PING"), within=CONNECT_SECONDS)
        if isinstance(ping, hiredis.ReplyError) and str(ping).startswith("LOADING"):
            raise failure(ping, f"cannot use {self.place} yet")

    def check_version(self, reply: Reply) -> int | None:
        """Raises unless it is a server we support; gives the number by which it knows the connection."""
        # HELLO, not INFO: every user may run it, and Valkey answers with its own version, not the one it emulates.
        if isinstance(reply, hiredis.ReplyError) and "unknown command" in str(reply):
            raise ServerTooOldError(f"{self.place} does not know HELLO, so it is too old: {_NEEDED}")
        if isinstance(reply, hiredis.ReplyError):
            raise failure(reply, f"cannot ask {self.place} for its version")
        try:
            facts = dict(zip(reply[::2], reply[1::2], strict=True))
            name, version, mode = (facts[fact].decode() for fact in (b"server", b"version", b"mode"))
            numbers = tuple(int(part) for part in version.split(".")[:2])
            client_id = facts.get(b"id")
        except (TypeError, ValueError, KeyError, AttributeError):
            raise ServerError(f"{self.place} speaks Redis protocol but is no server we know: {_NEEDED}") from None
        if numbers < _OLDEST.get(name, (7, 0)):
            raise ServerTooOldError(f"{self.place} is {name} {version}, which is too old: {_NEEDED}")
        if mode == "sentinel":
            raise ServerError(
                f"{self.place} is a sentinel, which keeps no messages: have it asked for the server of a service, as in"
                " redis+sentinel://host:26379/service"
            )
        if self._to_primary and facts.get(b"role") == b"replica":
            raise ServerUnreachableError(
                f"{self.place} is a replica by now: a failover is under way, or the sentinel that named it is behind"
            )
        self.is_cluster = mode == "cluster"
        return client_id if isinstance(client_id, int) else None


def connection_options(address: Address) -> dict[str, Any]:
    """What redis-py's connection of this kind of address is made with; a file it names that cannot be used raises."""
    options: dict[str, Any] = {
        "db": address.db,
        "username": address.username,
        "password": address.password,
        **address.options,
        **_our_options(),
    }
    if address.kind == "unix":
        return {"path": address.path, **options}
    options |= {"host": address.host, "port": address.port, "socket_keepalive": True}
    if address.kind == "tls":
        _check_files(address.options)
        return {"ssl_check_hostname": True, "ssl_cert_reqs": "required", **options}
    return options


def _check_files(options: Mapping[str, str]) -> None:
    """Tried here once: the handshake would report a missing or empty file as if the server were at fault."""
    context = ssl.create_default_context()
    load: dict[str, Callable[[str], object]] = {
        "ssl_ca_certs": context.load_verify_locations,
        # With a password, if only an empty one: else an encrypted key would ask for it on the terminal.
        "ssl_certfile": lambda path: context.load_cert_chain(path, options.get("ssl_keyfile"), password=""),
    }
    for name in [name for name in load if name in options]:
        try:
            load[name](options[name])
        except OSError as error:
            raise ConfigurationError(f"{name}={options[name]} in the server URL cannot be used: {error}") from None


def _our_options() -> dict[str, Any]:
    return {
        "protocol": 2,
        "decode_responses": False,
        "retry": Retry(NoBackoff(), 0),
        "retry_on_error": [],
        # With one, redis-py waits by asyncio.wait_for, which on Python 3.11 can swallow a cancel. Ours is around all.
        "socket_timeout": None,
        "socket_connect_timeout": CONNECT_SECONDS,
        "health_check_interval": 0,
    }


def _is_ours_to_pass(name: str) -> bool:
    # These tie a connection to the client's own pool, and make sense only with RESP3.
    return not name.startswith(("maint_notifications", "orig_", "event_dispatcher"))


def _take_over(connection: Any, place: str) -> Link:
    writer = connection._writer  # redis-py has no public way to hand a transport over; 8.1 is pinned below 9
    # The writer goes along: both it and the connection close the transport when they are collected.
    link = Link(writer.transport, place, keep=writer)
    connection._writer = connection._reader = None
    return link


def is_login_failure(error: Exception) -> bool:
    return isinstance(error, redis.exceptions.AuthenticationError | redis.exceptions.AuthorizationError)


def _with_code(error: Exception) -> str:
    """redis-py strips the code of the errors it knows; ours are recognised by it."""
    text = first_line(error)
    if text.startswith("Authentication required"):
        return f"NOAUTH {text}"
    if isinstance(error, redis.exceptions.NoPermissionError):
        return f"NOPERM {text}"
    if is_login_failure(error):
        return f"WRONGPASS {text}"
    return f"ERR {text}" if text.startswith("unknown command") else text


def first_line(error: Exception) -> str:
    """What redis-py says, without the advice of its own that some of its errors go on with."""
    return inspect.cleandoc(str(error)).split("\n", 1)[0].rstrip(".")
