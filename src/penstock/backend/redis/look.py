"""The check that goes out in front of each read, so that the group passes by no gap uncounted."""

import contextlib
from collections.abc import Collection, Sequence

import hiredis

from penstock.backend import keys
from penstock.backend.redis.link import Link, Reply, pack
from penstock.backend.redis.links import Links
from penstock.backend.redis.scripts import load
from penstock.backend.redis.standing import Standing
from penstock.errors import PenstockError

Entry = tuple[bytes, list[bytes]]
Part = tuple[bytes, list[Entry]]
"""A stream's key, and entries of it as the server sent them."""

Watched = Collection[tuple[str, str]]

_GONE = -1


class Look:
    """For reads of a topic by a group that somebody watches; any other read goes out alone.

    It shares the write and the connection of the read, so nothing can be trimmed between the two. Whatever it fails
    with, the read counts: a server that refuses both says so to the read.
    """

    def __init__(self, standing: Standing, streams: Sequence[str], watched: Watched) -> None:
        self._topic, self._group = standing.home, standing.group
        self._watched = watched if standing.home in streams else ()
        self._key = self._topic.encode()
        self._script = load("look")
        self._keys = [self._topic, keys.groups(self._topic)]
        self._field = keys.note_field(self._topic, self._group)
        self._last = b""
        self._has_looked = False
        self._known_by: Link | None = None

    async def prepare(self, links: Links) -> None:
        """Make sure that the server knows the script: behind a new connection there may be a new one."""
        is_known = self._known_by is not None and self._known_by is links.at_hand
        if (self._topic, self._group) in self._watched and not is_known:
            with contextlib.suppress(PenstockError):  # the read itself will tell, if there is anything to tell
                self.answered(await links.script("cannot look", self._script, self._keys, *self._args()))
                self._known_by = links.at_hand

    def request(self) -> bytes:
        """To be sent in front of the read; empty if there is nothing to look for."""
        if self._known_by is None:
            return b""
        return pack("EVALSHA", self._script.sha, len(self._keys), *self._keys, *self._args())

    def answered(self, reply: Reply) -> None:
        """What came of looking, before what was read behind it `passed`."""
        self._has_looked = not isinstance(reply, hiredis.ReplyError)
        if isinstance(reply, hiredis.ReplyError) and str(reply).startswith("NOSCRIPT"):
            self._known_by = None
        elif reply == _GONE:
            self._last = b""  # it is noted: once is enough

    def passed(self, parts: Sequence[Part]) -> None:
        """The group has read these: while anything as old is there, there is no gap, and the check ends with that.

        What was read before stays what is looked for if nobody looked: it may be gone.
        """
        for name, entries in parts:
            if name == self._key and (self._has_looked or not self._last):
                self._last = entries[-1][0]

    def _args(self) -> tuple[str, str, bytes]:
        return self._group, self._field, self._last
