"""The books of a run: what was published, by the journals outside the server, against what became of it everywhere."""

import os
import signal
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tests.fault import keeping
from tests.fault.closing import look, rules_of
from tests.fault.history import History
from tests.fault.state import State
from tests.spark import gallows
from tests.spark.reconciliation.daemon import ENDED
from tests.spark.reconciliation.readers import Contents
from tests.spark.reconciliation.scene import Reconciliation
from tests.spark.reconciliation.worker import REPAIRED

SOURCE = "source"
"""The driver's process that plans batches: only the JVM is told how it ended, and keeps that to itself."""

_OF_EVERY_RUN = (
    keeping.i1_nothing_is_lost,
    keeping.i2_nothing_is_invented,
    keeping.i6_everything_is_settled,
    keeping.i9_loss_is_loud,
)


@dataclass(frozen=True)
class Books:
    """Made when all is settled and everybody has left. `replayed` is the group whose dead letters were replayed."""

    scene: Reconciliation
    replayed: str
    repeated: list[str]
    """Ids of messages whose producer sent them again after an unknown outcome."""

    @cached_property
    def history(self) -> History:
        return self.scene.history()

    @cached_property
    def state(self) -> State:
        return look(self.scene)

    @cached_property
    def published(self) -> set[str]:
        """The ids of what was acknowledged. Producers do not give up before that."""
        acked = self.history.with_verdict("acked")
        agree("acknowledged", acked, self.history.intents)
        return acked

    def of_fate(self, *fates: str) -> set[str]:
        return {id for id in self.published if self.history.intents[id].do in fates}

    def check_server(self) -> None:
        """Published = handled + dead, for each group, message by message."""
        rules = rules_of(self.scene, copies=True)
        violations = [text for check in _OF_EVERY_RUN for text in check(self.history, self.state, rules)]
        assert not violations, "\n".join(violations[:10])
        dead_now = {(letter.group, letter.id) for letter in self.scene.dead_letters()}
        for group in self.scene.groups:
            handled = {id for (of, id), runs in self.history.runs.items() if of == group and any(r.ended for r in runs)}
            dead = {id for of, id in dead_now if of == group}
            agree(f"handled by {group}, or dead", handled | dead, self.published)
            agree(f"handled by {group}, and dead", handled & dead, ())
            agree(f"given up by {group}", dead, self.of_fate("raise", *([] if group == self.replayed else [REPAIRED])))
        agree("dead letters", ((letter.group, letter.id) for letter in self.scene.letters), self._deaths())

    def _deaths(self) -> Iterator[tuple[str, str]]:
        for group in self.scene.groups:
            for id in self.of_fate("raise", REPAIRED):
                yield group, id
        for id in self.of_fate("raise"):
            yield self.replayed, id  # a second time

    def check_brought(self, brought: "Counter[tuple[str, str]]") -> None:
        """Before it was compacted, the lake had every entry once, and so twice what its producer sent twice."""
        agree("raw, as archived", brought.elements(), ((entry.id, entry.tag) for entry in self.state.entries))

    def check_lake(self, reader: str, contents: Contents) -> None:
        """Every message once, with its first entry, for the lake was compacted at last; every dead letter once."""
        entries = [(entry.id, entry.tag) for entry in self.state.entries]
        first = {id: entry for entry, id in reversed(entries)}
        agree(f"messages on the topic, by {reader}", first, self.published)
        kept = [(entry, id) for id, entry in first.items()]
        agree(f"raw, by {reader}", contents.raw.elements(), kept)
        agree(f"messages, by {reader}", contents.messages.elements(), kept)
        agree(f"dead, by {reader}", contents.dead.elements(), self.scene.letters)

    def check_repeated(self) -> None:
        """Only what its producer sent again is there again."""
        copies = Counter(entry.tag for entry in self.state.entries)
        agree("more than one entry", (id for id, count in copies.items() if count > 1), self.repeated)

    def replays_seen(self, replay: str) -> "dict[str, list[str]]":
        """Which messages each group has handled in this replay: each as often as it was brought to the group.

        One that is handled again since its worker was killed is the same entry of the group's retries.
        """
        lines = [line for line in self.history.of_kind["seen"] if line.facts.get("replay") == replay]
        entries = {(line.group, line.id, line.facts["entry"]) for line in lines}
        return {group: [id for of, id, _ in entries if of == group] for group in self.scene.groups}


def agree(what: str, found: "Iterable[object]", expected: "Iterable[object]") -> None:
    """Both are the same, each as often; else it is told what differs."""
    there, due = Counter(iter(found)), Counter(iter(expected))
    missing, unexpected = list((due - there).elements()), list((there - due).elements())
    assert there == due, (
        f"{what}: {len(missing)} of {due.total()} are missing, like {missing[:3]};"
        f" {len(unexpected)} are too many, like {unexpected[:3]}"
    )


def proved_kills(scene: Reconciliation) -> "dict[str, Counter[str]]":
    """By kind of victim, how often one was killed at which step; each was seen dead, by its parent where it has one."""
    ends = Counter(pid for pid, code in _ends(scene) if code == -signal.SIGKILL)
    proved: dict[str, Counter[str]] = {}
    for kill in gallows.carried_out(scene.directory):
        *_, watched = kill.pids
        assert not any(_lives(pid, kill.at) for pid in kill.pids), f"{kill} lives on"
        if kill.victim != SOURCE:
            assert ends[watched] > 0, f"nobody saw the end of {kill}"
            ends[watched] -= 1  # ids come again
        proved.setdefault(kill.victim, Counter())[kill.step] += 1
    return proved


def _ends(scene: Reconciliation) -> Iterator[tuple[int, int]]:
    yield from scene.ends
    for line in scene.lines("died"):
        yield line.pid, line.facts["code"]
    for file in (scene.directory / ENDED).iterdir():
        pid, code, _ = file.name.split(" ")
        yield int(pid), int(code)


def _lives(pid: int, killed: float) -> bool:
    """Whether this is a process that was there before it was killed, and not another that has its id now."""
    try:
        state, *facts = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return False
    started = int(facts[18]) / os.sysconf("SC_CLK_TCK")
    return state != "Z" and started < time.clock_gettime(time.CLOCK_BOOTTIME) - (time.time() - killed)
