"""Running an app in this process until somebody asks for its end."""

import asyncio
import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from penstock.cli.leaving import LastResort, StopRequest
from penstock.cli.saying import warn
from penstock.events import Event, Started, Stopped
from penstock.jobs.processes import HandlerProcesses

if TYPE_CHECKING:
    from penstock.app import Penstock

_BEAT_SECONDS = 1.0
_MARGIN_SECONDS = 1.5  # by which a beat may be late for no fault of a handler's
_SERVER_SECONDS = 5.0  # for what a drain has to tell the server, beyond the time it gives handlers
_LEAVE_SECONDS = 3.0  # for exit hooks of the user's, once all is drained


@dataclass(frozen=True)
class Terms:
    """What the faces of an app have agreed on with those who watch over it."""

    patience: float
    """Seconds without a turn of the event loop after which it is stuck: no delivery may take longer."""

    drain: float
    """Seconds in which it ends once asked."""

    workers: int
    """How many `Started` there will be."""

    @classmethod
    def of(cls, app: "Penstock") -> Self:
        faces = app.handled_faces
        options = [face.options for face in faces if face.options is not None]
        return cls(
            patience=max(one.timeout.total_seconds() for one in options) + _BEAT_SECONDS + _MARGIN_SECONDS,
            drain=max(one.drain.total_seconds() for one in options) + _SERVER_SECONDS,
            workers=sum(len(face.topics) for face in faces),
        )


@dataclass(frozen=True)
class Processes:
    """How many processes handlers may have that want one, and of which app."""

    count: int
    target: str

    @contextlib.contextmanager
    def opened(self, app: "Penstock") -> Iterator[None]:
        if not self.count:
            yield
            return
        command = (sys.executable, "-m", "penstock.cli.job_process", self.target)
        app.processes = HandlerProcesses(self.count, command)
        try:
            yield
        finally:
            app.processes.close()
            app.processes = None


class Service:
    """One run of an app. `beats` are called in the event loop, once a second or more often."""

    def __init__(
        self,
        app: "Penstock",
        stop: StopRequest,
        last_resort: LastResort,
        *,
        concurrency: int,
        processes: "Processes",
        beats: Sequence[Callable[[], None]],
        ready: Callable[[], None],
        draining: Callable[[], None] | None = None,
    ) -> None:
        self._app = app
        self._stop = stop
        self._last_resort = last_resort
        self._concurrency = concurrency
        self._processes = processes
        self._beats = beats
        self._ready = ready
        self._draining = draining
        self._terms = Terms.of(app)
        self._awaited = self._terms.workers

    def run(self) -> None:
        """Until the stop request is made and the app has drained. Raises what keeps it from running.

        When this returns or raises, the process ends soon, whatever threads may be stuck in it.
        """
        self._stop.within(self._terms.drain)
        if not self._stop.is_made:
            asyncio.run(self._run())

    async def _run(self) -> None:
        beating = asyncio.create_task(self._beat())
        asked = asyncio.create_task(self._stop.wait())
        try:
            async with contextlib.aclosing(self._app):
                await self._connect_unless(asked)
                if not asked.done():
                    with self._processes.opened(self._app):
                        await self._run_until(asked)
        except BaseException as error:  # whatever it was, the process ends of it
            self._last_resort.exit_after(_LEAVE_SECONDS, 1, " ".join(str(error).split()))
            raise
        finally:
            beating.cancel()
            asked.cancel()
            _flush()
        self._last_resort.exit_after(_LEAVE_SECONDS, 0)

    async def _connect_unless(self, asked: asyncio.Task[None]) -> None:
        opening = asyncio.create_task(self._app.open())
        await asyncio.wait({opening, asked}, return_when=asyncio.FIRST_COMPLETED)
        if asked.done():
            opening.cancel()
            await asyncio.gather(opening, return_exceptions=True)  # whatever it ran into, nobody needs it any more
        else:
            await opening

    async def _run_until(self, asked: asyncio.Task[None]) -> None:
        forget = self._app.listen(self._listen)
        running = asyncio.create_task(self._app.run(concurrency=self._concurrency, signals=False))
        try:
            await asyncio.wait({running, asked}, return_when=asyncio.FIRST_COMPLETED)
            if self._draining is not None and not running.done():
                self._draining()
            self._app.stop()
            await running
        finally:
            forget()

    async def _beat(self) -> None:
        seconds = min(_BEAT_SECONDS, self._terms.patience / 4)
        while True:
            for beat in self._beats:
                beat()
            await asyncio.sleep(seconds)

    def _listen(self, event: Event) -> None:
        if isinstance(event, Started):
            self._awaited -= 1
            if self._awaited == 0:
                self._ready()
        elif isinstance(event, Stopped) and event.abandoned:
            text = f"{event.abandoned} handlers of {event.topic}/{event.group} did not end in time and are left behind"
            warn(f"{text}; their messages come back when their lease runs out")


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):  # nobody listens any more
            stream.flush()
