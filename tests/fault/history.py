"""The journals of a run, put in order: what was promised about each message, and who did what to it when."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from tests.fault.journal import Line

Verdict = Literal["acked", "unknown", "failed"]


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

    def interrupted(self, runs: list[Run], position: int) -> bool:
        """This run may not have been counted by anybody, so that the message was given out again."""
        run = runs[position]
        if position + 1 < len(runs):
            until = runs[position + 1].start.at
        else:
            until = float("inf") if run.finish is None else run.finish.at
        return self.disturbed(run.start.pid, run.start.at, until)

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
