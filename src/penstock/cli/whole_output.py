"""Stdout that ends where a write ended: what is written in one call is not cut by a signal."""

import io
import os
import select
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from penstock.cli.postponing import Asked

_ENOUGH = 64 * 1024


@contextmanager
def whole_output() -> Iterator[None]:
    """Have `sys.stdout` be such a one; what is no file is left alone."""
    before = sys.stdout
    if not (isinstance(before, io.TextIOWrapper) and isinstance(before.buffer, io.BufferedWriter | io.FileIO)):
        yield
        return
    before.flush()
    pieces = WholeOutput(before.fileno(), at_once=isinstance(before.buffer, io.RawIOBase))
    sys.stdout = io.TextIOWrapper(
        pieces, before.encoding, before.errors, "\n",
        line_buffering=before.line_buffering, write_through=before.write_through,
    )  # fmt: skip
    try:
        yield
    finally:
        sys.stdout = before


def unheard(number: int) -> None:
    """Give to nobody what is written to this file from now on: it is not refused, and waits for no reader."""
    nobody = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nobody, number)
    os.close(nobody)


class WholeOutput(io.BufferedIOBase):
    """Bytes for a file. What one call writes gets there as a whole, or not at all.

    A raw file, as stdout is with `python -u`, writes less than it was given when a signal comes; a buffered one forgets
    what is left when a handler raises. Here a signal that ends the process does so when all is written, and a second
    one at once. `at_once`: nothing waits for a flush.
    """

    def __init__(self, number: int, *, at_once: bool) -> None:
        self._number = number
        self._enough = 0 if at_once else _ENOUGH
        self._asked = Asked()
        self._poll = select.poll()
        self._poll.register(number, select.POLLOUT)
        self._begin()
        # In a child, no thread is left that would give the lock back, or write what waits: its parent does that.
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        self._waiting: list[bytes] = []
        self._size = 0
        self._is_writing = False
        self._lock = threading.RLock()

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._number

    def isatty(self) -> bool:
        return os.isatty(self._number)

    def write(self, data: Any, /) -> int:
        with self._lock:
            self._waiting.append(bytes(data))
            self._size += len(data)
            if self._size >= self._enough:
                self._drain()
        return len(data)

    def flush(self) -> None:
        with self._lock:
            self._drain()

    def _drain(self) -> None:
        if self._is_writing or not self._waiting:  # a signal's handler may print: that comes behind what it interrupts
            return
        is_main = threading.current_thread() is threading.main_thread()  # which alone has to do with signals
        try:
            self._is_writing = True
            if is_main and not self._has_room():
                self._write_unless_asked_twice()
            else:
                self._write_all()
        finally:
            self._is_writing = False

    def _has_room(self) -> bool:
        """It is written at once, in one piece: setting signals up and back takes longer than that does."""
        return self._size <= select.PIPE_BUF and bool(self._poll.poll(0))

    def _write_unless_asked_twice(self) -> None:
        with self._asked.postponed():
            try:
                self._write_all()
            except KeyboardInterrupt:  # what would be written on the way out is to keep nobody waiting either
                unheard(self._number)
                raise

    def _write_all(self) -> None:
        while self._waiting:
            rest = memoryview(b"".join(self._waiting))
            self._waiting, self._size = [], 0
            while rest:
                rest = rest[self._written(rest) :]

    def _written(self, rest: memoryview) -> int:
        try:
            return os.write(self._number, rest)
        except BlockingIOError:  # somebody who has the file too has made it so
            self._poll.poll()
            return 0
