"""Programs that work beside the demo: they say what they have to say in a file, and never outlive it."""

import asyncio
import os
import signal
from asyncio.subprocess import DEVNULL, STDOUT, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

_LEAVE_SECONDS = 3.0
_VANISH_SECONDS = 1.0
_LOOK_SECONDS = 0.02


@asynccontextmanager
async def running(command: Sequence[str], place: Path, name: str) -> AsyncIterator[Process]:
    """The program, which reads nothing; it, and all that it started, is gone when this is left.

    What it says goes to a file of that name in `place`, as do its temporary files. It has a session of its own: Ctrl-C
    at the terminal is for us, and we see to its end.
    """
    own = {**os.environ, "TMPDIR": str(place), "SPARK_LOCAL_DIRS": str(place)}
    with log_of(place, name).open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=DEVNULL, stdout=log, stderr=STDOUT, env=own, start_new_session=True
        )
    try:
        yield process
    finally:
        await _end(process)


async def _end(process: Process) -> None:
    if not _signal(process.pid, signal.SIGTERM):
        return
    with suppress(TimeoutError):
        async with asyncio.timeout(_LEAVE_SECONDS):
            await process.wait()
    _signal(process.pid, signal.SIGKILL)
    await process.wait()
    with suppress(TimeoutError):  # where nobody cares for orphans, the dead of its group stay in the list for ever
        async with asyncio.timeout(_VANISH_SECONDS):
            while _signal(process.pid, 0):  # noqa: ASYNC110 - the kernel tells nobody
                await asyncio.sleep(_LOOK_SECONDS)


def _signal(group: int, number: int) -> bool:
    """False if nobody of that group is there any more."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    return True


def log_of(place: Path, name: str) -> Path:
    return place / f"{name}.log"


def last_words(place: Path, name: str) -> str:
    """The last line of what the program of that name has said."""
    lines = log_of(place, name).read_text(errors="replace").splitlines()
    return next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")
