"""Threads for handlers that are plain functions."""

import asyncio
import contextvars
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeAlias

from penstock.delivery.slot import current_slot

_Job: TypeAlias = "tuple[asyncio.AbstractEventLoop, asyncio.Future[Any], Callable[[], Any]]"
_MOST_LOST = 4  # times as many threads as were asked for, if so many hang


class _Once:
    """Calls a function no more than once."""

    def __init__(self, function: Callable[[], None]) -> None:
        self._function: Callable[[], None] | None = function

    def __call__(self) -> None:
        function, self._function = self._function, None
        if function is not None:
            function()


class HandlerThreads:
    """A few daemon threads, started as they are needed.

    Not the standard pool: at exit that waits for its threads, so one handler that never returns would keep the process
    from ending. A handler that outlives its timeout keeps its thread and its runner; another thread takes its place.
    """

    def __init__(self, size: int) -> None:
        self._free = asyncio.Semaphore(size)
        self._most = size * _MOST_LOST
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._started = 0
        self._idle = 0

    async def call(self, function: Callable[[Any], Any], argument: Any) -> Any:
        """Run `function(argument)` in a thread, in the caller's context. Waiting for a thread is no handler's time."""
        slot = current_slot.get(None)
        if slot is not None and self._free.locked():
            slot.wait()
        await self._free.acquire()
        release = _Once(self._free.release)
        try:
            if slot is not None:
                slot.begin()
                slot.in_thread = True
            running = self._start(function, argument)
            while not running.done():
                try:
                    await asyncio.wait([running])
                except asyncio.CancelledError:
                    if slot is None or slot.is_ending:
                        if slot is not None:
                            slot.is_stuck = not running.done()
                        raise
                    # Out of time, but nothing can stop a thread: it keeps its runner, and others get another thread.
                    release()
            return running.result()
        finally:
            if slot is not None:
                slot.in_thread = False
            release()

    def close(self) -> None:
        """Let the threads end when they have nothing to do any more."""
        for _ in range(self._started):
            self._jobs.put(None)

    def _start(self, function: Callable[[Any], Any], argument: Any) -> "asyncio.Future[Any]":
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        context = contextvars.copy_context()
        if self._idle > 0:
            self._idle -= 1
        elif self._started < self._most:
            self._started += 1
            threading.Thread(target=self._work, name=f"penstock-handler-{self._started}", daemon=True).start()
        self._jobs.put((loop, future, lambda: context.run(function, argument)))
        return future

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            loop, future, call = job
            result: Any = None
            error: BaseException | None = None
            try:
                if not future.cancelled():
                    result = call()
            except BaseException as raised:  # noqa: BLE001 - also SystemExit: it must reach the one who waits
                error = raised
            try:
                loop.call_soon_threadsafe(self._finished, future, result, error)
            except RuntimeError:  # the loop has ended, and with it whoever waited
                return

    def _finished(self, future: "asyncio.Future[Any]", result: Any, error: BaseException | None) -> None:
        self._idle += 1
        if future.done():
            return
        if error is None:
            future.set_result(result)
        elif isinstance(error, StopIteration):
            # No future can hold it: it would end whoever awaits it without a word.
            future.set_exception(RuntimeError(f"the handler raised {error!r}"))
        else:
            future.set_exception(error)
