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
"""States are at least so far apart, whoever writes them: it says which commits may have been deleted. Never less."""
_DIGITS = 20
_STATES_KEPT = 2
"""If the last one is damaged, the one before it and the commits since say the same."""


class Log:
    """The commits of one lake. Any number of processes may read and append; a version is given away once."""

    def __init__(self, directory: Path) -> None:
        self._commits = directory / "commits"
        self._states = directory / "states"

    def create(self) -> None:
        for directory in (self._commits, self._states):
            directory.mkdir(parents=True, exist_ok=True)

    def exists(self) -> bool:
        return self._commits.is_dir()

    def state(self, known: Snapshot | None = None) -> Snapshot:
        """The lake as it is now; `known` is an earlier state to go on from."""
        if known is None:
            return self._anew()
        found = self._after(known)
        if not self._may_be_deleted(known.version + 1) and self._has(found.version):
            return found
        found = self._anew()
        if found.version < known.version:
            raise LakeError(
                f"the lake's log {self._commits} ends at {found.version}, and was at {known.version} before: put the"
                " rest back from a backup"
            )
        return found

    def append(self, version: int, commit: Commit) -> bool:
        """Make `commit` that version. When True is returned, it is so, and safe on disk.

        False if somebody else was faster. Also if this took so long that nobody can tell, since a name that was given
        away and deleted can be taken again: then `state` says whether the lake has the commit.
        """
        # What took such a name stays until the log is shortened: nobody reads it, and it may be the lake's after all.
        return _place(self._commits / _name(version), manifest.write(commit)) and not self._may_be_deleted(version)

    def note(self, state: Snapshot) -> None:
        """Write the state down if it is time for that. All of its files are in their places."""
        if state.version % _EVERY == 0:
            files = {path: msgspec.structs.replace(file, staged="") for path, file in state.files.items()}
            noted = msgspec.structs.replace(state, files=files)
            self._states.mkdir(exist_ok=True)  # a backup may have left it out while it was empty
            _place(self._states / _name(state.version), manifest.write(noted))

    def shorten(self) -> int:
        """Delete commits and states before the last state but one, and return how many commits that were."""
        states = sorted(filter(None, map(_version, self._states.glob("*.json"))))
        if len(states) < _STATES_KEPT:
            return 0
        first = states[-_STATES_KEPT]
        old = [file for file in self._commits.glob("*.json") if 0 < _version(file) < first]
        for file in (*old, *(self._states / _name(version) for version in states[:-_STATES_KEPT])):
            file.unlink(missing_ok=True)
        return len(old)

    def _anew(self) -> Snapshot:
        """By the last state that was written down, and the commits since."""
        noted = _newest(self._states)
        while True:
            found = self._after(self._newest_state())
            before, noted = noted, _newest(self._states)
            if noted == before:  # else commits that it missed may have been deleted meanwhile
                self._check_end(found.version, noted)
                return found

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

    def _may_be_deleted(self, version: int) -> bool:
        """Whether that commit may be deleted, and what has its name be no part of the log.

        Commits are deleted before the last state but one; the states' names tell how far that can be.
        """
        return version < _newest(self._states) - _EVERY

    def _has(self, version: int) -> bool:
        return version == 0 or (self._commits / _name(version)).exists()

    def _check_end(self, version: int, noted: int) -> None:
        """What is missing would hide every commit behind it; a state that is `noted` shows that its own was there."""
        newest = max(_newest(self._commits), noted)
        missing = version if not self._has(version) else version + 1
        if newest >= missing and not self._has(missing):
            raise LakeError(
                f"the lake's log {self._commits} goes up to {newest}, but {_name(missing)} is missing: put it back"
                " from a backup, for nothing else says which files belong to the lake"
            )


def _newest(directory: Path) -> int:
    return max(map(_version, directory.glob("*.json")), default=0)


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
