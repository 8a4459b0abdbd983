"""How a worker process comes to its end: asked once it drains, asked twice it dies, and in any case in time."""

import asyncio
import os
import queue
import signal
import threading
from collections.abc import Callable
from types import FrameType


def stopping_signals() -> list[signal.Signals]:
    """The signals that ask this process to end. SIGHUP is none of them if it is ignored, as `nohup` has it."""
    asking = [signal.SIGTERM, signal.SIGINT]
    return asking if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else [*asking, signal.SIGHUP]


class LastResort:
    """A thread that ends the process if it has not ended by itself in time. Nothing can be stuck in its way."""

    def __init__(self, clean_up: Callable[[], None] | None = None) -> None:
        self._clean_up = clean_up
        # Its put() may be called in a signal handler: it takes no lock that the interrupted code might hold.
        self._orders: queue.SimpleQueue[tuple[float, int, str]] = queue.SimpleQueue()
        threading.Thread(target=self._wait, name="penstock-last-resort", daemon=True).start()

    def exit_after(self, seconds: float, code: int, text: str = "") -> None:
        """Leave with this exit code after so many seconds, and say why; replaces what was ordered before."""
        self._orders.put((seconds, code, text))

    def _wait(self) -> None:
        seconds, code, text = self._orders.get()
        while True:
            try:
                seconds, code, text = self._orders.get(timeout=seconds)
            except queue.Empty:
                self._leave(code, text)

    def _leave(self, code: int, text: str) -> None:
        if self._clean_up is not None:
            self._clean_up()
        if text:
            # Not through sys.stderr: a thread that is stuck may hold its lock.
            os.write(2, f"penstock: {text}\n".encode())
        os._exit(code)


class StopRequest:
    """What the first signal sets. The second one ends the process, by the kernel's hand."""

    def __init__(self, last_resort: LastResort) -> None:
        self.is_made = False
        self._last_resort = last_resort
        self._deadline = 30.0
        self._made = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    def catch_signals(self) -> None:
        for number in stopping_signals():
            signal.signal(number, self._on_signal)

    def within(self, seconds: float) -> None:
        """How long the process may take to end, once asked."""
        self._deadline = seconds

    def make(self) -> None:
        """Ask for the end. From any thread, also from a signal handler."""
        self.is_made = True
        text = f"it did not end within {self._deadline:g} s after it was asked to: its event loop or a handler is stuck"
        self._last_resort.exit_after(self._deadline, 1, text)
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._made.set)

    async def wait(self) -> None:
        self._loop = asyncio.get_running_loop()
        if not self.is_made:
            await self._made.wait()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        for one in stopping_signals():
            if signal.getsignal(one) == self._on_signal:  # or the user's module has taken it for a use of its own
                # The kernel's own handling works even where Python is stuck in a call that never returns.
                signal.signal(one, signal.SIG_DFL)
        self.make()
