"""The directory of an embedded server: that it is ours alone, its locks, its log, and the place of its socket."""

import contextlib
import fcntl
import os
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from penstock.backend.embedded_keeper import KEEPER_LOCK, OWNERS_LOCK, SOCKET_RECORD, open_lock, try_lock
from penstock.errors import EmbeddedServerError

SERVER_LOG = "server.log"
START_LOCK = "start.lock"
_LONGEST_SOCKET_PATH = 100  # the kernel's limit is 107 bytes on Linux, 103 on macOS
_LONGEST_LOG = 1_000_000
_LOG_LINES = 12


def prepare(directory: Path) -> Path:
    """Make sure that the directory exists, is ours, and is closed to others. Returns its real path."""
    directory = Path(os.path.realpath(directory))
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        directory.mkdir(mode=0o700, exist_ok=True)
        if not is_private(directory):
            _close_to_others(directory)
        if not os.access(directory, os.W_OK | os.X_OK):
            raise PermissionError(None, "it is not writable")
    except OSError as error:
        raise EmbeddedServerError(
            f"the embedded server cannot keep its data in {directory}: {error.strerror};"
            " name a directory of your own, as in embedded:///absolute/directory"
        ) from None
    return directory


def _close_to_others(directory: Path) -> None:
    if directory.stat().st_uid != os.geteuid():
        raise PermissionError(None, "it belongs to another user")
    if any(directory.iterdir()):
        # It may be a place that others use on purpose, like a home or a project: not ours to close.
        raise PermissionError(
            None, f"it is open to other users and not empty (chmod 700 {directory} if it is to be used)"
        )
    directory.chmod(0o700)


def is_private(directory: Path) -> bool:
    """Whether this is a real directory (no link) that we own and nobody else can enter."""
    try:
        found = directory.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077


@contextlib.contextmanager
def starting(directory: Path, seconds: float) -> Iterator[None]:
    """Be the only one, over all processes and threads, who starts or joins the server of this directory."""
    lock = _take(directory / START_LOCK, fcntl.LOCK_EX, seconds)
    try:
        yield
    finally:
        # Unlocked, not only closed: a process forked meanwhile has a copy of the descriptor.
        fcntl.flock(lock, fcntl.LOCK_UN)
        os.close(lock)


def own(directory: Path, seconds: float) -> int:
    """Become an owner; until the returned descriptor and its copies in forked children are closed, the server stays.

    While a server of an earlier owner is being ended, this waits.
    """
    return _take(directory / OWNERS_LOCK, fcntl.LOCK_SH, seconds)


def has_keeper(directory: Path) -> bool:
    """Whether a keeper, and so perhaps a server, runs there."""
    try:
        lock = os.open(directory / KEEPER_LOCK, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        if not try_lock(lock):
            return True
        fcntl.flock(lock, fcntl.LOCK_UN)
        return False
    finally:
        os.close(lock)


def _take(path: Path, operation: int, seconds: float) -> int:
    lock = open_lock(str(path))
    try:
        for _ in pauses(seconds):
            if try_lock(lock, operation):
                return lock
    except BaseException:
        os.close(lock)
        raise
    os.close(lock)
    raise EmbeddedServerError(
        f"another process has held {path} for {seconds:g} s: it is starting or ending the embedded server there,"
        " or it hangs; `fuser -v` names it"
    )


def pauses(seconds: float) -> Iterator[None]:
    """Come back at once, then after pauses growing from 5 to 50 ms, until the time is over."""
    deadline = time.monotonic() + seconds
    pause = 0.005
    yield
    while time.monotonic() < deadline:
        time.sleep(pause)
        pause = min(pause * 1.5, 0.05)
        yield


def new_socket_path(directory: Path) -> Path:
    """Where a new server's socket goes: into its directory, or a short private one if that path is too long."""
    path = directory / "server.sock"
    if len(os.fsencode(path)) <= _LONGEST_SOCKET_PATH:
        return path
    for base in (os.environ.get("XDG_RUNTIME_DIR", ""), tempfile.gettempdir(), "/tmp"):  # noqa: S108
        fits = len(os.fsencode(base)) <= _LONGEST_SOCKET_PATH - len("/penstock-12345678/server.sock")
        if os.path.isabs(base) and fits and os.access(base, os.W_OK | os.X_OK):
            # mkdtemp: a new name, mode 0700. A name that others can foretell could be taken before us.
            return Path(tempfile.mkdtemp(prefix="penstock-", dir=base), "server.sock")
    raise EmbeddedServerError(
        f"the path {path} is too long for a unix socket, and there is no short temporary directory to put it:"
        " name a shorter directory"
    )


def recorded_socket(directory: Path) -> Path | None:
    """The socket of the server that runs or ran here, if a keeper wrote it down and its place is still only ours."""
    try:
        path = Path(os.fsdecode((directory / SOCKET_RECORD).read_bytes()))
    except FileNotFoundError:
        return None
    return path if is_private(path.parent) else None


def discard_socket(socket_path: Path, directory: Path) -> None:
    """Remove a socket nobody serves, and the short directory that was made for it."""
    socket_path.unlink(missing_ok=True)
    if socket_path.parent != directory:
        with contextlib.suppress(OSError):
            socket_path.parent.rmdir()


def open_log(directory: Path) -> int:
    """The server's log, to append to; emptied first if it has grown beyond 1 MB."""
    log = os.open(directory / SERVER_LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    if os.fstat(log).st_size > _LONGEST_LOG:
        os.ftruncate(log, 0)
    return log


def last_log_lines(directory: Path, since: int) -> str:
    """What the server wrote after byte `since`, its last lines only."""
    with open(directory / SERVER_LOG, "rb") as log:
        log.seek(since)
        lines = log.read(_LONGEST_LOG).decode(errors="replace").splitlines()
    return "\n".join(f"  {line}" for line in lines[-_LOG_LINES:]) or "  (nothing was logged)"
