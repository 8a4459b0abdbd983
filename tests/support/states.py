"""Directories for the state of embedded servers that a command of ours starts."""

import fcntl
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PATIENCE_SECONDS = 20


@contextmanager
def state_home() -> Iterator[str]:
    """For `$XDG_STATE_HOME`; gone at the end of the block. Its path is short: pytest's are too long for a socket."""
    home = tempfile.mkdtemp(prefix="ps-")
    try:
        yield home
    finally:
        for lock in Path(home).rglob("keeper.lock"):
            _wait_for(lock)
        shutil.rmtree(home)


def _wait_for(lock: Path) -> None:
    """The keeper ends its server, and cleans up, after the last process that used it has ended."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    with lock.open("rb") as held:
        while True:
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                assert time.monotonic() < deadline, f"the keeper of {lock.parent} does not end"
                time.sleep(0.01)
            else:
                return
