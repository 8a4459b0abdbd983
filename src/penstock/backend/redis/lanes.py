"""Reading several lanes, most urgent first, and letting go of what is done in them."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from penstock.backend import keys
from penstock.backend.entry import Helping, Throttle
from penstock.backend.redis.following import Following
from penstock.backend.redis.lane_seat import LaneSeat
from penstock.backend.redis.links import Word
from penstock.backend.redis.look import Part
from penstock.backend.redis.reading import LONGEST_BLOCK_MS, Reading
from penstock.backend.redis.scripts import load
from penstock.backend.redis.seat import Batch, Wish
from penstock.backend.redis.verbs import check_names, entry_id, milliseconds, whole_number
from penstock.backend.sheaf import Sheaf
from penstock.errors import ConfigurationError

_IDS_PER_CALL = 500


class Lanes(Reading, Following):
    """`read_lanes` and `drop` of the Redis backend."""

    async def read_lanes(
        self,
        lanes: Sequence[str],
        group: str,
        consumer: str,
        helping: Helping,
        timeout: timedelta,
        *,
        ahead: Helping | None = None,
    ) -> list[Sheaf]:
        wish = _wish(helping, len(lanes))
        next_wish = None if ahead is None else _wish(ahead, len(lanes))
        left_ms = milliseconds("timeout", timeout)
        seat = self._lane_seat(lanes, group, consumer)
        clock = asyncio.get_running_loop().time
        deadline = clock() + left_ms / 1000
        batch = await seat.fetch(self._links, wish, ahead=next_wish, whole=True)
        while not batch.parts and left_ms > 0 and not seat.is_stopped:
            batch = await self._waited(seat, wish, min(left_ms, LONGEST_BLOCK_MS))
            left_ms = int((deadline - clock()) * 1000)
        return self._bound(seat, batch)

    async def _waited(self, seat: LaneSeat, wish: Wish, wait_ms: int) -> Batch:
        """What comes within that time, or nothing."""
        helping = wish.helping
        if helping is None or (helping.throttle == Throttle() and not seat.wait_ms):
            batch = await seat.fetch(self._links, wish._replace(block_ms=wait_ms), whole=True)
            return await self._screened(seat, batch) if batch.parts and seat.has_recalled else batch
        # A read that waits counts nothing, so where something is to be counted we only wait until there is a reason to.
        if seat.wait_ms:
            await asyncio.sleep(min(seat.wait_ms, wait_ms) / 1000)
        elif seat.last_ids:
            seat.bell = seat.bell or self.bell()
            open_streams = set(seat.open_streams(helping))
            places = {stream: id for stream, id in seat.last_ids.items() if stream in open_streams}
            await seat.bell.rings(places, timedelta(milliseconds=wait_ms))
        return await seat.fetch(self._links, wish, whole=True)

    async def _screened(self, seat: LaneSeat, batch: Batch) -> Batch:
        parts: list[Part] = []
        group, script = seat.standing.group, load("screen")
        for name, entries in batch.parts:
            stream, ids = seat.names[name], [id for id, _ in entries]
            doing = f"cannot look for what was recalled of {stream!r}"
            args: list[Word] = [group, int(keys.is_retry(stream)), *ids]
            recalled = set(await self._links.repeatable_script(doing, script, [seat.recalled, stream], *args))
            if rest := [entry for entry in entries if entry[0] not in recalled]:
                parts.append((name, rest))
        return Batch(parts, batch.fences)

    async def drop(self, stream: str, group: str, entry_ids: Sequence[str]) -> int:
        check_names(stream, group)
        ids = [entry_id("an id to drop", one) for one in entry_ids]
        names = [stream, keys.cursors(keys.home(stream))]
        doing = f"cannot drop settled entries of {stream!r}"
        dropped = 0
        for start in range(0, len(ids), _IDS_PER_CALL):
            some = ids[start : start + _IDS_PER_CALL]
            dropped += await self._links.repeatable_script(doing, load("drop"), names, group, keys.OWN_GROUP, *some)
        return dropped

    def _lane_seat(self, lanes: Sequence[str], group: str, consumer: str) -> LaneSeat:
        name = ("lanes", *lanes)
        seat = self._seats.get((name, group, consumer))
        if not isinstance(seat, LaneSeat):
            for lane in lanes:
                check_names(lane, group, consumer)
            standings = [self._standing(lane, group, consumer) for lane in lanes]
            pairs = [(keys.retry(lane, group), lane) for lane in lanes]
            home = self._trail.home if self._trail is not None else lanes[0]
            seat = LaneSeat(pairs, standings, self._watched, keys.recalled(home), keys.rate(home))
            self._seats[name, group, consumer] = seat
        return seat


def _wish(helping: Helping, lanes: int) -> Wish:
    whole_number("count", helping.most)
    for lane, most in helping.steps:
        if most < 1 or not 0 <= lane < lanes:
            raise ConfigurationError(f"a helping takes at least one of a lane from 0 to {lanes - 1}, not {helping}")
    return Wish(helping.most, 0, helping)
