"""The two ends of careful work: what is about to start is noted first, and what was not started goes back at once."""

import asyncio
import contextlib
import secrets
from collections.abc import Sequence

from penstock.backend import keys
from penstock.backend.entry import ClaimedMessage
from penstock.backend.redis.scripts import load
from penstock.backend.redis.seat import Seat
from penstock.backend.redis.settling import Settling
from penstock.backend.redis.verbs import check_names
from penstock.errors import ServerError, TopicError


class Stopping(Settling):
    """`stop_reading` and `mark_start` of the Redis backend."""

    async def stop_reading(self, stream: str | Sequence[str], group: str, consumer: str) -> int:
        streams = [stream] if isinstance(stream, str) else list(stream)
        for one in streams:
            check_names(one, group, consumer)
        seats = self._leave_seats(streams, group, consumer)
        return sum(await asyncio.gather(*(self._hand_back(seat) for seat in seats)))

    async def _hand_back(self, seat: Seat) -> int:
        handed_back = 0
        for name, entries in await seat.stop(self._links):
            ids = [raw_id.decode() for raw_id, _ in entries]
            who = (seat.names[name], seat.standing.group, seat.standing.consumer)
            # What cannot be handed back now comes back by its idle time, as it would without us.
            with contextlib.suppress(ServerError, TopicError):
                handed_back += len(ids) - len(await self.release(*who, ids))
        return handed_back

    async def mark_start(
        self, entry: ClaimedMessage, group: str, consumer: str, *, only_first: bool = False
    ) -> int | None:
        check_names(entry.stream, group, consumer)
        names = [entry.stream, keys.starts(keys.home(entry.stream), group)]
        field = keys.start_field(entry.stream, entry.id)
        args = (group, consumer, entry.id, field, secrets.token_hex(8), int(only_first))
        doing = f"cannot note that work on entry {entry.id} of {entry.stream!r} starts for group {group!r}"
        marks: int | None = await self._links.repeatable_script(doing, load("mark_start"), names, *args)
        return marks
