"""Files of exported entries: written as a whole or not at all, read line by line."""

import os
import secrets
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO, Any

from penstock.cli.given import stdin
from penstock.cli.usage import UsageError

LONGEST_LINE = 512 << 20
"""Bytes: as many as the largest value that a server takes. A file without line breaks must not fill the memory."""


@contextmanager
def writing(file: Path) -> Iterator[IO[bytes]]:
    """Where to write what belongs into a file; - is stdout. If the block fails, the file is as it was before."""
    if str(file) == "-":
        yield sys.stdout.buffer
        sys.stdout.flush()  # or a reader that has left would be told of after all was said to be exported
        return
    if is_written_to(file):
        with _opened(file, "wb") as out:
            yield out
        return
    whole = Path(os.path.realpath(file))  # what a link leads to: the link stays
    part = whole.with_name(f".penstock-{secrets.token_hex(8)}.part")  # of that name there is nobody else's file
    try:
        with _opened(part, "xb", file) as out:
            if whole.exists():
                os.fchmod(out.fileno(), stat.S_IMODE(whole.stat().st_mode))
            yield out
        part.replace(whole)
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise


@contextmanager
def reading(file: Path) -> Iterator[IO[bytes]]:
    """Where to read what is in a file; - is stdin."""
    if str(file) == "-":
        yield stdin()
        return
    with _opened(file, "rb") as lines:
        yield lines


def lines_of(file: IO[bytes]) -> Iterator[bytes]:
    """Line by line; one that is longer than `LONGEST_LINE` comes in pieces, each of which is, too."""
    return iter(partial(file.readline, LONGEST_LINE + 1), b"")


def is_written_to(file: Path) -> bool:
    """Straight away: it is stdout, a pipe or a device."""
    return str(file) == "-" or (file.exists() and not file.is_file())


def _opened(file: Path, mode: str, given: Path | None = None) -> Any:
    try:
        return file.open(mode)
    except OSError as error:
        raise UsageError(f"{given or file} cannot be opened: {error.strerror}.") from error
