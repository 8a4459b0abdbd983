"""How far a replay is, as the server knows it: what was chosen, and of each day the parts that were begun and are done.

A part is one batch of the sink, so the server has to know the ids of one part only, and writes none of it twice. Where
it ends is noted before its first message is written: if the replay is cut short, the same messages are that part again,
however the lake has grown since.
"""

import hashlib
import secrets
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from penstock.backend import keys
from penstock.backend.redis.blocking import BlockingLink
from penstock.errors import ConfigurationError
from penstock.spark.pipelines.chosen import BEGINNING, Day, Place
from penstock.spark.sink.delivery import Attempt, batch_done

_SELECTION = "selection"


class Begun(msgspec.Struct, array_like=True):
    """A part of a day."""

    before: int
    """Messages that the parts before it brought."""
    end: Place


class Reached(NamedTuple):
    """How far a day is."""

    part: int = 0
    """The next to be done."""
    after: Place = BEGINNING
    """Where the one before it ended."""
    rows: int = 0
    """How many all before it brought."""
    begun: Begun | None = None
    is_finished: bool = False


@dataclass(frozen=True)
class Ledger:
    """Of one replay to one stream."""

    replay: str
    stream: str
    remember_ms: int

    def check_selection(self, link: BlockingLink, sql: str) -> None:
        """Under one id another choice would be taken for done, or come beside the first one."""
        # Not for longer if it is known: the ids of a part are forgotten a week after it was written to, and what is
        # noted of it must not outlive them.
        if not self._note(link, _SELECTION, hashlib.sha256(sql.encode()).hexdigest().encode(), "NX"):
            raise ConfigurationError(
                f"replay {self.replay!r} to {self.stream!r} was begun with another selection: give the one that it had,"
                " to go on, or another id, for a new replay"
            )

    def reached(self, link: BlockingLink, day: Day) -> Reached:
        finished = self._read(link, _field(day))
        if finished is not None:
            return Reached(rows=int(finished), is_finished=True)
        second = self._begun(link, day, 1)  # before `done` is read: it is noted when the first is done
        done = batch_done(link, self.stream, self._query(day))
        if done is None and second is None:
            return Reached(begun=self._begun(link, day, 0))
        last, rows = done or (0, 0)
        before = self._begun(link, day, last)
        if done is None or before is None:
            raise ConfigurationError(
                f"the server has forgotten how far replay {self.replay!r} to {self.stream!r} was with {day.topic!r} of"
                f" {day.date}: it knows that for a week; see what has arrived, and replay the rest under another id"
            )
        return Reached(last + 1, before.end, before.before + rows, self._begun(link, day, last + 1))

    def begin(self, link: BlockingLink, day: Day, part: int, begun: Begun) -> None:
        """Before anything of the part is written."""
        if not self._note(link, _field(day, part), msgspec.json.encode(begun)):
            raise ConfigurationError(
                f"replay {self.replay!r} to {self.stream!r} is run twice at a time, from a lake that has changed in"
                " between: run it once"
            )

    def finish(self, link: BlockingLink, day: Day, rows: int) -> None:
        """After all parts of the day are done."""
        self._note(link, _field(day), b"%d" % rows)

    def attempt(self, day: Day, part: int) -> Attempt:
        return Attempt(self._query(day), part, 0, secrets.token_hex(8), self.remember_ms)

    def _query(self, day: Day) -> str:
        return f"replay/{self.replay}/{day.topic}/{day.date}"

    def _begun(self, link: BlockingLink, day: Day, part: int) -> Begun | None:
        noted = self._read(link, _field(day, part))
        return None if noted is None else msgspec.json.decode(noted, type=Begun)

    @property
    def _key(self) -> str:
        return keys.fence(self.stream, f"replay/{self.replay}")

    def _read(self, link: BlockingLink, field: str) -> bytes | None:
        doing = f"looking how far replay {self.replay!r} to {self.stream!r} is"
        held: bytes | None = link.command(doing, "HGET", self._key, field)
        return held

    def _note(self, link: BlockingLink, field: str, value: bytes, *when: str) -> bool:
        """False if something else was noted there; `when` it is to be remembered for longer, PEXPIRE is told."""
        doing = f"noting replay {self.replay!r} of {self.stream!r}"
        link.command(doing, "HSETNX", self._key, field, value)
        link.command(doing, "PEXPIRE", self._key, self.remember_ms, *when)
        return self._read(link, field) == value


def _field(day: Day, part: int | None = None) -> str:
    return f"{day.topic}/{day.date}" if part is None else f"{day.topic}/{day.date}/{part}"
