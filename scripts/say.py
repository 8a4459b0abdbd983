"""How the set-up scripts speak and how they run programs."""

import os
import shlex
import subprocess
from collections.abc import Mapping, Sequence


class SetupFailed(Exception):
    """The set-up cannot go on; the text says what to do and is all that is shown."""


def say(line: str) -> None:
    """Print one line at once: what follows may take a minute and may write to the same terminal."""
    print(f"set-up: {line}", flush=True)


def run(
    command: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    keep_open: Sequence[int] = (),
    quiet: bool = False,
) -> None:
    """Run a program without input. When this raises `SetupFailed`, the program's own words have been shown."""
    settings = {**os.environ, **(environment or {})}
    output = subprocess.PIPE if quiet else None
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT if quiet else None,
            env=settings,
            pass_fds=keep_open,
            check=False,
        )
    except OSError as error:
        raise SetupFailed(f"cannot run {command[0]}: {error.strerror}") from error
    if done.returncode != 0:
        print((done.stdout or b"").decode("utf-8", "replace"), end="", flush=True)
        raise SetupFailed(f"this failed with exit code {done.returncode}: {shlex.join(command)}")
