"""Where a query of a lake keeps how far it is. One run at a time has it.

<lake>/_penstock/checkpoints/<name>        Spark's checkpoint, or beside other things of the query its directory `spark`
                                   /lock   held while it runs
                                   /query.json   what kind of query it is, if it is none of a flow
"""

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from penstock.errors import ConfigurationError, LakeError
from penstock.lake.lake import Lake


def check_name(what: str, name: object) -> None:
    """`ConfigurationError` unless it can be the name of a directory, of a group, and of a table."""
    if not isinstance(name, str) or not name.strip(".") or quote(name, safe="") != name:
        raise ConfigurationError(
            f"{what} is {name!r}: it must be letters, digits, '-', '_' and '.', as in clicks.by-user"
        )


@dataclass(frozen=True)
class Place:
    """That of one query, which is known by its name."""

    lake: Lake
    name: str
    inside: str = ""
    """Spark's directory, if the query keeps more than Spark does."""

    @property
    def directory(self) -> Path:
        return self.lake.checkpoint(self.name)

    @property
    def checkpoint(self) -> Path:
        """Spark's."""
        return self.directory / self.inside

    @property
    def writer(self) -> str:
        """The name by which whoever must not take a batch twice knows this query: another checkpoint has another."""
        return f"{self.name}/{self.query}"

    @property
    def query(self) -> str:
        """The id that Spark gave to the checkpoint when the query was started for the first time."""
        try:
            found: str = json.loads((self.checkpoint / "metadata").read_text())["id"]
        except (OSError, ValueError, KeyError) as error:
            raise LakeError(f"the checkpoint {self.checkpoint} cannot be read: {error}") from error
        return found

    @contextmanager
    def taken(self, kind: str = "") -> Iterator[None]:
        """Nobody else runs the query from here meanwhile. Whoever dies lets go of it.

        `ConfigurationError` if a query of another `kind` has begun here, whose offsets this one could not read.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        with (self.directory / "lock").open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ConfigurationError(
                    f"{self.name!r} runs already in {self.lake.path}: wait for that run or stop it, or give this one"
                    " another name"
                ) from None
            if kind:
                self._bind(kind)
            yield

    def _bind(self, kind: str) -> None:
        file = self.directory / "query.json"
        try:
            before = json.loads(file.read_text())["kind"] if file.exists() else kind
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigurationError(
                f"{file} cannot be read, so nobody knows whose checkpoint it is: {error}"
            ) from error
        if (self.directory / "flow.json").exists():
            before = "flow"
        if before != kind:
            raise ConfigurationError(
                f"{self.directory} is the checkpoint of a query of another kind, {before!r}, and not {kind!r}: give"
                " this one another name (--name)"
            )
        if not file.exists():
            draft = file.with_suffix(".new")
            draft.write_text(json.dumps({"kind": kind}) + "\n")
            draft.replace(file)
