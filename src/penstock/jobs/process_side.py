"""The other side: a process that does the jobs a worker gives it, one after the other."""

import os
import signal
import socket
import threading
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from queue import SimpleQueue
from typing import Any

from penstock.backend.entry import ClaimedMessage, PartialDeliveryState
from penstock.delivery.delivery import AnyDelivery
from penstock.delivery.outcome import Reject, Snooze
from penstock.errors import EncodeError, JobCancelledError
from penstock.jobs.delivery import JobDelivery
from penstock.jobs.process_talk import (
    Begin,
    Cancel,
    Ended,
    Progressed,
    Raised,
    Rejected,
    Said,
    Snoozed,
    Stopped,
    framed,
    told,
)
from penstock.jobs.queue import JobQueue
from penstock.message.bodies import Bodies
from penstock.message.catalog import Catalog
from penstock.options import Priority


class _Desk:
    """Stands for the desk of the worker: a handler here settles nothing by hand."""

    def __init__(self, begin: Begin, context: "ProcessSide") -> None:
        self.topic = begin.topic
        self.group = begin.group
        self.max_attempts = begin.max_attempts
        self.context = context


class ProcessSide:
    """Does what comes over the wire until the worker at the other end is gone."""

    def __init__(self, wire: socket.socket, queues: Mapping[str, JobQueue]) -> None:
        self._wire = wire
        self._queues = queues
        self._jobs: SimpleQueue[Begin] = SimpleQueue()
        self._is_cancelled = False
        self._now: JobQueue | None = None
        self._writing = threading.Lock()

    def run(self) -> None:
        threading.Thread(target=self._listen, name="penstock-wire", daemon=True).start()
        while True:
            self._say(self._done(self._jobs.get()))

    # What a delivery asks of those who do jobs.

    @property
    def queue(self) -> str:
        return self._now.name if self._now is not None else ""

    def priority_of(self, lane: str) -> Priority:
        lanes = self._now.lanes if self._now is not None else {}
        return next(priority for priority, topic in lanes.items() if topic == lane)

    def progressed(self, delivery: AnyDelivery, percent: int, message: str) -> None:
        self._say(Progressed(percent, message))

    def is_cancelled(self, id: str) -> bool:
        return self._is_cancelled

    def _listen(self) -> None:
        while (frame := told(self._wire)) is not None:
            if isinstance(frame, Cancel):
                self._is_cancelled = True
            else:
                self._is_cancelled = False
                self._jobs.put(frame)
        # The worker is gone, and with it everybody who would hear of this job's end.
        if os.getpgrp() == os.getpid():  # as a worker starts it: what handlers have started belongs to it
            os.killpg(0, signal.SIGKILL)
        os._exit(0)

    def _done(self, begin: Begin) -> Said:
        try:
            queue = self._now = self._queues[begin.queue]
            return _ended(queue, queue.in_process(begin.kind)(self._delivery(queue, begin)))
        except JobCancelledError:
            return Stopped()
        except Reject as error:
            return Rejected(str(error))
        except Snooze as error:
            return Snoozed(error.delay.total_seconds(), str(error))
        except BaseException as error:  # noqa: BLE001 - also SystemExit: the worker must hear of it
            return Raised(type(error).__name__, str(error), "".join(traceback.format_exception(error)))

    def _delivery(self, queue: JobQueue, begin: Begin) -> JobDelivery[Any]:
        message, now = queue.unpack(begin.topic, begin.origin, begin.raw), datetime.now(UTC)
        state = PartialDeliveryState(
            begin.attempt, now, now, redelivered=begin.redelivered, deliveries=begin.deliveries
        )
        entry = ClaimedMessage(begin.entry, message, state, begin.stream, begin.origin, 0, begin.raw)
        return JobDelivery(message.body, entry, _Desk(begin, self))  # type: ignore[arg-type]

    def _say(self, frame: Said) -> None:
        with self._writing:  # a handler may report from a thread of its own
            self._wire.sendall(framed(frame))


def _ended(queue: JobQueue, result: Any) -> Said:
    try:
        return Ended(Bodies(Catalog(()), queue.limits).write(result, None))
    except EncodeError as error:
        if queue.keeps_results:
            return Rejected(f"what the handler returned cannot be kept: {error}")
        return Ended(b"null")
