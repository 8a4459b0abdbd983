"""Where a flow keeps how far it is, and what it is: a checkpoint belongs to one flow, as it was when it began.

<home>/_penstock/checkpoints/<flow>/flow.json   what the flow is
                                   /spark       Spark's checkpoint
                                   /results     rows of the batch in progress, once they are computed
                                   /lock        held while it runs
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.errors import ConfigurationError
from penstock.lake import Lake
from penstock.spark.flows.flow import Flow
from penstock.spark.queries.place import Place


@dataclass(frozen=True)
class Home:
    """The place of one flow in a lake."""

    lake: Lake
    flow: Flow

    @property
    def place(self) -> Place:
        return Place(self.lake, self.flow.name, "spark")

    @property
    def results(self) -> Path:
        return self.place.directory / "results"

    @property
    def has_begun(self) -> bool:
        """Whether Spark has planned a batch: from then on the checkpoint says where to read."""
        return (self.place.checkpoint / "offsets" / "0").exists()

    def bind(self, *, adapt: bool) -> None:
        """Write down what the flow is; `ConfigurationError` if another one was written down, unless `adapt`.

        Nor may its tables have names that SQL takes for those of others that the lake has.
        """
        self._check_tables()
        directory, now = self.place.directory, _facts(self.flow)
        file = directory / "flow.json"
        if file.exists():
            before = _read(file)
            if before.get("flow") != now["flow"]:
                raise ConfigurationError(
                    f"{directory} is the checkpoint of flow {before.get('flow')!r}, not of {now['flow']!r}:"
                    " remove this copy, for each flow makes a checkpoint of its own"
                )
            if not adapt:
                self._refuse_changes(before, now)
        elif self.place.checkpoint.exists() or (directory / "metadata").exists():
            raise ConfigurationError(
                f"{directory} is a checkpoint, but of no flow: another query of this lake has the name"
                f" {self.flow.name!r}, so give the flow another one"
            )
        _write(file, now)

    def _check_tables(self) -> None:
        there = {file.table.casefold(): file.table for file in self.lake.snapshot().files.values()}
        for table in self.flow.tables:
            other = there.get(table.casefold(), table)
            if other != table:
                raise ConfigurationError(
                    f"flow {self.flow.name!r} writes table {table!r}, and the lake {self.lake.path} has a table"
                    f" {other!r}: to SQL both are one name, so write it as it is there, or give another"
                )

    def _refuse_changes(self, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
        changed = [f"its {what} were {_listed(before.get(what))} and are {_listed(now[what])}"
                   for what in ("topics", "outputs") if before.get(what) != now[what]]  # fmt: skip
        if changed:
            raise ConfigurationError(
                f"flow {self.flow.name!r} is not what it was when {self.place.directory} was made:"
                f" {'; '.join(changed)}. Give it another name to begin anew, or say adapt (--adapt) to go on: topics"
                " that are new are read from their beginning, outputs that are new get what comes from now on"
            )


def _facts(flow: Flow) -> dict[str, Any]:
    return {
        "flow": flow.name,
        "topics": sorted(flow.topics),
        "outputs": sorted(f"{output}{f' where {output.where}' if output.where else ''}" for output in flow.outputs),
    }


def _listed(names: Any) -> str:
    return ", ".join(map(str, names)) if names else "none"


def _read(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text())
        return found if isinstance(found, dict) else {}
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{file} cannot be read, so nobody knows whose checkpoint it is: {error}") from error


def _write(file: Path, facts: Mapping[str, Any]) -> None:
    draft = file.with_suffix(".new")
    draft.write_text(json.dumps(facts, indent=1) + "\n")
    os.replace(draft, file)
