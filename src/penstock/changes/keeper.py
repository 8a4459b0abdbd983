"""Keeps turns from a thread with a connection of its own: who works on a message may block the event loop meanwhile."""

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from penstock.backend.base import StreamBackend
from penstock.backend.pace import Pace
from penstock.changes.turn import Turn
from penstock.errors import PenstockError, ServerUnreachableError

Complain = Callable[[Turn, Exception], None]


class TurnKeeper:
    """One thread and one connection for all turns of an app. It starts with the first turn that it is to keep."""

    def __init__(self, backend: StreamBackend, complain: Complain) -> None:
        self._backend = backend
        self._complain = complain
        self._turns: list[Turn] = []
        self._owner = asyncio.get_running_loop()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._changed = asyncio.Event()
        self._ended = asyncio.Event()
        self._is_closing = False
        self._thread: threading.Thread | None = None

    def keep(self, turn: Turn) -> None:
        self._turns.append(turn)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="penstock-turns", daemon=True)
            self._thread.start()
        self._nudge()

    def drop(self, turn: Turn) -> None:
        if turn in self._turns:
            self._turns.remove(turn)

    async def aclose(self) -> None:
        """Idempotent."""
        self._is_closing = True
        self._nudge()
        if self._thread is not None:
            await self._ended.wait()

    def _nudge(self) -> None:
        if self._loop is not None:
            with suppress(RuntimeError):  # it has ended
                self._loop.call_soon_threadsafe(self._changed.set)

    def _run(self) -> None:
        try:
            asyncio.run(self._keep())
        finally:
            with suppress(RuntimeError):  # the owner's loop was closed without a word
                self._owner.call_soon_threadsafe(self._ended.set)

    async def _keep(self) -> None:
        self._loop = asyncio.get_running_loop()
        pace = Pace(most=1.0)
        while not self._is_closing:
            try:
                await self._keep_with_own_connection(pace)
            except Exception as error:  # noqa: BLE001 - if this thread ended, so would every turn, without a word
                for turn in tuple(self._turns):
                    self._complain(turn, error)
                pace.failed()
                await pace.ready()

    async def _keep_with_own_connection(self, pace: Pace) -> None:
        backend = await self._backend.another()
        try:
            while not self._is_closing:
                for turn in tuple(self._turns):
                    if turn.due <= time.monotonic():
                        await self._renew(backend, turn)
                pace.succeeded()
                await self._sleep()
        finally:
            await backend.aclose()

    async def _renew(self, backend: StreamBackend, turn: Turn) -> None:
        asked_at = time.monotonic()
        if turn.is_given_up():
            turn.due = asked_at + turn.seconds / 3
            return
        try:
            is_ours = await backend.keep_turn(turn.topic, turn.reader, turn.token, turn.lease)
        except ServerUnreachableError:
            raise
        except PenstockError as error:
            turn.due = asked_at + min(turn.seconds / 3, 0.5)
            self._complain(turn, error)
            return
        if is_ours:
            turn.renewed(asked_at)
        elif turn in self._turns:  # else it was left while we asked
            self.drop(turn)
            with suppress(RuntimeError):
                self._owner.call_soon_threadsafe(turn.lose)

    async def _sleep(self) -> None:
        self._changed.clear()
        if self._is_closing:
            return
        due = min([turn.due for turn in tuple(self._turns)], default=time.monotonic() + 5.0)
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, min(5.0, due - time.monotonic()))):
                await self._changed.wait()
