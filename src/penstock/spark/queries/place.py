"""Where a query of a lake keeps how far it is. One run at a time has it.

<lake>/_penstock/checkpoints/<name>        Spark's checkpoint, or beside other things of the query its directory `spark`
                                   /lock   held while it runs
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
    def taken(self) -> Iterator[None]:
        """Nobody else runs the query from here meanwhile. Whoever dies lets go of it."""
        self.directory.mkdir(parents=True, exist_ok=True)
        with (self.directory / "lock").open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ConfigurationError(
                    f"{self.name!r} runs already in {self.lake.path}: wait for that run or stop it, or give this one"
                    " another name"
                ) from None
            yield
