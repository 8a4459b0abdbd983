"""A thread with an event loop, and the way to wait for what runs there."""

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from penstock.errors import ConfigurationError, ServerUnreachableError

T = TypeVar("T")

_CANCEL_SECONDS = 5.0


class LoopThread:
    """Runs coroutines for other threads, from now until `close`. Of no use in a process forked since then."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._submitting = threading.Lock()
        self._is_closing = False
        self._end = asyncio.Event()
        # Made here, so that what keeps a loop from being made is raised here.
        runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._loop = runner.get_loop()
        self._thread = threading.Thread(target=self._run, args=(runner,), name="penstock-sync", daemon=True)
        self._thread.start()

    @property
    def is_ours(self) -> bool:
        """False in a process that was forked from the one that made this."""
        return os.getpid() == self._process

    def check(self) -> None:
        """Raise unless the calling thread may wait for this loop."""
        if not self.is_ours:
            raise ConfigurationError(
                f"this app was opened in process {self._process}, and process {os.getpid()} was forked from it:"
                " neither thread nor connection comes along, so open an app of its own in each process after the fork"
            )
        if threading.current_thread() is self._thread:
            raise ConfigurationError(
                "this app was called from its own loop thread, where a filter or a listener runs: it would wait for"
                " itself for ever; collect there, and call afterwards"
            )

    def call(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """What the coroutine returns or raises. It sees the caller's context variables, as a trace needs it.

        If the wait is interrupted, as by Ctrl-C, the coroutine is cancelled and has ended when this raises.
        """
        self.check()
        call = _Call(self._loop, make())
        try:
            self._submit(call)
            call.wait()
        except BaseException:
            call.cancel()
            raise
        return call.result()

    def close(self) -> None:
        """Cancel what still runs, and end the thread."""
        self.check()
        with self._submitting:
            if not self._is_closing:
                self._is_closing = True
                with contextlib.suppress(RuntimeError):  # the loop has ended by itself
                    self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()

    def _submit(self, call: "_Call[Any]") -> None:
        # Under a lock, so that the loop meets every call before it meets the end: one behind it would wait for ever.
        with self._submitting:
            if not self._is_closing:
                with contextlib.suppress(RuntimeError):  # the loop has ended by itself
                    # In a copy of the caller's context, which the task inherits: a trace lives there.
                    self._loop.call_soon_threadsafe(call.begin)
                    return
        call.drop()
        raise ConfigurationError("this app is closed: open it again, or connect another")

    def _run(self, runner: asyncio.Runner) -> None:
        with runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        await self._end.wait()


class _Call(Generic[T]):
    """One coroutine on its way through the loop. `begin` runs in the loop's thread, all else in the caller's."""

    def __init__(self, loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, T]) -> None:
        self._loop = loop
        self._coroutine = coroutine
        self._task: asyncio.Task[T] | None = None
        self._ended = threading.Event()

    def begin(self) -> None:
        self._task = self._loop.create_task(self._coroutine)
        self._task.add_done_callback(lambda _: self._ended.set())

    def wait(self) -> None:
        self._ended.wait()

    def result(self) -> T:
        if self._task is None or self._task.cancelled():
            raise ServerUnreachableError("the app was closed while this call was under way: it may or may not be done")
        return self._task.result()

    def cancel(self) -> None:
        """Have it end, and wait for that; not for ever, since whoever asks for this wants to leave."""
        with contextlib.suppress(RuntimeError):  # the loop has ended, and so has the call
            self._loop.call_soon_threadsafe(self._cancel)
            self._ended.wait(_CANCEL_SECONDS)

    def drop(self) -> None:
        """It will never begin."""
        self._coroutine.close()
        self._ended.set()

    def _cancel(self) -> None:
        if self._task is None:  # interrupted before it was handed over
            self.drop()
        else:
            self._task.cancel()
