"""A lake's log on disk: one file per commit, named by its version. Whoever makes a version's file first has it.

A version exists once its file is there under its name, whole and safe on disk; before that there is nothing to see.
Every so many versions the state up to there is written down beside it, so that a reader need not begin at the first.
"""

import logging
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import msgspec

from penstock.errors import LakeError
from penstock.lake import manifest
from penstock.lake.manifest import Commit, DamagedError, Snapshot

_log = logging.getLogger("penstock")
_EVERY = 64
_DIGITS = 20
_STATES_KEPT = 2
"""If the last one is damaged, the one before it and the commits since say the same."""


class Log:
    """The commits of one lake. Any number of processes may read and append; a name is given away once."""

    def __init__(self, directory: Path) -> None:
        self._commits = directory / "commits"
        self._states = directory / "states"
        self._is_whole = False
        """No version is missing between others: seen once, for nobody makes one without having read those before."""

    def create(self) -> None:
        for directory in (self._commits, self._states):
            directory.mkdir(parents=True, exist_ok=True)

    def exists(self) -> bool:
        return self._commits.is_dir()

    def state(self, known: Snapshot | None = None) -> Snapshot:
        """The lake as it is now; `known` is an earlier state to go on from."""
        found = self._after(known or self._newest_state())
        if self._is_cut_off(found.version):
            found = self._after(self._newest_state())
        if known is not None and found.version < known.version:
            raise LakeError(
                f"the lake's log {self._commits} ends at {found.version}, and was at {known.version} before: put the"
                " rest back from a backup"
            )
        if not self._is_whole:
            self._check_end(found.version)
            self._is_whole = True
        return found

    def append(self, version: int, commit: Commit) -> bool:
        """Make `commit` that version; False if somebody else was faster. When True is returned, it is safe on disk."""
        target = self._commits / _name(version)
        if not _place(target, manifest.write(commit)):
            return False
        if self._is_cut_off(version - 1):  # there was one, so long ago that it is deleted
            target.unlink()
            return False
        return True

    def note(self, state: Snapshot) -> None:
        """Write the state down if it is time for that. All of its files are in their places."""
        if state.version % _EVERY == 0:
            files = {path: msgspec.structs.replace(file, staged="") for path, file in state.files.items()}
            noted = msgspec.structs.replace(state, files=files)
            _place(self._states / _name(state.version), manifest.write(noted))

    def shorten(self) -> int:
        """Delete commits and states before the last state but one, and return how many commits that were.

        Commits go in their order: so whoever misses one finds that the one before it is gone, too.
        """
        states = sorted(filter(None, map(_version, self._states.glob("*.json"))))
        if len(states) < _STATES_KEPT:
            return 0
        first = states[-_STATES_KEPT]
        old = sorted(file for file in self._commits.glob("*.json") if 0 < _version(file) < first)
        for file in (*old, *(self._states / _name(version) for version in states[:-_STATES_KEPT])):
            file.unlink(missing_ok=True)
        return len(old)

    def _newest_state(self) -> Snapshot:
        """One that is damaged is passed by: the commits say the same, and if they are gone, that is an error."""
        for file in sorted(self._states.glob("*.json"), reverse=True):
            try:
                return manifest.read_snapshot(file.read_bytes(), str(file))
            except DamagedError as error:
                _log.warning("%s; the lake is read from the commits before it: delete it", error)
            except FileNotFoundError:  # the log was shortened in this very moment: there are newer ones
                continue
        return Snapshot()

    def _after(self, state: Snapshot) -> Snapshot:
        return state.after(self._commits_after(state.version))

    def _commits_after(self, version: int) -> Iterator[tuple[int, Commit]]:
        while True:
            file = self._commits / _name(version + 1)
            try:
                raw = file.read_bytes()
            except FileNotFoundError:
                return
            version += 1
            yield version, manifest.read_commit(raw, str(file))

    def _is_cut_off(self, version: int) -> bool:
        """Whether the log was shortened beyond this version, so that the one after it is missed in vain."""
        if version == 0:
            return any(self._states.glob("*.json"))
        return not (self._commits / _name(version)).exists()

    def _check_end(self, version: int) -> None:
        """A version that is missing between others would hide every commit behind it."""
        newest = max((_version(file) for file in self._commits.glob("*.json")), default=0)
        if newest > version and not (self._commits / _name(version + 1)).exists():
            raise LakeError(
                f"the lake's log {self._commits} goes up to {newest}, but {_name(version + 1)} is missing: put it back"
                " from a backup, for nothing else says which files belong to the lake"
            )


def _place(target: Path, content: bytes) -> bool:
    """Have `content` at `target`, whole and safe, or not at all; False if there is something already."""
    draft = target.parent / f".{target.name}.{secrets.token_hex(8)}"
    try:
        with draft.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.link(draft, target)  # unlike a rename, this fails if the name is taken
    except FileExistsError:
        return False
    finally:
        draft.unlink(missing_ok=True)
    sync_directory(target.parent)
    return True


def sync_directory(directory: Path) -> None:
    """Names that were given or taken in it stay so, whatever happens to the machine."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _name(version: int) -> str:
    return f"{version:0{_DIGITS}}.json"


def _version(file: Path) -> int:
    return int(file.stem) if file.stem.isdigit() else 0
