"""What a benchmark found: goals that hold or do not, tables, and everything as JSON beside them."""

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from penstock import __version__

_PACKAGES = ("redis", "hiredis", "msgspec")


@dataclass(frozen=True)
class Goal:
    """One figure that was promised."""

    what: str
    value: float
    least: float | None = None
    most: float | None = None
    unit: str = ""

    @property
    def holds(self) -> bool:
        return (self.least is None or self.value >= self.least) and (self.most is None or self.value <= self.most)

    def __str__(self) -> str:
        bound = f"≥ {self.least:g}" if self.most is None else f"≤ {self.most:g}"
        return f"{self.value:.3g}{self.unit} (goal {bound}{self.unit}){'' if self.holds else ' **MISSED**'}"


@dataclass
class Report:
    """One benchmark's findings; `name` is that of its files."""

    name: str
    title: str
    about: str
    goals: list[Goal] = field(default_factory=list)
    tables: list[str] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        lines = [f"## {title}", "", row_of(columns), row_of(["---"] * len(columns)), *map(row_of, rows)]
        self.tables.append("\n".join(lines))

    def as_markdown(self) -> str:
        versions = ", ".join(f"{name} {number}" for name, number in self.all_versions().items())
        parts = [f"# {self.title}", f"{self.about} {os.cpu_count()} cores; {versions}."]
        if self.goals:
            goals = [[goal.what, str(goal)] for goal in self.goals]
            parts.append("\n".join(map(row_of, [["goal", "found"], ["---", "---"], *goals])))
        return "\n\n".join([*parts, *self.tables]) + "\n"

    def all_versions(self) -> dict[str, str]:
        ours = {"penstock": __version__, "python": platform.python_version()}
        return ours | {name: version(name) for name in _PACKAGES} | self.versions

    def write(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        goals = [
            {"what": goal.what, "value": goal.value, "least": goal.least, "most": goal.most, "holds": goal.holds}
            for goal in self.goals
        ]
        facts = {"versions": self.all_versions(), "goals": goals, **self.data}
        (directory / f"{self.name}.json").write_text(json.dumps(facts, indent=2) + "\n")
        (directory / f"{self.name}.md").write_text(self.as_markdown())


def row_of(texts: Sequence[str]) -> str:
    return f"| {' | '.join(texts)} |"
