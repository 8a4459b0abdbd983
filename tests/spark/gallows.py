"""A gallows at named steps: what is planned for a step is done once, to or by whoever comes to it first.

A kill is planned in a file, `plan/<step> <batch> <victim> <number>`; who carries it out moves it to `done/`, and what
is in it then are the ids of the processes that were killed. A driver or a server is found by `<victim>.pid`, and that
file is taken: nobody else kills the same process, and a kill that finds none stays planned. Any other victim is the
process itself that comes to the step.
"""

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

PLACE = "PENSTOCK_TEST_KILLS"
"""Names the directory of the run, to every process that has a gallows."""

OTHERS = ("driver", "server")


@dataclass(frozen=True)
class Kill:
    step: str
    victim: str
    batch: int = 0
    """Not before this batch, as far as a step knows its batch."""

    def __str__(self) -> str:
        return f"{self.step} {self.batch} {self.victim}"


@dataclass(frozen=True)
class Killed:
    """A kill that was carried out."""

    step: str
    victim: str
    pids: tuple[int, ...]
    at: float
    """When, as the file system has it."""


def prepare(place: Path) -> None:
    for name in ("plan", "done"):
        (place / name).mkdir()


def plan(place: Path, kills: Sequence[Kill]) -> None:
    first = len(list(place.glob("plan/*"))) + len(list(place.glob("done/*")))
    for number, kill in enumerate(kills, first):
        (place / "plan" / f"{kill} {number}").touch()


def left(place: Path) -> list[str]:
    return sorted(kill.name for kill in (place / "plan").iterdir())


def carried_out(place: Path) -> list[Killed]:
    done = []
    for file in sorted((place / "done").iterdir()):
        step, _, victim, _ = file.name.split(" ")
        done.append(Killed(step, victim, tuple(map(int, file.read_text().split())), file.stat().st_ctime))
    return done


def offer(place: Path, victim: str, *pids: int) -> None:
    """From now on this driver or server may be killed; the last of its processes is the one that is watched."""
    draft = place / f".{victim}.pid"
    draft.write_text(" ".join(map(str, pids)))
    draft.rename(place / f"{victim}.pid")


def here() -> Path:
    return Path(os.environ[PLACE])


def step(name: str, batch: int | None = None, instead: "Mapping[str, Callable[[], None]] | None" = None) -> None:
    """Carry out what is planned for here and now, if nobody else has; `instead` of dying, some victims do this."""
    place = here()
    # Who is to die himself does so first: whoever comes next can still kill the others, and see him dead.
    for planned in sorted(place.glob("plan/*"), key=lambda planned: planned.name.split(" ")[2] in OTHERS):
        at, when, victim, _ = planned.name.split(" ")
        if at != name or (batch is not None and int(when) > batch) or not _take(place, planned, victim):
            continue
        if instead is not None and victim in instead:
            instead[victim]()
        else:
            _kill(place / "done" / planned.name)


def _take(place: Path, planned: Path, victim: str) -> bool:
    done = place / "done" / planned.name
    try:
        planned.rename(done)
    except FileNotFoundError:
        return False  # somebody else was faster
    if victim not in OTHERS:
        done.write_text(str(os.getpid()))
        return True
    try:
        (place / f"{victim}.pid").rename(done)
    except FileNotFoundError:
        done.rename(planned)  # it was killed just now, and is not back yet
        return False
    return True


def _kill(done: Path) -> None:
    for pid in done.read_text().split():
        with suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
    # The rest of this process goes on for a moment, as on a machine that lost its driver: a zombie.
    time.sleep(0.05)
