"""A private server for whoever has none: started on demand, shared by its owners, gone with the last of them.

How long it lives is the kernel's business, not ours: each owner holds a shared lock on a file in the server's
directory, and a keeper process waits for the exclusive one. A killed owner lets go like any other.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

from penstock.backend import embedded_directory as home
from penstock.backend import embedded_keeper
from penstock.backend.address import default_directory
from penstock.backend.embedded_binary import find_binary
from penstock.backend.embedded_talk import (
    RefusedError,
    is_ready,
    listen_on_tcp,
    listening_port,
    shut_down,
)
from penstock.errors import ConfigurationError, EmbeddedServerError

_READY_SECONDS = 60.0
# Whoever is before us in the queue may need all of its time, and the end of an earlier server a little more.
_TURN_SECONDS = _READY_SECONDS + 15.0
_READY = b"ready"


class EmbeddedServer:
    """One owner's share of an embedded server; the server runs until its last owner closes or ends, however it ends.

    A process forked from an owner is an owner too, until it ends or runs another program. All calls block.
    """

    def __init__(
        self, directory: Path, socket_path: Path, port: int | None, url: str, *, owner_lock: int, ephemeral: bool
    ) -> None:
        self.directory = directory
        self.socket_path = socket_path
        self.port = port
        self.url = url
        self._held = [owner_lock]
        self._ephemeral = ephemeral

    @classmethod
    def start(cls, directory: Path | None = None, *, ephemeral: bool = False, tcp: bool = False) -> Self:
        """Join the server of this directory, or start it; returns when it answers and has read all its data.

        No directory means the default one, under `$XDG_STATE_HOME`. With `ephemeral` it is a server of its own in a
        new temporary directory, which is removed with it. With `tcp` the server also listens on 127.0.0.1, open to
        every user of this machine, and `url` points there. Raises `EmbeddedServerError`, which ends with the
        server's last log lines if it had a say.
        """
        if ephemeral and directory is not None:
            raise ConfigurationError("an ephemeral embedded server has a directory of its own: leave `directory` out")
        if ephemeral:
            return cls._start_ephemeral(tcp)
        return cls._start(home.prepare(directory or default_directory()), ephemeral=False, tcp=tcp)

    @classmethod
    def _start_ephemeral(cls, tcp: bool) -> Self:
        directory = Path(os.path.realpath(tempfile.mkdtemp(prefix="penstock-")))
        try:
            return cls._start(directory, ephemeral=True, tcp=tcp)
        except BaseException:
            shutil.rmtree(directory, ignore_errors=True)
            raise

    @classmethod
    def _start(cls, directory: Path, *, ephemeral: bool, tcp: bool) -> Self:
        try:
            with contextlib.ExitStack() as undo:
                undo.enter_context(home.starting(directory, _TURN_SECONDS))
                owner_lock = home.own(directory, _TURN_SECONDS)
                keep = undo.enter_context(contextlib.ExitStack())
                keep.callback(os.close, owner_lock)
                socket_path, port = _join_or_launch(directory, ephemeral=ephemeral, tcp=tcp)
                keep.pop_all()
        except (OSError, RefusedError) as error:
            raise EmbeddedServerError(
                f"the embedded server in {directory} could not be started or did not stay up: {error}"
            ) from error
        url = f"redis://127.0.0.1:{port}/0" if tcp else f"unix://{quote(str(socket_path))}"
        return cls(directory, socket_path, port, url, owner_lock=owner_lock, ephemeral=ephemeral)

    def close(self) -> None:
        """Give up this share, at once; does not wait for the server to end. Closing again does nothing."""
        try:
            owner_lock = self._held.pop()
        except IndexError:
            return
        # Asked while the share is still ours, so that no living keeper ends the server meanwhile. Neither the keeper's
        # lock nor the server's socket tells: the kernel keeps both until the last thread of a killed process is gone.
        is_left_to_others = not self._ephemeral or (is_ready(self.socket_path) and home.has_keeper(self.directory))
        os.close(owner_lock)
        if not is_left_to_others:
            shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<EmbeddedServer {self.url} in {self.directory}{'' if self._held else ', closed'}>"


def _join_or_launch(directory: Path, *, ephemeral: bool, tcp: bool) -> tuple[Path, int | None]:
    """Socket and port of a server that is ready. The caller is an owner already, so its keeper will not end it now."""
    for _ in home.pauses(_READY_SECONDS):
        if home.has_keeper(directory):
            socket_path = home.recorded_socket(directory)
        else:
            socket_path = _launch(directory, "ephemeral" if ephemeral else "durable")
        if socket_path is None or not is_ready(socket_path):
            continue
        # A keeper that was just killed may still seem to be there, and its server may answer once more.
        with contextlib.suppress(OSError):
            port = listening_port(socket_path)
            return socket_path, listen_on_tcp(socket_path) if tcp and port is None else port
    raise EmbeddedServerError(
        f"the embedded server in {directory} runs, but did not answer for {_READY_SECONDS:g} s:"
        f" see {directory / home.SERVER_LOG}"
    )


def _launch(directory: Path, lifetime: str) -> Path | None:
    """Start a keeper and its server; None if a keeper that was already on its way came first."""
    binary = find_binary()
    _forget_previous(directory)
    socket_path = home.new_socket_path(directory)
    with contextlib.ExitStack() as open_files:
        log = home.open_log(directory)
        open_files.callback(os.close, log)
        said_before = os.fstat(log).st_size
        pipe = _run_keeper([str(binary), str(directory), str(socket_path), lifetime], log)
        open_files.callback(os.close, pipe)
        verdict = _await_ready(socket_path, pipe)
    if verdict == _READY:
        return socket_path
    if verdict is None:
        raise _failure(directory, binary, f"did not get ready within {_READY_SECONDS:g} s", said_before)
    home.discard_socket(socket_path, directory)
    if verdict == embedded_keeper.LOST:
        return None
    raise _failure(directory, binary, "ended while it started", said_before)


def _run_keeper(arguments: list[str], log: int) -> int:
    """Run a keeper; the returned pipe says nothing while there is hope, and closes when its server has ended."""
    command = [sys.executable, "-I", "-S", embedded_keeper.__file__, *arguments]
    pipe, its_end = os.pipe()
    try:
        # A session of its own: Ctrl-C in the owner's terminal is meant for the owner. This waits for the first
        # process only, which goes as soon as the keeper is a daemon.
        subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=its_end, stderr=log, cwd="/", start_new_session=True, check=False
        )
    except BaseException:
        os.close(pipe)
        raise
    finally:
        os.close(its_end)
    os.set_blocking(pipe, False)
    return pipe


def _await_ready(socket_path: Path, pipe: int) -> bytes | None:
    """`_READY` once the server answers; what the keeper said if that ended first; None if time ran out."""
    for _ in home.pauses(_READY_SECONDS):
        if is_ready(socket_path):
            return _READY
        with contextlib.suppress(BlockingIOError):
            return os.read(pipe, 64)
    return None


def _forget_previous(directory: Path) -> None:
    # Without its keeper a server is dying (Linux) or an orphan that nobody will ever end (elsewhere).
    previous = home.recorded_socket(directory)
    if previous is not None:
        shut_down(previous)
        home.discard_socket(previous, directory)


def _failure(directory: Path, binary: Path, what: str, said_before: int) -> EmbeddedServerError:
    return EmbeddedServerError(
        f"the embedded server ({binary}) in {directory} {what}. If its append-only file is damaged: repair it with"
        f" valkey-check-aof --fix, or move {directory}/appendonlydir away to start without the messages in it; or name"
        f" another directory, as in embedded:///absolute/directory. Its last log lines, of {home.SERVER_LOG} there:\n"
        f"{home.last_log_lines(directory, said_before)}"
    )
