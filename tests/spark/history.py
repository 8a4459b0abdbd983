"""Random histories of a stream, and what a reader of it must be told: kept by names, not by the server's numbers."""

import random
from dataclasses import dataclass, field

import redis

from penstock.backend.survey import Position, Survey, Verdict, judge
from penstock.spark.options.boundaries import FIRST_ID
from penstock.spark.source.cursors import Cursors

_CHANCES = {
    "add": 40, "read": 20, "trim": 14, "delete": 14, "reload": 6, "keep": 10, "drop": 2, "swap": 2, "fall_back": 20,
}  # fmt: skip

NOWHERE = Position(FIRST_ID, 0, "")


@dataclass
class History:
    """One stream whose entries are `1-0`, `2-0`, …, and one reader of it. No id is ever used twice."""

    admin: "redis.Redis"
    cursors: Cursors
    stream: str
    dice: random.Random
    next: int = 1
    added: int = 0
    """How many the stream was ever given, as far as the server knows."""

    there: list[int] = field(default_factory=list)
    wanted: set[int] = field(default_factory=set)
    """What the reader is still to get."""

    at: int = 0
    up_to_it: int = 0
    """How many the stream was ever given up to there; what was gone when the reader came counts."""

    position: Position = NOWHERE
    fate: str = ""
    """What is sure to have become of the reader's stream, whatever its entries."""

    kept: list[tuple[bytes, list[int], int, int]] = field(default_factory=list)
    """Older states, each with the highest entry it knows and how many the stream had been given."""

    def step(self) -> None:
        name = self.dice.choices(list(_CHANCES), list(_CHANCES.values()))[0]
        getattr(self, name)()

    def add(self) -> None:
        for _ in range(self.dice.randint(1, 4)):
            self.admin.xadd(self.stream, {"payload": "x"}, f"{self.next}-0")
            self.there.append(self.next)
            self.wanted.add(self.next)
            self.next += 1
            self.added += 1

    def trim(self) -> None:
        keep = self.dice.randint(0, len(self.there))
        self.admin.xtrim(self.stream, maxlen=keep, approximate=False)
        self.there = self.there[len(self.there) - keep :]

    def delete(self) -> None:
        for one in self.dice.sample(self.there, min(len(self.there), self.dice.randint(1, 3))):
            self.admin.xdel(self.stream, f"{one}-0")
            self.there.remove(one)

    def reload(self) -> None:
        if dump := self.admin.dump(self.stream):
            self.admin.restore(self.stream, 0, dump, replace=True)

    def keep(self) -> None:
        if dump := self.admin.dump(self.stream):
            self.kept.append((dump, list(self.there), self.next - 1, self.added))

    def drop(self) -> None:
        self.admin.delete(self.stream)
        self._becomes_another([])

    def swap(self) -> None:
        """Another stream takes the name, with entries of its own."""
        other = list(range(self.next, self.next + self.dice.randint(1, 5)))
        self.next = other[-1] + 1
        for one in other:
            self.admin.xadd(self.stream + ":other", {"payload": "x"}, f"{one}-0")
        self.admin.rename(self.stream + ":other", self.stream)
        self._becomes_another(other)

    def fall_back(self) -> None:
        """As after a failover to a replica that had not got everything the reader was given."""
        older = [one for one in self.kept if one[2] < self.at]
        if older and not self.fate:
            dump, there, _, self.added = self.dice.choice(older)
            self.admin.restore(self.stream, 0, dump, replace=True)
            self.there, self.wanted, self.fate = list(there), set(), "rolled back"
            self.kept = [one for one in self.kept if one[3] <= self.added]

    def read(self) -> None:
        """The reader takes some of what is there; what it lost is over with that."""
        survey = self.survey()
        self.fate, self.wanted = "", set(self.there)
        if survey is None:
            self.position, self.at, self.up_to_it = NOWHERE, 0, 0
            return
        if self.position.epoch != survey.epoch:
            self.at = 0
        behind = [one for one in self.there if one > self.at]
        taken = behind[: self.dice.randint(0, len(behind))]
        # It stands at an entry that was there, as the source does; "0-0" before any.
        self.at = max(taken or [one for one in self.there if one <= self.at], default=0)
        self.wanted = {one for one in self.there if one > self.at}
        id = f"{self.at}-0" if self.at else FIRST_ID
        self.up_to_it = self.added - len(self.wanted)
        self.position = Position(id, survey.added - len(self.wanted), survey.epoch)

    def survey(self) -> Survey | None:
        return self.cursors.survey({self.stream: self.position.id})[self.stream]

    def verdict(self) -> Verdict:
        survey = self.survey()
        found = judge(self.position, survey)
        if found.kind == "uncounted":
            found = judge(self.position, survey, len(self.admin.xrange(self.stream, f"({self.position.id}")))
        return found

    def truth(self) -> tuple[str, int, int]:
        """What became of the reader's stream ('' if nothing), how many entries wait for it, how many it lost."""
        if self.fate == "recreated" and not self.admin.exists(self.stream):
            return "gone", 0, 0
        rows, lost = len(self.wanted & set(self.there)), len(self.wanted - set(self.there))
        if self.fate == "rolled back" and (hidden := lost - self._read_and_gone()) >= 0:
            return "", rows, hidden  # the limit that loss.py names: what came and went unread makes up for it
        return self.fate, rows, lost

    def _read_and_gone(self) -> int:
        """How many that were read went when the server fell back."""
        return self.up_to_it + len(self.wanted) - self.added

    def _becomes_another(self, there: list[int]) -> None:
        self.there, self.wanted, self.added = list(there), set(there), len(there)
        self.kept.clear()
        self.fate = "recreated" if self.position.epoch else ""
