"""Keeps a number of worker processes running: starts them, replaces those that die or are stuck, and ends them.

It loads nothing of the user's, so nothing of the user's can harm it.
"""

import contextlib
import os
import selectors
import signal
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from urllib.parse import quote

from msgspec.structs import replace

from penstock.backend.embedded import EmbeddedServer
from penstock.cli.child import Child
from penstock.cli.leaving import stopping_signals
from penstock.cli.liveness import Endpoint, LivenessFile, LivenessPort, Pulse
from penstock.cli.saying import say, warn
from penstock.cli.usage import COULD_NOT, DONE, UNREACHABLE, USAGE
from penstock.cli.worker import Settings

_LOOK_SECONDS = 0.5
_GRACE_SECONDS = 5.0
_FIRST_DELAY = 1.0
_LONGEST_DELAY = 60.0
_HEALTHY_SECONDS = 60.0
_PULSE_SECONDS = 5.0
_SAID = (DONE, COULD_NOT, USAGE, UNREACHABLE)  # exit codes with which a worker has said itself what there was to say


class Post:
    """A place for one worker: who holds it, and when it is to be filled again."""

    def __init__(self) -> None:
        self.child: Child | None = None
        self.start_at = 0.0
        self._failures = 0

    def vacate(self, lived: float, *, was_ready: bool) -> float:
        """The worker has ended; returns after how many seconds the next one may start.

        Longer after every worker that did not last: one that dies at once must not take the machine with it.
        """
        self._failures = 1 if was_ready and lived >= _HEALTHY_SECONDS else self._failures + 1
        delay: float = min(_LONGEST_DELAY, _FIRST_DELAY * 2 ** min(self._failures - 1, 10))
        self.child, self.start_at = None, time.monotonic() + delay
        return delay


class Supervisor:
    """Runs until a signal ends it, or the first worker cannot start."""

    def __init__(
        self, settings: Settings, workers: int, file: LivenessFile | None, port: Endpoint | None, *, embedded: bool
    ) -> None:
        self._settings = settings
        self._posts = [Post() for _ in range(workers)]
        self._file = file
        self._port = port
        self._embedded = embedded
        self._pulse = Pulse(_PULSE_SECONDS)
        self._selector = selectors.DefaultSelector()
        self._signals: deque[int] = deque()
        self._is_stopping = False
        self._has_begun = False
        """Some worker has been ready: what goes wrong from now on is not for want of a right command line."""

        self._code = 0

    def run(self) -> int:
        """Until all workers have ended; returns the exit code."""
        with ExitStack() as ending:
            ending.enter_context(self._woken_by_signals())
            ending.callback(self._selector.close)
            if self._file is not None:
                ending.callback(self._file.remove)
            if self._port is not None:
                answering = LivenessPort(self._port, self._pulse.is_alive)
                ending.callback(answering.close)
                say(f"Liveness on {answering.url}")
            if self._embedded:
                server = ending.enter_context(EmbeddedServer.start())
                # Not by its socket: each worker is to be an owner too, so that it can drain even if we are killed.
                self._settings = replace(self._settings, url=f"embedded://{quote(str(server.directory))}")
            self._supervise()
        if len(self._signals) > 1:
            signal.signal(self._signals[1], signal.SIG_DFL)
            os.kill(os.getpid(), self._signals[1])
        if self._has_begun:
            say("Stopped.")
        return self._code

    def _supervise(self) -> None:
        while not self._is_stopping or self._children:
            self._obey_signals()
            for post in self._posts:
                self._look_after(post)
            self._show_life()
            self._wait()

    @property
    def _children(self) -> list[Child]:
        return [post.child for post in self._posts if post.child is not None]

    def _look_after(self, post: Post) -> None:
        child, now = post.child, time.monotonic()
        if child is None:
            # The first one alone: if it cannot run, that is said once, not once by each.
            if not self._is_stopping and now >= post.start_at and (self._has_begun or post is self._posts[0]):
                self._start(post)
            return
        self._listen_to(child)
        if child.is_ready and not self._has_begun:
            self._has_begun = True
            say(f"Running {self._settings.target} in {len(self._posts)} processes. Ctrl-C to stop.")
        if child.exit_code() is not None:
            self._ended(post, child)
        elif child.stop_by is not None and now > child.stop_by:
            self._kill(child, "it did not end in time after it was asked to")
        elif not child.is_turning:
            self._kill(
                child, f"its event loop has been stuck for {child.silence:.1f} s, longer than a delivery may take"
            )

    def _start(self, post: Post) -> None:
        post.child = Child(self._settings)
        self._selector.register(post.child.pipe, selectors.EVENT_READ)

    def _listen_to(self, child: Child) -> None:
        if not child.is_mute:
            child.listen()
            if child.is_mute:  # else the selector would report it without end
                self._selector.unregister(child.pipe)

    def _ended(self, post: Post, child: Child) -> None:
        if not child.is_mute:
            self._selector.unregister(child.pipe)
        child.forget()
        delay = post.vacate(time.monotonic() - child.started, was_ready=child.is_ready)
        code = child.exit_code() or 0
        if self._is_stopping:
            # One that was still starting had nothing to drain, and one that died before was not asked to.
            if code and child.is_ready and child.stop_by is not None:
                self._fail(f"{child.name} {child.ending()}")
        elif not self._has_begun:
            self._is_stopping = True
            self._code = code
            if code not in _SAID:
                self._fail(f"{child.name} {child.ending()} before it was ready")
        else:
            warn(f"{child.name} {child.ending()}; another one starts in {delay:g} s")

    def _kill(self, child: Child, why: str) -> None:
        if not child.was_killed:
            warn(f"killing {child.name}: {why}")
            child.kill()

    def _fail(self, text: str) -> None:
        self._code = 1
        warn(text)

    def _obey_signals(self) -> None:
        if self._signals and not self._is_stopping:
            self._is_stopping = True
            if self._has_begun:
                say("Draining. Ctrl-C again to end at once.")
            for child in self._children:
                child.ask_to_stop(_GRACE_SECONDS)
        if len(self._signals) > 1:
            for child in self._children:
                child.kill()

    def _show_life(self) -> None:
        # One worker that turns is enough: those that do not are replaced, and whoever looks here would end them all.
        if any(child.is_ready and child.is_turning for child in self._children):
            self._pulse.beat()
            if self._file is not None:
                self._file.touch()

    def _wait(self) -> None:
        """Until somebody says something, a signal comes, or it is time to look again."""
        if not self._is_stopping or self._children:
            for key, _ in self._selector.select(_LOOK_SECONDS):
                if key.data == "signals":
                    with contextlib.suppress(BlockingIOError):
                        os.read(key.fd, 4096)

    @contextmanager
    def _woken_by_signals(self) -> Iterator[None]:
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        os.set_blocking(writing, False)
        self._selector.register(reading, selectors.EVENT_READ, "signals")
        for number in stopping_signals():
            signal.signal(number, lambda number, _: self._signals.append(number))
        # Only to be woken: without a handler of ours the end of a child would be noticed late.
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        previous = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(previous)
            os.close(reading)
            os.close(writing)
