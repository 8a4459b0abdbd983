"""The driver's connection: opened when first needed, and again after it broke."""

import re
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from penstock.backend import keys
from penstock.backend.address import Address
from penstock.backend.redis.blocking import BlockingLink
from penstock.backend.redis.links import Word, raised
from penstock.backend.redis.scripts import Script
from penstock.errors import GroupMissingError, ServerBusyError, ServerUnreachableError

T = TypeVar("T")

_PATIENCE_SECONDS = 10.0
_PAUSE_SECONDS = 0.2
_TOPICS_PER_CALL = 1000


class Line:
    """Runs what can safely run twice: a call whose connection broke is repeated on a new one, for some seconds."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._link: BlockingLink | None = None

    def command(self, doing: str, *words: Word) -> Any:
        return self._patiently(lambda link: link.command(doing, *words))

    def script(self, doing: str, script: Script, names: Sequence[str], *args: Word) -> Any:
        return self._patiently(lambda link: link.script(doing, script, names, *args))

    def pipeline(self, doing: str, requests: Sequence[bytes]) -> list[Any]:
        """Replies to packed requests; an error reply is raised."""
        return [raised(reply, doing) for reply in self._patiently(lambda link: link.pipeline(doing, requests))]

    def topics(self, pattern: "re.Pattern[str]") -> list[str]:
        """Registered topics whose whole name fits."""
        found: set[str] = set()
        cursor = b"0"
        while True:
            words = (keys.TOPICS, cursor, "COUNT", _TOPICS_PER_CALL)
            cursor, names = self.command("cannot list the topics", "SSCAN", *words)
            found.update(name for raw in names if pattern.fullmatch(name := raw.decode()))
            if cursor == b"0":
                return sorted(found)

    def facts(self, stream: str) -> dict[str, Any] | None:
        """What XINFO STREAM says; None if there is no such stream."""
        try:
            return pairs(self.command(f"cannot look at {stream!r}", "XINFO", "STREAM", stream))
        except GroupMissingError:
            return None

    def groups(self, stream: str) -> list[dict[str, Any]]:
        """What XINFO GROUPS says of a stream that is there, of all groups but Penstock's own."""
        rows = self.command(f"cannot list the groups of {stream!r}", "XINFO", "GROUPS", stream)
        return [found for row in rows if (found := pairs(row))["name"] != keys.OWN_GROUP]

    def group(self, stream: str, name: str) -> dict[str, Any] | None:
        """What XINFO GROUPS says of one group; None if there is no such stream or group."""
        if self.facts(stream) is None:
            return None
        return next((found for found in self.groups(stream) if found["name"] == name), None)

    def close(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None

    def _patiently(self, call: Callable[[BlockingLink], T]) -> T:
        had_one = self._link is not None
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                if self._link is None:
                    self._link = BlockingLink.open(self._address)
                return call(self._link)
            except (ServerUnreachableError, ServerBusyError) as error:
                self.close()
                # The first connection fails at once: a wrong address is likelier than a server on its way up.
                if time.monotonic() > deadline or not (had_one or isinstance(error, ServerBusyError)):
                    raise
            time.sleep(_PAUSE_SECONDS)


def pairs(row: Sequence[Any]) -> dict[str, Any]:
    """A row of facts by their names; texts as str."""
    return {name.decode(): _text(value) for name, value in zip(row[::2], row[1::2], strict=True)}


def _text(value: Any) -> Any:
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else value
