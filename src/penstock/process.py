"""What a process has only one of, however many apps run in it: its signals, and its garbage collector.

Penstock's only state that belongs to no object, because these belong to none either.
"""

import gc
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_STOPPING = (signal.SIGTERM, signal.SIGINT)
_OBJECTS_PER_COLLECTION = 10_000

_lock = threading.Lock()
_to_stop: list[Callable[[], object]] = []
_handlers_before: dict[int, Any] = {}
_thresholds_before: list[tuple[int, int, int]] = []


@contextmanager
def stopped_by_signals(stop: Callable[[], object]) -> Iterator[None]:
    """Call `stop`, in the main thread, at the first SIGTERM or SIGINT until this is left.

    All who wait are called. The second signal does what the first would have done without us: who insists wants the
    process to end, not to drain. Outside the main thread, where Python gives nobody a signal, nothing is caught.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _to_stop.append(stop)
    if not _handlers_before:
        for number in _STOPPING:
            _handlers_before[number] = signal.signal(number, _on_signal)
    try:
        yield
    finally:
        _to_stop.remove(stop)
        if not _to_stop:
            _give_signals_back()


def _on_signal(number: int, frame: FrameType | None) -> None:
    _give_signals_back()
    for stop in tuple(_to_stop):
        stop()


def _give_signals_back() -> None:
    for number, before in _handlers_before.items():
        if signal.getsignal(number) is _on_signal:  # or somebody has taken it from us meanwhile
            signal.signal(number, before if before is not None else signal.SIG_DFL)
    _handlers_before.clear()


@contextmanager
def spared_by_the_collector() -> Iterator[None]:
    """Have the garbage collector look at less, and less often, until the last one leaves this.

    A full collection looks at everything that was ever imported, for 10 ms, once in some 20,000 messages. And by
    default a collection begins with every 700 objects more: a batch of messages, none of them garbage yet, is several
    of those, and costs a tenth of all time.
    """
    with _lock:
        before = gc.get_threshold()
        if not _thresholds_before:
            gc.collect()  # else what is garbage now would be kept for as long
            gc.freeze()
            if before[0]:  # 0: switched off, by somebody who knows why
                gc.set_threshold(max(before[0], _OBJECTS_PER_COLLECTION), *before[1:])
        _thresholds_before.append(before)
    try:
        yield
    finally:
        with _lock:
            first = _thresholds_before[0]
            _thresholds_before.pop()
            if not _thresholds_before:
                gc.set_threshold(*first)
                gc.unfreeze()
