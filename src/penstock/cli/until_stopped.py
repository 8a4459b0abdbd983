"""Commands that run until they are stopped: Ctrl-C or SIGTERM is how they end, and no failure."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from penstock.cli.leaving import stopping_signals


@contextmanager
def until_stopped() -> Iterator[None]:
    """Whatever asks the process to end raises KeyboardInterrupt in the block, so that it ends what it has begun."""
    others = [number for number in stopping_signals() if number != signal.SIGINT]
    with _ctrl_c_handled():
        before = {number: signal.signal(number, _as_ctrl_c) for number in others}
        try:
            with suppress(KeyboardInterrupt):
                yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _as_ctrl_c(number: int, frame: FrameType | None) -> None:
    """By what a running event loop has put in Ctrl-C's place: it cancels its task, where others would break it."""
    handler = signal.getsignal(signal.SIGINT)
    (handler if callable(handler) else signal.default_int_handler)(signal.SIGINT, frame)


@contextmanager
def _ctrl_c_handled() -> Iterator[None]:
    """Where Ctrl-C is ignored, as by a job that a script has started with &, it is still of no effect, but handled."""
    if callable(signal.getsignal(signal.SIGINT)):
        yield
        return
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
