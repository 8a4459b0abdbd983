"""What a lake's log says: commits, and the state that they add up to. Pure data.

A commit adds files, removes files, or both, in one step. Who writes it says so by name and number; a number that a
writer has used is never used again, so that a batch which comes a second time is known.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Self, TypeVar

import msgspec
from msgspec import Struct, field

from penstock.errors import LakeError

FORMAT = 1
NEXT = -1
"""In place of a commit's number, until it is known."""
_Kind = TypeVar("_Kind", "Commit", "Snapshot")


class DamagedError(LakeError):
    """A file of the log is there, and is not what was written."""


class DataFile(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One Parquet file of one table, with what lets a reader pass it by."""

    path: str
    """Where it is, seen from the lake's directory."""

    table: str
    rows: int
    size: int
    """In bytes."""

    partition: dict[str, str] = field(default_factory=dict)
    """Columns that are the same in every row and are not in the file."""

    bounds: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Per column of text, a value that no row is below and one that no row is above."""

    unique: bool = False
    """It is known that no message is in it twice."""

    staged: str = ""
    """Where it was when it was committed, if it was to be moved to `path` after that."""

    def may_hold(self, column: str, value: str) -> bool:
        """False only if no row has that value."""
        if column in self.partition:
            return self.partition[column] == value
        low, high = self.bounds.get(column, (value, value))
        return low <= value <= high


class Reached(Struct, frozen=True):
    """How much of a topic is in the lake: everything up to this entry of this stream."""

    id: str
    epoch: str
    """Of the stream: one that was deleted and made anew has another."""


class Commit(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One step of a lake."""

    format: int = FORMAT
    writer: str
    number: int = NEXT
    at: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="milliseconds"))
    add: tuple[DataFile, ...] = ()
    remove: tuple[str, ...] = ()
    """Paths."""

    swept: tuple[str, ...] = ()
    """Paths of files that were removed before, and do not exist any more."""

    reached: dict[str, Reached] = field(default_factory=dict)
    """By topic."""


class Snapshot(Struct, frozen=True, kw_only=True):
    """A lake after so many commits. What it lists does not change any more."""

    format: int = FORMAT
    version: int = 0
    files: dict[str, DataFile] = field(default_factory=dict)
    """By path."""

    removed: dict[str, str] = field(default_factory=dict)
    """Files that are no part of it any more and may still be read by whoever knew them: by path, since when."""

    writers: dict[str, int] = field(default_factory=dict)
    """The last number that each has used."""

    reached: dict[str, Reached] = field(default_factory=dict)

    def after(self, commits: Iterable[tuple[int, Commit]]) -> Self:
        """With these commits, given with their versions in order."""
        last, files, removed = self.version, dict(self.files), dict(self.removed)
        writers, reached = dict(self.writers), dict(self.reached)
        for version, commit in commits:
            last = version
            for path in commit.remove:
                if files.pop(path, None) is not None:
                    removed[path] = commit.at
            for path in commit.swept:
                removed.pop(path, None)
            files |= {file.path: file for file in commit.add}
            writers[commit.writer] = commit.number
            reached |= commit.reached
        return type(self)(version=last, files=files, removed=removed, writers=writers, reached=reached)

    def has(self, writer: str, number: int) -> bool:
        return number <= self.writers.get(writer, -1)

    def of(self, table: str, **values: str) -> list[DataFile]:
        """The files of a table, in their order, that may hold rows with all of these values."""
        found = [file for file in self.files.values() if file.table == table]
        return sorted((file for file in found if _may_hold(file, values)), key=lambda file: file.path)


def _may_hold(file: DataFile, values: Mapping[str, str]) -> bool:
    return all(file.may_hold(column, value) for column, value in values.items())


def write(what: Commit | Snapshot) -> bytes:
    return msgspec.json.encode(what) + b"\n"


def read_commit(raw: bytes, where: str) -> Commit:
    try:
        return _read(raw, where, Commit)
    except DamagedError as error:
        raise DamagedError(
            f"{error}; put it back from a backup, for nothing else says which files belong to the lake"
        ) from error


def read_snapshot(raw: bytes, where: str) -> Snapshot:
    return _read(raw, where, Snapshot)


def _read(raw: bytes, where: str, kind: type[_Kind]) -> _Kind:
    try:
        found = msgspec.json.decode(raw, type=kind)
    except msgspec.MsgspecError as error:
        raise DamagedError(f"{where} cannot be read: {error}") from error
    if found.format > FORMAT:
        raise LakeError(f"{where} was written by a newer Penstock (format {found.format}): upgrade this one")
    return found
