"""What every process of a fault test saw, written down outside the server before anything else can go wrong.

One file per process, appended to by one write per line, so that a process that is killed leaves whole lines behind and
nothing it saw is lost with it. Times are of CLOCK_MONOTONIC, which all processes of one machine share.
"""

import os
import time
from collections import defaultdict
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

KINDS = {
    # of producers
    "intent", "acked", "failed", "unknown", "published",
    # of workers
    "ready", "start", "end", "raised", "event", "left",
    # of workers about themselves, and of the scene about all and the server: there was no turn `since` then
    "stalled",
    # of the scene, about the others
    "spawned", "died", "frozen", "thawed", "fault", "healed", "seen",
    # of the network, about the process at the other end: a reply it never got, a wire that went silent, that wire's end
    "hit", "silent", "ended",
}  # fmt: skip


class Line(Struct, frozen=True, omit_defaults=True):
    """One thing that happened. Fields that say nothing are left out of the file."""

    what: str
    at: float
    pid: int
    tag: str = ""
    """Which message: a name inside its body, so that it is known before the message has an id."""
    id: str = ""
    entry: str = ""
    topic: str = ""
    group: str = ""
    sha: str = ""
    """Of the payload, as sent or as received."""
    do: str = ""
    """How the message's handler behaves."""
    attempt: int = 0
    redelivered: bool = False
    error: str = ""
    name: str = ""
    """Of an event, a fault, or a role."""
    facts: dict[str, Any] = {}


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Line).decode


def payload_of(body: Any) -> bytes:
    """The bytes a plain JSON body has on the wire."""
    return _encode(body)


def sha_of(payload: bytes) -> str:
    return sha256(payload).hexdigest()[:32]


class Journal:
    """Where one process writes."""

    def __init__(self, directory: Path, role: str) -> None:
        self.pid = os.getpid()
        path = directory / f"journal-{role}-{self.pid}.jsonl"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, what: str, **facts: Any) -> Line:
        assert what in KINDS, what
        line = Line(what=what, at=time.monotonic(), pid=facts.pop("pid", self.pid), **facts)
        data = _encode(line) + b"\n"
        assert os.write(self._file, data) == len(data), "a line must be written whole"
        return line

    def close(self) -> None:
        os.close(self._file)


class Journals:
    """All journals of a directory, read as they grow."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._offsets: dict[Path, int] = {}
        self.lines: list[Line] = []
        self._by_kind: dict[str, list[Line]] = defaultdict(list)

    def read(self) -> list[Line]:
        """What was added since the last call, oldest first within each process; it is in `lines` from then on."""
        fresh = [line for path in sorted(self._directory.glob("journal-*.jsonl")) for line in self._read_one(path)]
        fresh.sort(key=lambda line: line.at)
        self.lines += fresh
        for line in fresh:
            self._by_kind[line.what].append(line)
        return fresh

    def of_kind(self, *kinds: str) -> list[Line]:
        """What there is of these kinds by now; cheap enough to be asked again and again."""
        self.read()
        if len(kinds) == 1:
            return list(self._by_kind[kinds[0]])
        return sorted((line for kind in kinds for line in self._by_kind[kind]), key=lambda line: line.at)

    def all(self) -> list[Line]:
        """Everything so far, in the order it happened."""
        self.read()
        self.lines.sort(key=lambda line: line.at)
        return self.lines

    def _read_one(self, path: Path) -> Iterator[Line]:
        offset = self._offsets.get(path, 0)
        with path.open("rb") as file:
            file.seek(offset)
            data = file.read()
        whole = data.rfind(b"\n") + 1  # a line being written is read next time
        self._offsets[path] = offset + whole
        for row in data[:whole].splitlines():
            yield _decode(row)
