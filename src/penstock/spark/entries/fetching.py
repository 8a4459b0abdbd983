"""A range of a stream, fetched page by page on one connection, each asked for while the one before is still in use.

The end of a reply is recognised without parsing it: behind each XRANGE goes a PING with a secret that comes back last.
"""

import secrets
import time

import numpy as np

from penstock.backend.address import Address
from penstock.backend.redis.blocking import BlockingLink, parse_reply
from penstock.backend.redis.link import pack
from penstock.backend.redis.links import raised
from penstock.errors import ServerBusyError, ServerUnreachableError
from penstock.spark.entries.page import Page

PAGE_BYTES = 3 << 19  # 1.5 MB: as much as is quick to build and stays in the processor's caches
_FIRST_COUNT = 250
_MOST_COUNT = 10_000
_TOO_MANY_BYTES = 32 << 20
_PATIENCE_SECONDS = 20.0
_SILENCE_SECONDS = 10.0


def keep_freed_memory() -> None:
    """Make the C library reuse the megabytes that each page needs for a moment.

    It gives freed blocks back to the system, and faults them in again, until it has seen a larger one freed once. Half
    the time of a page would be spent on that.
    """
    np.empty(24 << 20, np.uint8)


class Fetching:
    """Where we are in the range, and what the server was asked for already."""

    def __init__(self, address: Address, stream: str, after: str, upto: str) -> None:
        self._address = address
        self._stream = stream
        self._after = after
        self._upto = upto
        self._link: BlockingLink | None = None
        self._count = _FIRST_COUNT
        self._buffer = bytearray(2 * PAGE_BYTES)
        self._tail = b""
        """How the reply that was asked for ends; empty if none was."""
        self._done = after == upto
        keep_freed_memory()

    def next_page(self) -> Page | None:
        """The next entries; None behind the last."""
        deadline, pause = time.monotonic() + _PATIENCE_SECONDS, 0.05
        while not self._done:
            try:
                page = self._receive(self._ask())
            except (ServerUnreachableError, ServerBusyError):
                self.close()
                if time.monotonic() + pause > deadline:
                    raise
                time.sleep(pause)
                pause = min(2 * pause, 1.0)
            else:
                if page is not None:
                    return page if page.count else None
        return None

    def ask_ahead(self) -> None:
        """Ask for the next page if there may be one; a failure is left for `next_page` to find."""
        if not self._done:
            try:
                self._ask()
            except (ServerUnreachableError, ServerBusyError):
                self.close()

    def close(self) -> None:
        if self._link is not None:
            self._link.close()
        self._link, self._tail = None, b""

    def _ask(self) -> BlockingLink:
        """Ask for the next page unless that was done; the link on which it comes."""
        if self._link is None:
            self._link = BlockingLink.open(self._address, timeout=_SILENCE_SECONDS)
            # A user who may not PING would leave us waiting for the end of every reply.
            self._link.command("marking the ends of replies", "PING", "x")
        if self._tail:
            return self._link
        secret = secrets.token_hex(16)
        wanted = pack("XRANGE", self._stream, f"({self._after}", self._upto, "COUNT", self._count)
        self._link.send(wanted + pack("PING", secret))
        self._tail = b"$%d\r\n%b\r\n" % (len(secret), secret.encode())
        return self._link

    def _receive(self, link: BlockingLink) -> Page | None:
        """The page that was asked for; None if it must be asked for again in smaller pieces."""
        filled = 0
        while not self._buffer.endswith(self._tail, 0, filled):
            filled = link.receive(self._buffer, filled)
            if filled > _TOO_MANY_BYTES and self._count > 1:
                self._count = max(1, self._count // 16)
                self.close()
                return None
        size, self._tail = filled - len(self._tail), b""
        doing = f"reading {self._stream!r} behind {self._after} from {link.place}"
        if self._buffer.startswith(b"-"):
            raised(parse_reply(bytes(self._buffer[:size]), doing), doing)
        page = Page(np.frombuffer(self._buffer, np.uint8, size), doing)
        if page.count:
            self._after = page.last_id
        self._done = page.count < self._count or self._after == self._upto
        self._adapt(size // max(1, page.count))
        return page

    def _adapt(self, entry_bytes: int) -> None:
        # No more than four times as many at once: entries may become longer.
        fitting = PAGE_BYTES // max(1, entry_bytes)
        self._count = max(1, min(fitting, 4 * self._count, _MOST_COUNT))
