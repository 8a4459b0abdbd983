"""How far a replay is, as the server knows it: what was chosen, and of each day the parts that were begun and are done.

What was chosen is noted before anything is written: what comes to the lake later is no part of the replay, since that
may be what the replay itself has brought to a topic, archived again.

A part is one batch of the sink, so the server has to know the ids of one part only, and writes none of it twice. Where
it ends is noted before its first message is written: if the replay is cut short, the same messages are that part again,
however the lake has grown since.
"""

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from penstock.backend import keys
from penstock.backend.redis.blocking import BlockingLink
from penstock.errors import ConfigurationError
from penstock.spark.pipelines.chosen import BEGINNING, Day, Place
from penstock.spark.sink.delivery import Attempt, batch_done

_SELECTION, _DAYS = "selection", "days"


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

    def check_selection(self, link: BlockingLink, sql: str, *, note: bool = True) -> None:
        """Under one id another choice would be taken for done, or come beside the first one.

        It is noted, unless `note` is False.
        """
        digest = hashlib.sha256(sql.encode()).hexdigest().encode()
        noted = self._note_first(link, _SELECTION, digest) if note else self._read(link, _SELECTION)
        if noted not in (digest, None):
            raise ConfigurationError(
                f"replay {self.replay!r} to {self.stream!r} was begun with another selection: give the one that it had,"
                " to go on, or another id, for a new replay"
            )

    def first_chosen(self, link: BlockingLink, days: Sequence[Day]) -> list[Day]:
        """What was chosen when the replay was begun; that is `days`, if it is now."""
        return msgspec.json.decode(self._note_first(link, _DAYS, msgspec.json.encode(days)), type=list[Day])

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
            raise self._forgotten(f"with {day.topic!r} of {day.date}")
        return Reached(last + 1, before.end, before.before + rows, self._begun(link, day, last + 1))

    def begin(self, link: BlockingLink, day: Day, part: int, begun: Begun) -> None:
        """Before anything of the part is written."""
        noted = msgspec.json.encode(begun)
        if self._note(link, _field(day, part), noted) != noted:
            raise ConfigurationError(
                f"replay {self.replay!r} to {self.stream!r} is run twice at a time, from a lake that has changed in"
                " between: run it once"
            )

    def brought(self, link: BlockingLink, day: Day, part: int) -> int:
        """How many messages of a part that is not done are in the stream, by whichever run."""
        doing = f"looking what replay {self.replay!r} brought to {self.stream!r}"
        return int(link.command(doing, "SCARD", keys.written(self.stream, self._query(day), part)))

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

    def _note_first(self, link: BlockingLink, field: str, value: bytes) -> bytes:
        """As `_note`, but what is known is not known for longer.

        The ids of a part are forgotten a week after it was written to: what is noted of it must not outlive them.
        """
        return self._note(link, field, value, "NX")

    def _note(self, link: BlockingLink, field: str, value: bytes, *when: str) -> bytes:
        """What is noted there, `value` if nothing was; `when` to be remembered for longer, PEXPIRE is told."""
        doing = f"noting replay {self.replay!r} of {self.stream!r}"
        link.command(doing, "HSETNX", self._key, field, value)
        link.command(doing, "PEXPIRE", self._key, self.remember_ms, *when)
        held = self._read(link, field)
        if held is None:
            raise self._forgotten("a moment ago")
        return held

    def _forgotten(self, where: str) -> ConfigurationError:
        return ConfigurationError(
            f"the server has forgotten how far replay {self.replay!r} to {self.stream!r} was {where}: it knows that for"
            " a week; see what has arrived, and replay the rest under another id"
        )


def _field(day: Day, part: int | None = None) -> str:
    return f"{day.topic}/{day.date}" if part is None else f"{day.topic}/{day.date}/{part}"
