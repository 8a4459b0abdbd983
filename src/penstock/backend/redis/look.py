"""What goes out in front of each read, and behind some, so that the group passes by no gap in silence."""

import contextlib
from collections.abc import Mapping, Sequence

import hiredis

from penstock.backend import keys
from penstock.backend.redis.link import Link, Reply, pack
from penstock.backend.redis.links import Links, Word
from penstock.backend.redis.scripts import load
from penstock.backend.redis.standing import Standing
from penstock.errors import PenstockError

Entry = tuple[bytes, list[bytes]]
Part = tuple[bytes, list[Entry]]
"""A stream's key, and entries of it as the server sent them."""

Watched = Mapping[tuple[str, str], bool]
"""Topics and groups that somebody watches, and whether it is known how much of the topic the group has read."""

_GONE, _FAILED = -1, -2


class _Spot:
    """One topic that is looked at."""

    __slots__ = ("field", "has_looked", "key", "keys", "last", "place")

    def __init__(self, standing: Standing) -> None:
        topic = standing.home
        self.place = (topic, standing.group)
        self.key = topic.encode()
        self.keys = (topic, keys.groups(topic))
        self.field = keys.note_field(topic, standing.group)
        self.last = b""
        self.has_looked = False


class Look:
    """For reads of topics by a group that somebody watches; any other read goes out alone.

    It shares the write and the connection of the read, so nothing can be trimmed between the two. Whatever it fails
    with, the read counts: a server that refuses both says so to the read.
    """

    def __init__(self, standings: Sequence[Standing], streams: Sequence[str], watched: Watched) -> None:
        self._watched = watched
        self._spots = [_Spot(standing) for standing in standings if standing.home in streams]
        self._group = standings[0].group
        self._script = load("look")
        self._known_by: Link | None = None
        self._known: list[_Spot] = []
        """Those that somebody watches, as far as the server was asked."""

        self._keys: list[str] = []

    async def prepare(self, links: Links) -> None:
        """Make sure that the server knows the script: behind a new connection there may be a new one."""
        is_known = self._known_by is not None and self._known_by is links.at_hand
        if is_known and len(self._known) == len(self._spots):
            return
        watched = [spot for spot in self._spots if spot.place in self._watched]
        if watched and not (is_known and watched == self._known):
            self._known, self._keys = watched, [name for spot in watched for name in spot.keys]
            with contextlib.suppress(PenstockError):  # the read itself will tell, if there is anything to tell
                self.answered(await links.script("cannot look", self._script, self._keys, *self._args()))
                self._known_by = links.at_hand

    def in_front(self) -> list[bytes]:
        """To be sent in front of the read; empty if there is nothing to look for."""
        if self._known_by is None:
            return []
        return [pack("EVALSHA", self._script.sha, len(self._keys), *self._keys, *self._args())]

    def behind(self) -> list[bytes]:
        """To be sent behind the read: with it, what was to come next is known where nothing can be counted."""
        spots = [spot for spot in self._known if not self._watched.get(spot.place, True)]
        if not spots:
            return []
        names = [name for spot in spots for name in spot.keys]
        fields = (spot.field for spot in spots)
        return [pack("EVAL", load("note_next").text, len(names), *names, self._group, *fields)]

    def answered(self, reply: Reply) -> None:
        """What came of looking, before what was read behind it `passed`."""
        if isinstance(reply, hiredis.ReplyError):
            if str(reply).startswith("NOSCRIPT"):
                self._known_by = None
            reply = [_FAILED] * len(self._known)
        for spot, count in zip(self._known, reply, strict=True):
            spot.has_looked = count != _FAILED
            if count == _GONE:
                spot.last = b""  # it is noted: once is enough

    def passed(self, parts: Sequence[Part]) -> None:
        """The group has read these: while anything as old is there, there is no gap, and the check ends with that.

        What was read before stays what is looked for if nobody looked: it may be gone.
        """
        for name, entries in parts:
            for spot in self._spots:
                if name == spot.key and (spot.has_looked or not spot.last):
                    spot.last = entries[-1][0]

    def _args(self) -> list[Word]:
        args: list[Word] = [self._group]
        for spot in self._known:
            args += (spot.field, spot.last)
        return args
