"""A lake on disk: its tables' files, and the log that says which of them count.

    <lake>/_penstock/commits, states   the log
    <lake>/_staging/<writer>/...       files that are being written; not part of the lake
    <lake>/<table>/<column>=<value>/   files that are part of it, or were until lately

A writer puts files into a staging directory, commits them, and then moves them to where they belong. If it dies in
between, whoever looks at the lake next moves them. So what lies in a table's directory was committed, and what is only
staged was not, or will be moved.
"""

import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import takewhile
from pathlib import Path
from typing import Self

import msgspec

from penstock.errors import LakeError, LakeNotFoundError
from penstock.lake.log import Log, sync_directory
from penstock.lake.manifest import Commit, DataFile, Snapshot

_OWN = "_penstock"
_STAGING = "_staging"


class ReplacedError(LakeError):
    """Files that a commit relies on have left the lake since they were listed: list them again."""


class Lake:
    """One lake. Cheap to make; it keeps no file open, and any number of processes may use it at a time."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).absolute()
        self._log = Log(self.path / _OWN)
        self._state: Snapshot | None = None

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Self:
        """`LakeNotFoundError` if there is none."""
        lake = cls(path)
        with _naming(lake.path):
            if not lake.exists():
                raise LakeNotFoundError(
                    f"{lake.path} is no lake: it has no {_OWN}/commits; check the path, or archive to it first"
                )
            lake.snapshot()
        return lake

    @classmethod
    def create(cls, path: str | os.PathLike[str]) -> Self:
        """The lake at `path`, made if there is none. A directory that has other things in it is refused."""
        lake = cls(path)
        with _naming(lake.path):
            if not lake.exists():
                lake.make()
            lake.snapshot()
        return lake

    def exists(self) -> bool:
        return self._log.exists()

    def make(self) -> None:
        found = sorted(entry.name for entry in self.path.iterdir()) if self.path.exists() else []
        if any(name != _OWN for name in found):
            raise LakeError(
                f"{self.path} is no lake and not empty ({', '.join(found[:3])}): name a directory of its own"
            )
        self._log.create()

    def snapshot(self) -> Snapshot:
        """What is in the lake now. Files that it lists are in place, and stay for the grace time of `sweep`."""
        known = self._state or Snapshot()
        state = self._log.state(self._state)
        if state.version != known.version:
            # At first those of every commit, not only of late: whoever died between commit and move may have done so
            # long ago. `_state` comes last: what could not be moved must be new to the next call, too.
            self._settle(file for path, file in state.files.items() if path not in known.files)
        self._state = state
        return state

    def kept(self, what: str) -> Path:
        """The directory of things of one kind that are the lake's own, and no table; it may not be there yet."""
        return self.path / _OWN / what

    def checkpoint(self, name: str) -> Path:
        """Where a query that writes to the lake keeps how far it is. It belongs to this lake and to no other."""
        return self.kept("checkpoints") / name

    def log_file(self, name: str) -> Path:
        """Where programs that work for a query of this name write what they have to say; the last run's is kept."""
        file = self.kept("logs") / f"{name}.log"
        with _naming(self.path):
            file.parent.mkdir(exist_ok=True)
            if file.exists():
                file.replace(file.with_suffix(".log.1"))
        return file

    def staging(self, writer: str) -> Path:
        """A new directory for files that are to be committed."""
        directory = self.path / _STAGING / f"{writer}-{secrets.token_hex(8)}"
        directory.mkdir(parents=True)
        return directory

    def staged(self) -> list[Path]:
        """The staging directories that are there."""
        return list((self.path / _STAGING).glob("*"))

    def commit(self, commit: Commit, check: Callable[[Snapshot], None] = lambda _: None) -> int | None:
        """Do all of this in one step, and return the lake's version with it; None if that number was committed before.

        `check` sees the state that the commit follows, and may raise to call it off; it runs again if another writer
        comes between. Files with `staged` are moved to their `path` afterwards. If this fails, `abandon` knows whether
        the commit was made.
        """
        self._sync_staged(commit.add)
        while True:
            state = self.snapshot()
            if state.has(commit.writer, commit.number):
                return None
            _check_removed(state, commit)
            check(state)
            if self._log.append(state.version + 1, commit):
                break
        self._log.note(self.snapshot())  # which moves them
        return state.version + 1

    def shorten_log(self) -> int:
        """Delete commits that the log has summed up twice since; returns how many. Readers go on undisturbed."""
        return self._log.shorten()

    def commit_next(
        self, commit: Commit, since: Snapshot | None = None, check: Callable[[Snapshot], None] = lambda _: None
    ) -> None:
        """As `commit`, under the next number of its writer.

        `ReplacedError` if that writer has committed anything after `since`.
        """
        while True:
            before = since or self.snapshot()
            last = before.writers.get(commit.writer, -1)
            numbered = msgspec.structs.replace(commit, number=last + 1)
            if self.commit(numbered, check) is not None:
                return
            if since is not None:
                raise ReplacedError(f"another run of {commit.writer!r} was faster; try again")

    @contextmanager
    def drafting(self, staging: Path) -> Iterator[None]:
        """If what is done meanwhile fails, the staging directory is thrown away, unless a commit may need it."""
        try:
            yield
        except BaseException:
            with suppress(LakeError, OSError):  # what was committed of it, nobody can tell now: `sweep` will
                self.abandon(staging)
            raise

    def abandon(self, staging: Path) -> None:
        """Throw a staging directory away, but for what was committed: if that cannot be moved now, all of it stays."""
        self.snapshot()
        shutil.rmtree(staging, ignore_errors=True)

    def _settle(self, files: Iterable[DataFile]) -> None:
        """Move what was committed and not moved yet. Idempotent, and harmless beside others who do the same."""
        staged = {place.name for place in self.staged()}
        if staged:
            with _naming(self.path, "has files that cannot be moved to their place"):
                self._move(file for file in files if file.staged and file.staged.split("/")[1] in staged)

    def _sync_staged(self, files: Sequence[DataFile]) -> None:
        directories: set[Path] = set()
        for file in files:
            staged = self.path / (file.staged or file.path)
            with staged.open("rb") as opened:
                os.fsync(opened.fileno())
            directories.update(_up_to(self.path, staged))
        for directory in directories:
            sync_directory(directory)

    def _move(self, files: Iterable[DataFile]) -> None:
        touched: set[Path] = set()
        for file in files:
            if not file.staged:
                continue
            target = self.path / file.path
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.rename(self.path / file.staged, target)
            except FileNotFoundError:  # moved before, and perhaps replaced and swept since
                continue
            touched.update(_up_to(self.path, target))
        for directory in touched:
            sync_directory(directory)


def _up_to(lake: Path, file: Path) -> Iterator[Path]:
    """The directories that a file's name hangs on: all of these must be safe on disk before the file is."""
    return takewhile(lambda directory: directory != lake.parent, file.parents)


@contextmanager
def _naming(path: Path, trouble: str = "cannot be opened") -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise LakeError(f"the lake {path} {trouble}: {error}") from error


def _check_removed(state: Snapshot, commit: Commit) -> None:
    if gone := [path for path in commit.remove if path not in state.files]:
        raise ReplacedError(f"{gone[0]} is no file of the lake any more: another writer has replaced it; try again")
