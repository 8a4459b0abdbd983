"""The process beside an embedded server: starts it, and ends it when its last owner is gone.

Run as a script by `embedded.py`, with nothing but the standard library and few modules of it: its start is part of
every first connect. The invariant: whoever holds `keeper.lock` is the only one who starts, ends or cleans up here,
and `server.lock` is held for as long as a server may write to this directory, whatever became of its keeper.

All locks are flock(2) locks, which the kernel drops when the last process holding them ends, however it ends.
"""

import contextlib
import fcntl
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType

OWNERS_LOCK = "owners.lock"  # shared by every owner; the keeper gets it exclusively when no owner is left
KEEPER_LOCK = "keeper.lock"  # held by the keeper for its whole life
SERVER_LOCK = "server.lock"  # inherited by the server, so that it outlives a killed keeper
SOCKET_RECORD = "socket"  # a file that holds the path of the server's socket
LOST = b"lost"  # told to the starter when another keeper was first

_PREVIOUS_SERVER_SECONDS = 10.0
_GRACE_SECONDS = 10.0
_PR_SET_PDEATHSIG = 1


def main(binary: str, directory: str, socket_path: str, lifetime: str) -> int:
    """Serve until the last owner is gone or the server ends by itself; returns how the server ended.

    `lifetime` is "durable" or "ephemeral"; the latter removes the directory once no owner is left. Standard output
    is a pipe to the starter, open for as long as there is hope for the server; standard error is the log.
    """
    _become_daemon()
    keeper_lock = open_lock(os.path.join(directory, KEEPER_LOCK))
    owners_lock = open_lock(os.path.join(directory, OWNERS_LOCK))
    if not try_lock(keeper_lock):
        with contextlib.suppress(OSError):
            os.write(1, LOST)
        return 0
    try:
        return _keep(binary, directory, socket_path, owners_lock)
    finally:
        _clean_up(directory, socket_path)
        os.close(1)
        if lifetime == "ephemeral":
            fcntl.flock(owners_lock, fcntl.LOCK_EX)
            _remove(directory)


def _become_daemon() -> None:
    # The starter waits for this first process only, so it has no child that it did not ask for.
    if os.fork():
        os._exit(0)
    os.chdir("/")
    os.umask(0o077)
    # What the starter ignores or blocks would be inherited: without SIGCHLD waitpid() fails, without SIGTERM the
    # server cannot be asked to end.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _keep(binary: str, directory: str, socket_path: str, owners_lock: int) -> int:
    server_lock = open_lock(os.path.join(directory, SERVER_LOCK))
    if not _lock_within(server_lock, _PREVIOUS_SERVER_SECONDS):
        os.write(2, b"the previous server of this directory has lost its keeper, but does not end\n")
        return 1
    with contextlib.suppress(FileNotFoundError):
        os.unlink(socket_path)
    _record(directory, socket_path)
    server = _start(_command(binary, directory, socket_path), server_lock)
    os.close(server_lock)

    def ask_to_end(_number: int, _frame: FrameType | None) -> None:
        os.kill(server, signal.SIGTERM)

    signal.signal(signal.SIGTERM, ask_to_end)
    ended = threading.Event()
    threading.Thread(target=_end_without_owners, args=(owners_lock, server, ended), daemon=True).start()
    status = os.waitpid(server, 0)[1]
    ended.set()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    return os.waitstatus_to_exitcode(status)


def _end_without_owners(owners_lock: int, server: int, ended: threading.Event) -> None:
    # Granted by the kernel when no owner is left, and held until this process ends: an owner that comes now waits
    # until everything is cleaned up, and then starts a server of its own.
    fcntl.flock(owners_lock, fcntl.LOCK_EX)
    with contextlib.suppress(ProcessLookupError):
        if not ended.is_set():
            os.kill(server, signal.SIGTERM)
        if not ended.wait(_GRACE_SECONDS):
            os.kill(server, signal.SIGKILL)


def _command(binary: str, directory: str, socket_path: str) -> list[str]:
    settings = {
        "port": "0",
        "bind": "127.0.0.1",
        "protected-mode": "yes",
        "unixsocket": socket_path,
        "unixsocketperm": "700",
        "dir": directory,
        "appendonly": "yes",
        "appendfsync": "everysec",
        "save": "",
        "maxmemory-policy": "noeviction",
        "daemonize": "no",
        "logfile": "",
    }
    return [binary, *(part for name, value in settings.items() for part in (f"--{name}", value))]


def _start(command: list[str], server_lock: int) -> int:
    die_with_keeper = _death_wish()
    keeper = os.getpid()
    child = os.fork()
    if child:
        return child
    try:
        die_with_keeper()
        # The keeper may have died before the wish was made; then nobody would ever end this server.
        if os.getppid() == keeper:
            os.set_inheritable(server_lock, True)
            os.dup2(2, 1)
            os.execv(command[0], command)  # noqa: S606
    except OSError as error:
        os.write(2, f"cannot run {command[0]}: {error.strerror}\n".encode(errors="surrogateescape"))
    finally:
        os._exit(127)


def _death_wish() -> Callable[[], object]:
    """Have the kernel kill the calling process when its parent ends. Only Linux can; elsewhere it does nothing.

    SIGKILL loses nothing: the server writes to the append-only file before it replies.
    """
    if sys.platform != "linux":
        return lambda: None
    import ctypes

    prctl = ctypes.CDLL(None).prctl
    arguments = [ctypes.c_ulong(number) for number in (signal.SIGKILL, 0, 0, 0)]
    return lambda: prctl(_PR_SET_PDEATHSIG, *arguments)


def _record(directory: str, socket_path: str) -> None:
    path = os.path.join(directory, SOCKET_RECORD)
    with open(f"{path}.new", "wb") as file:
        file.write(os.fsencode(socket_path))
    os.replace(f"{path}.new", path)


def _clean_up(directory: str, socket_path: str) -> None:
    for name in (socket_path, os.path.join(directory, SOCKET_RECORD)):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
    if os.path.dirname(socket_path) != directory:
        with contextlib.suppress(OSError):
            os.rmdir(os.path.dirname(socket_path))


def _remove(directory: str) -> None:
    import shutil

    shutil.rmtree(directory, ignore_errors=True)


def open_lock(path: str) -> int:
    """A descriptor to flock, closed in programs that this process runs."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def try_lock(lock: int, operation: int = fcntl.LOCK_EX) -> bool:
    """Take the lock if nobody stands in the way; never waits."""
    try:
        fcntl.flock(lock, operation | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _lock_within(lock: int, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not try_lock(lock):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
