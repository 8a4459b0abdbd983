"""The past of a topic, page by page, from any place towards its beginning."""

from penstock.backend.base import StreamBackend
from penstock.backend.entry import Stored
from penstock.backend.facts import position as order
from penstock.continuity.place import Place
from penstock.errors import ConfigurationError, CursorNotFoundError
from penstock.message.wire import Wire
from penstock.tail.items import Tailed, Unreadable
from penstock.tail.opening import Found, opened
from penstock.tail.places import Sought, Spot, Start
from penstock.tail.search import Search

_BYTES = 8 * 1024 * 1024
_FIRST_PIECE = 10


class Pages:
    """Reads one topic backwards."""

    def __init__(self, backend: StreamBackend, topic: str, wire: Wire, search: Search) -> None:
        self._backend = backend
        self._topic = topic
        self._wire = wire
        self._search = search

    async def before(self, start: Start | Place, count: int) -> list[Tailed | Unreadable]:
        """Up to `count` entries, oldest first, before a spot or a message; or up to a place and with its entry.

        Fewer come if they are large, about 8 MiB at a time: only none means that there are no more.
        """
        if isinstance(start, Place):
            ms, number = order(start.id)
            id, epoch = f"{ms}-{min(number + 1, 2**64 - 1)}", start.epoch
        elif isinstance(start, Spot):
            id, epoch = start.id, start.epoch
        elif isinstance(start, Sought):
            found = await self._search.find(start.message_id)
            id, epoch = found.id, found.epoch
        else:
            raise ConfigurationError(
                f"a page ends before a position, an entry id or a message's UUID, not before {start!r}"
            )
        entries = await self._read(id, count)
        now = await self._epoch(id)
        if epoch and now != epoch:
            raise CursorNotFoundError(
                self._topic, f"{epoch}.{id}", "the stream of that position is gone, and this is another of its name"
            )
        return [opened(self._wire, self._topic, Found(one, Place(one.id, now)), one) for one in entries]

    async def _read(self, id: str, count: int) -> list[Stored]:
        found: list[Stored] = []
        size, piece = 0, min(count, _FIRST_PIECE)
        while len(found) < count and size < _BYTES:
            entries = await self._backend.read_before(self._topic, found[-1].id if found else id, piece)
            found += entries
            size += sum(sum(map(len, entry.fields)) for entry in entries)
            if len(entries) < piece:
                break
            # By what they weigh so far: a hundred entries of a MiB each must not come in one reply.
            piece = max(1, min(count - len(found), _BYTES // 8 * len(found) // max(size, 1)))
        return found[::-1]

    async def _epoch(self, id: str) -> str:
        """Asked for after the read: if it is that of the place, what was read is of the same stream."""
        survey = (await self._backend.glimpse(self._topic, id, 1)).survey
        return "" if survey is None else survey.epoch
