"""What asks this process to end, put off until what must be whole is done; whoever asks again is obeyed at once."""

import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

_ASKING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_ENDING = (signal.SIG_DFL, signal.default_int_handler)


class Asked:
    """Whether this process was asked to end, as far as its blocks have seen it. For the main thread."""

    def __init__(self) -> None:
        self._is_so = False

    @contextmanager
    def postponed(self) -> Iterator[None]:
        """The first signal that would end the block takes effect behind it. The second one is the kernel's.

        What is ignored stays so, and a signal that has a handler of somebody's own is handed to it as ever. If
        Ctrl-C is what led here, or a signal came during an earlier block, that was the first.
        """
        found: dict[int, Any] = {number: signal.getsignal(number) for number in _ASKING}
        kept = {number: handler for number, handler in found.items() if callable(handler) or handler in _ENDING}
        ending = {number: handler for number, handler in kept.items() if handler in _ENDING}
        come: list[int] = []

        def on_signal(number: int, frame: FrameType | None) -> None:
            self._is_so = True
            _set(kept)  # first: a handler may want to see itself, and put another one there
            _set(dict.fromkeys(ending, signal.SIG_DFL))
            if number in ending:
                come.append(number)
            else:
                kept[number](number, frame)

        self._is_so = self._is_so or isinstance(sys.exc_info()[1], KeyboardInterrupt)
        _set(dict.fromkeys(ending, signal.SIG_DFL) if self._is_so else dict.fromkeys(kept, on_signal))
        try:
            yield
        finally:
            _set(ending if self._is_so else kept)
        for number in come:
            signal.raise_signal(number)


def _set(handlers: Mapping[int, Any]) -> None:
    """All of them, before any of these signals is heard."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ASKING)
    try:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
