"""Rows on their way to the server: some requests under way at a time, and a broken connection is made good."""

import time
from collections import Counter, deque
from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeVar

from penstock.backend import keys
from penstock.backend.address import Address
from penstock.backend.redis import scripts
from penstock.backend.redis.blocking import BlockingLink
from penstock.errors import ServerBusyError, ServerUnreachableError
from penstock.spark.sink.delivery import Mode, Request
from penstock.spark.sink.rows import Rows

PATIENCE_SECONDS = 30.0
"""How long a server may be away before an attempt gives up."""
_PAUSE_SECONDS = 0.1
_MOST_TRIES = 5
_AWAY = (ServerUnreachableError, ServerBusyError)
T = TypeVar("T")


def patiently(address: Address, work: Callable[[BlockingLink], T], patience: float = PATIENCE_SECONDS) -> T:
    """Do something that may be done twice, on a connection of its own; a server that is away is waited for."""
    deadline = time.monotonic() + patience
    while True:
        try:
            with BlockingLink.open(address) as link:
                return work(link)
        except _AWAY:
            if time.monotonic() > deadline:
                raise
            time.sleep(_PAUSE_SECONDS)


class Outflow:
    """Writes rows in order. After `finish` every row is in its stream, as its mode promises; use it as a context."""

    def __init__(self, address: Address, mode: Mode, patience: float = PATIENCE_SECONDS) -> None:
        self._address = address
        self._mode = mode
        self._patience = patience
        self._link: BlockingLink | None = None
        self._under_way: deque[Request] = deque()
        self._tries = 0
        self.rows: Counter[str] = Counter()
        """How many came, by stream."""

    def write(self, rows: Rows) -> None:
        if rows.stream not in self.rows:
            self._settle_all()
            self._insist(lambda link: self._mode.begin(link, rows.stream))
        self.rows[rows.stream] += len(rows)
        request = self._mode.request(rows)
        if request is None:
            return
        # Not after it is sent: the server works while the next request is made.
        while len(self._under_way) >= self._mode.most_under_way:
            self._insist(self._settle)
        self._under_way.append(request)
        self._insist(lambda link: self._mode.send(link, request), sent=True)

    def finish(self) -> None:
        self._settle_all()
        if self.rows:
            doing = "listing the topics that were written to"
            topics = {keys.home(stream) for stream in self.rows}
            self._insist(lambda link: link.command(doing, "SADD", keys.TOPICS, *topics))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._link is not None:
            self._link.close()

    def _settle_all(self) -> None:
        while self._under_way:
            self._insist(self._settle)

    def _settle(self, link: BlockingLink) -> None:
        if not self._under_way:
            return
        request = self._under_way[0]
        self._mode.settle(request, self._mode.receive(link, request))
        self._under_way.popleft()
        self._tries = 0

    def _insist(self, step: Callable[[BlockingLink], T], *, sent: bool = False) -> T | None:
        """The step, on a new connection if need be; with `sent`, making the connection anew is the step."""
        while True:
            try:
                return step(self._link or self._connect())
            except _AWAY:
                self._tries += 1
                if self._tries > _MOST_TRIES:
                    raise
                self._heal()
                if sent:
                    return None

    def _connect(self) -> BlockingLink:
        link = BlockingLink.open(self._address)
        if self._mode.script:
            link.command("loading a script", "SCRIPT", "LOAD", scripts.load(self._mode.script).text)
        self._link = link
        return link

    def _heal(self) -> None:
        """A new connection on which everything without a reply has been sent again."""
        deadline = time.monotonic() + self._patience
        while True:
            try:
                self._close()
                link = self._connect()
                self._under_way = deque(self._mode.again(link, list(self._under_way)))
                for request in self._under_way:
                    self._mode.send(link, request)
            except _AWAY:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_PAUSE_SECONDS)
            else:
                return

    def _close(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None
