"""One consumer's place at several lanes: each read takes the most urgent first, and never more than was asked for.

`COUNT` counts for each stream, so one command over several of them can bring several times as much. Where that must not
happen a script reads one stream after the other. Only to wait for the first entry, with every lane empty, one command
blocks on all of them; it takes no more than one entry of each.
"""

from collections.abc import Sequence

import hiredis

from penstock.backend.entry import Helping
from penstock.backend.redis.bell import RedisBell
from penstock.backend.redis.failures import failure
from penstock.backend.redis.link import Link, Reply, pack
from penstock.backend.redis.links import COMMAND_SECONDS, Links, Word, raised
from penstock.backend.redis.look import Look, Part, Watched
from penstock.backend.redis.scripts import load
from penstock.backend.redis.seat import Seat, Wish
from penstock.backend.redis.standing import Standing


class LaneSeat(Seat):
    """A seat at the retry stream and the stream of each lane, most urgent lane first."""

    def __init__(
        self,
        lanes: Sequence[tuple[str, str]],
        standings: Sequence[Standing],
        watched: Watched,
        recalled: str,
        rate: str,
    ) -> None:
        streams = tuple(stream for lane in lanes for stream in lane)
        super().__init__(streams, standings[0], watched)
        self._lanes = lanes
        self._look = Look(standings, streams, watched)
        self._by_name = {
            stream.encode(): standing for standing, lane in zip(standings, lanes, strict=True) for stream in lane
        }
        self._standings = tuple(standings)
        self.recalled = recalled
        self._keys = (*streams, recalled, rate)
        self._script = load("read_lanes")
        self._known_on: Link | None = None
        self.bell: RedisBell | None = None
        self.wait_ms = 0
        """After a read that gave nothing because of a limit, or of all that was recalled: when to ask again."""

        self.last_ids: dict[str, str] = {}
        """After a read that gave nothing and might have: the last id the group was given of each stream."""

        self.has_recalled = False
        """After a read that waited: something was recalled, so what it gave must be looked at."""

    @property
    def standings(self) -> tuple[Standing, ...]:
        return self._standings

    def standing_of(self, name: bytes) -> Standing:
        return self._by_name[name]

    def open_streams(self, helping: Helping) -> list[str]:
        """Those of the lanes that are read at all."""
        return [stream for lane in sorted({lane for lane, _ in helping.steps}) for stream in self._lanes[lane]]

    def close(self) -> None:
        super().close()
        if self.bell is not None:
            self.bell.close()

    def _requests(self, wish: Wish) -> list[bytes]:
        helping = wish.helping
        if helping is None:
            raise TypeError("a seat at lanes is asked for a helping")
        who = (self.standing.group, self.standing.consumer)
        if wish.block_ms:
            streams = self.open_streams(helping)
            tail = ("STREAMS", *streams, *(">" for _ in streams))
            waiting = pack("XREADGROUP", "GROUP", *who, "COUNT", 1, "BLOCK", wish.block_ms, *tail)
            return [waiting, pack("EXISTS", self.recalled)]
        steps = [number for lane, most in helping.steps for number in (lane + 1, most)]
        words: tuple[Word, ...] = (*self._keys, *who, helping.most, *helping.throttle, *steps)
        return [pack("EVALSHA", self._script.sha, len(self._keys), *words)]

    async def _link_for(self, links: Links, wish: Wish) -> Link:
        link = await self._reader(links)  # also where it does not wait: large answers would hold up everybody's acks
        if link is not self._known_on:
            await link.call(pack("SCRIPT", "LOAD", self._script.text), within=COMMAND_SECONDS)
            self._known_on = link
        return link

    def _read(self, replies: list[Reply]) -> list[Part]:
        self.wait_ms, self.last_ids = 0, {}
        if len(replies) > 1:
            parts: list[Part] = raised(replies[0], self._doing) or []
            self.has_recalled = bool(replies[1])
            return parts
        self.has_recalled = False
        (reply,) = replies
        if isinstance(reply, hiredis.ReplyError) and str(reply).startswith("NOSCRIPT"):
            self._known_on = None
            return []
        found, fault, self.wait_ms, last = raised(reply, self._doing)
        if fault and not found:
            raise failure(hiredis.ReplyError(fault.decode()), self._doing)
        self.last_ids = {name: id.decode() for name, id in zip(self.names.values(), last, strict=False)}
        return list(found)

    def _found(self, replies: list[Reply]) -> list[Part]:
        if len(replies) > 1:
            return replies[0] if isinstance(replies[0], list) else []
        return list(replies[0][0]) if isinstance(replies[0], list) else []

    def _is_full(self, parts: list[Part], wish: Wish) -> bool:
        return sum(len(entries) for _, entries in parts) >= wish.most
