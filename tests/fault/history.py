"""The journals of a run, put in order: what was promised about each message, and who did what to it when."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from tests.fault.journal import Line

Verdict = Literal["acked", "unknown", "failed"]

CATCHING_UP = 0.5
"""Seconds after a stall in which a process may begin what it was about to begin, and others have by then."""


class Run(NamedTuple):
    """One time a handler was called."""

    start: Line
    finish: Line | None
    """Its `end` or `raised`; None if the process never got that far."""

    @property
    def ended(self) -> bool:
        return self.finish is not None and self.finish.what == "end"


class Span(NamedTuple):
    begin: float
    end: float

    def meets(self, begin: float, end: float) -> bool:
        return self.begin <= end and begin <= self.end

    def within(self, begin: float, end: float) -> float:
        """How many seconds of it are in there."""
        return max(0.0, min(self.end, end) - max(self.begin, begin))


class History:
    def __init__(self, lines: Iterable[Line]) -> None:
        self.lines = sorted(lines, key=lambda line: line.at)
        self.of_kind: dict[str, list[Line]] = defaultdict(list)
        for line in self.lines:
            self.of_kind[line.what].append(line)
        self.intents = {line.tag: line for line in self.of_kind["intent"]}
        self.acks: dict[str, list[Line]] = defaultdict(list)
        for line in self.of_kind["acked"]:
            self.acks[line.tag].append(line)
        self.tag_of_entry = {line.entry: line.tag for line in self.of_kind["acked"]}
        self.verdicts = self._verdicts()
        self.runs = self._runs()
        self.faults = list(self._spans("fault", "healed"))
        self.deaths = {line.pid: line.at for line in self.of_kind["died"]}
        self.troubled: dict[int, list[Span]] = defaultdict(list)
        """When a process was frozen, or cut off from the server without knowing it."""
        for begins, ends in (("frozen", "thawed"), ("silent", "ended")):
            for pid in {line.pid for line in self.of_kind[begins]}:
                self.troubled[pid] += self._spans(begins, ends, pid)
        self._stalls = [(line.pid, Span(line.facts["since"], line.at)) for line in self.of_kind["stalled"]]
        self._workers = {line.pid for line in self.of_kind["spawned"]}

    def events(self, *names: str) -> list[Line]:
        return [line for line in self.of_kind["event"] if line.name in names]

    def with_verdict(self, verdict: Verdict) -> set[str]:
        return {tag for tag, said in self.verdicts.items() if said == verdict}

    def disturbed(self, pid: int, begin: float, end: float) -> bool:
        """Something was done to this process, or to the server, in this time: what it knew may not have counted.

        A reply that was lost is no excuse: whatever is asked again is safe to be asked again.
        """
        if any(span.meets(begin, end) for span in [*self.faults, *self.troubled[pid]]):
            return True
        return pid in self.deaths and begin <= self.deaths[pid] <= end

    def stalls_of(self, pid: int) -> list[Span]:
        """When the machine gave this process no turn, or nobody one: as far as its leases go, it was frozen.

        Where it was frozen on purpose, that is known as such.
        """
        if not self._stalls:
            return []
        frozen = self.troubled[pid]
        mine = [span for of, span in self._stalls if of == pid and not any(one.meets(*span) for one in frozen)]
        return mine + [span for of, span in self._stalls if of not in self._workers]

    def every_stall(self) -> list[Span]:
        """Of anybody: who waits for one that stands still gets no further."""
        return [span for _, span in self._stalls]

    def stalled(self, pid: int, begin: float, end: float) -> bool:
        """It, or the server, stood still in this time, or was just catching up with it."""
        return any(Span(span.begin, span.end + CATCHING_UP).meets(begin, end) for span in self.stalls_of(pid))

    def interrupted(self, runs: list[Run], position: int) -> bool:
        """This run may not have been counted by anybody, so that the message was given out again."""
        start = runs[position].start
        return self.disturbed(start.pid, start.at, _until(runs, position)) or self.robbed(runs, position)

    def robbed(self, runs: list[Run], position: int) -> bool:
        """Whoever ran it stood still meanwhile, or had it first and was late: the message is not to blame."""
        both, until = [run.start for run in runs[position : position + 2]], _until(runs, position)
        return any(self.stalled(start.pid, both[0].at, until) for start in both)

    def deadly(self, run: Run) -> bool:
        """Its process died while it ran."""
        return run.finish is None and run.start.pid in self.deaths

    def _verdicts(self) -> dict[str, Verdict]:
        """What is known in the end: an acknowledgement settles it, else one doubt is enough."""
        found: dict[str, Verdict] = {}
        rank = {"failed": 0, "unknown": 1, "acked": 2}
        for line in self.lines:
            if line.what in rank and rank[line.what] >= rank[found.get(line.tag, "failed")]:
                found[line.tag] = line.what  # type: ignore[assignment]
        for tag in self.intents.keys() - found.keys():
            found[tag] = "unknown"  # its producer did not live to tell
        return found

    def _runs(self) -> dict[tuple[str, str], list[Run]]:
        open_runs: dict[tuple[int, str, str], list[Line]] = defaultdict(list)
        finishes: dict[int, Line] = {}
        for line in self.lines:
            key = line.pid, line.group, line.tag
            if line.what == "start":
                open_runs[key].append(line)
            elif line.what in ("end", "raised") and open_runs[key]:
                finishes[id(open_runs[key].pop(0))] = line
        runs: dict[tuple[str, str], list[Run]] = defaultdict(list)
        for line in self.of_kind["start"]:
            runs[line.group, line.tag].append(Run(line, finishes.get(id(line))))
        return runs

    def _spans(self, begins: str, ends: str, pid: int | None = None) -> Iterator[Span]:
        """From each beginning to the next end of the same name; of one process, if that is given."""
        of_pid = {kind: [line for line in self.of_kind[kind] if pid in (None, line.pid)] for kind in (begins, ends)}
        for line in of_pid[begins]:
            later = [end.at for end in of_pid[ends] if end.name == line.name and end.at >= line.at]
            yield Span(line.at, min(later, default=float("inf")))


def _until(runs: list[Run], position: int) -> float:
    """When the next one began; for the last one, its end."""
    if position + 1 < len(runs):
        return runs[position + 1].start.at
    finish = runs[position].finish
    return float("inf") if finish is None else finish.at
