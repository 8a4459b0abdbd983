"""Where the server of a service is: its sentinels are asked, in turn, when a connection is opened, and every second.

After a failover it is another one. What is open to the old one may not break by itself: one that is well goes on as a
primary for ten seconds or so, and whatever it takes then is lost.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from redis.exceptions import NoPermissionError, RedisError, ResponseError

from penstock.backend.address import Address
from penstock.backend.redis.link import Link, Reply
from penstock.backend.redis.opening import CLASSES, Opener, connection_options, first_line, is_login_failure, place_text
from penstock.errors import AuthenticationError, PenstockError, ServerError, ServerUnreachableError

WHERE = ("SENTINEL", "GET-MASTER-ADDR-BY-NAME")
SERVICES = ("SENTINEL", "MASTERS")
_MOST_SECONDS = 1.0
_SECONDS_FOR_ALL = 2.0


def opener_to(address: Address) -> Opener:
    """Opens at this address, or where its sentinels then say."""
    return ByService(address) if address.sentinels else Opener.to(address)


class ByService(Opener):
    """Opens to whatever server is the primary of a service at that moment."""

    def __init__(self, address: Address) -> None:
        # What makes connections here is never used: to make it checks the files that the URL names.
        super().__init__(_maker(address), str(address))
        self._sought = address
        self._connections = {sentinel: _maker(sentinel) for sentinel in address.sentinels}
        self._order = list(self._connections)
        self.may_move = True

    async def open(self) -> Link:
        """As of any opener, but the sentinels have up to two seconds of their own."""
        sentinel, found = await self._search()
        others = [other for other in self._order if other != sentinel]
        try:
            link = await Opener.to(found).open()
        except PenstockError:
            self._order = [*others, sentinel]  # the others may know better
            raise
        self._order = [sentinel, *others]
        self.address = found
        return link

    async def has_left(self, place: str) -> bool:
        try:
            _, found = await self._search()
            if place_text(found) == place:
                return False
            # A sentinel may be behind the others: what it names must say that it is one.
            (await Opener.to(found).open()).close()
        except PenstockError:
            return False  # nobody knows better
        return True

    async def _search(self) -> tuple[Address, Address]:
        """Who knew where it is, and where that is."""
        answers = Answers(self._sought)
        for sentinel in self._order:
            connection = self._connections[sentinel]()
            try:
                async with asyncio.timeout(answers.seconds):
                    where, services = await _ask(connection, self._sought.service)
            except (RedisError, TimeoutError) as error:
                answers.failed(sentinel, error)
            else:
                if (found := answers.answered(sentinel, where, services)) is not None:
                    return sentinel, found
            finally:
                await connection.disconnect(nowait=True)
        raise answers.failure()


async def _ask(connection: Any, service: str) -> tuple[Reply, Reply]:
    await connection.connect()
    await connection.send_command(*WHERE, service)
    where = await connection.read_response()
    services: Reply = []
    if where is None:
        with contextlib.suppress(ResponseError):  # an account may have no right to that; it only helps the error
            await connection.send_command(*SERVICES)
            services = await connection.read_response()
    return where, services


class Answers:
    """What the sentinels said that were asked so far."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._said: list[tuple[type[PenstockError], str]] = []
        self._is_unknown = False
        self.seconds = min(_MOST_SECONDS, _SECONDS_FOR_ALL / len(address.sentinels))
        """How long each may take."""

    def answered(self, sentinel: Address, where: Reply, services: Reply) -> Address | None:
        """Take its replies to `WHERE` and, if that is None, to `SERVICES`; where the primary is, if it knows."""
        try:
            if where is not None:
                host, port = where
                return self._address.at(host.decode(), int(port))
            names = sorted(dict(zip(row[::2], row[1::2], strict=True))[b"name"].decode() for row in services)
        except (TypeError, ValueError, KeyError, AttributeError):
            self._said.append((ServerError, f"{sentinel.place} does not answer as sentinels do"))
            return None
        self._is_unknown = True
        known = f", only {', '.join(map(repr, names))}" if names else ""
        self._said.append((ServerError, f"{sentinel.place} does not know it{known}"))
        return None

    def failed(self, sentinel: Address, error: Exception) -> None:
        # Servers repeat the arguments of a command they do not know.
        text = first_line(error).split(", with args", 1)[0]
        if isinstance(error, TimeoutError):
            said = f"{sentinel.place} did not answer within {self.seconds:.2g} s"
            self._said.append((ServerUnreachableError, said))
        elif is_login_failure(error) or isinstance(error, NoPermissionError):
            self._said.append((AuthenticationError, f"{sentinel.place} answered {text!r}"))
        elif isinstance(error, ResponseError):
            self._said.append((ServerError, f"{sentinel.place} is no sentinel: it answered {text!r}"))
        else:
            self._said.append((ServerUnreachableError, f"{sentinel.place}: {text}"))

    def failure(self) -> PenstockError:
        """The error to raise when none of them has helped; of the kind that is the least likely to pass by itself."""
        kinds = {kind for kind, _ in self._said}
        if self._is_unknown:
            kind, advice = ServerError, "the service is named behind the hosts: redis+sentinel://host:26379/service"
        elif AuthenticationError in kinds:
            kind, advice = AuthenticationError, "their own account is given by sentinel_username and sentinel_password"
        elif ServerError in kinds:
            kind, advice = ServerError, "check the hosts and ports in the URL: they are those of sentinels"
        else:
            kind, advice = ServerUnreachableError, "are they up, and are the addresses right?"
        said = "; ".join(text for _, text in self._said)
        return kind(f"no sentinel says where the primary of {self._address.service!r} is: {said}; {advice}")


def _maker(address: Address) -> Callable[[], Any]:
    connection_class, options = CLASSES[address.kind], connection_options(address)
    return lambda: connection_class(**options)
