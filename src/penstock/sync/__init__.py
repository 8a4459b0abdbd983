"""Penstock for programs without an event loop: the same calls, and each returns when it is done.

    with Penstock.connect("redis://localhost") as app:
        orders = app.bus("orders", group="billing")
        orders.publish({"order": 1})
        for letter in orders.dead:
            ...

One thread with one event loop does the work of all callers, so what many threads publish at once shares its writes.
Handlers are run by `penstock run`, or by the asynchronous app.
"""

import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from types import TracebackType
from typing import Any, Self, TypeVar

from penstock.app import Penstock as AsyncPenstock
from penstock.backend import keys
from penstock.bus.bus import Bus as AsyncBus
from penstock.bus.publisher import Receipt
from penstock.errors import ConfigurationError, PenstockError
from penstock.options import LEASE, JobOptions, Priority, Retry, Sending, Subscription
from penstock.sync.jobs import JobQueue
from penstock.sync.letters import Call, DeadLetters
from penstock.sync.loop_thread import LoopThread

T = TypeVar("T")

_BODIES_PER_CALL = 1000


class Penstock:
    """Declares faces and connects them. Any number of threads may use one at the same time.

    `Penstock(app)` is the blocking front of an asynchronous app that is set up already, with its logs, wire formats and
    tracing; that app must then not be opened by anybody else.
    """

    def __init__(self, app: AsyncPenstock) -> None:
        self._app = app
        self._thread: LoopThread | None = None
        self._turn = threading.Lock()

    @classmethod
    def connect(cls, url: str | None = None, *, prefix: str = "") -> Self:
        """Connect on `with` to `url`, else to $PENSTOCK_URL, else to the embedded server.

        `prefix` goes before every topic name that does not begin with it already, so that several environments can
        share a server.
        """
        return cls(AsyncPenstock.connect(url, prefix=prefix))

    def bus(
        self,
        topic: str | Sequence[str],
        *,
        group: str | None = None,
        retry: Retry = Retry(),  # noqa: B008 - frozen
        lease: timedelta = LEASE,
        start: str | datetime = "earliest",
        options: Subscription = Subscription(),  # noqa: B008 - frozen
    ) -> "Bus":
        """A bus of one topic or several, which publishes; with a group, also the way to its dead letters."""
        face = self._app.bus(topic, group=group, retry=retry, lease=lease, start=start, options=options)
        return Bus(face, self._call)

    def jobs(
        self,
        queue: str,
        *,
        group: str = keys.JOB_GROUP,
        retry: Retry = Retry(),  # noqa: B008 - frozen
        lanes: Mapping[Priority, str] | None = None,
        options: JobOptions = JobOptions(),  # noqa: B008 - frozen
    ) -> JobQueue:
        """A queue of jobs, which enqueues them and looks after them."""
        return JobQueue(self._app.jobs(queue, group=group, retry=retry, lanes=lanes, options=options), self._call)

    def open(self) -> Self:
        """Start the thread and connect, unless that is done. `with` does this."""
        self._check_fork()
        with self._turn:
            if self._thread is None:
                thread = LoopThread()
                try:
                    thread.call(self._app.open)
                except BaseException:
                    thread.close()
                    raise
                self._thread = thread
        return self

    def close(self) -> None:
        """Let go of the server and end the thread. Calls that are under way in other threads fail. Idempotent.

        In a process that was forked since the app was opened it does nothing: all there was belongs to the parent.
        """
        thread = self._thread
        if thread is None or not thread.is_ours:
            return
        thread.check()
        with self._turn:
            thread, self._thread = self._thread, None
            if thread is not None:
                try:
                    thread.call(self._app.aclose)
                finally:
                    thread.close()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.{type(self).__name__} of {self._app!r}>"

    def _call(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        thread = self._thread
        if thread is None:
            raise ConfigurationError("this app is not connected: use it within `with app:`, or call app.open() first")
        return thread.call(make)

    def _check_fork(self) -> None:
        # Before any lock is taken: another thread may have held it when the process was forked.
        if self._thread is not None:
            self._thread.check()


class Bus:
    """Publishes to topics, and looks after a group's dead letters. Made by `Penstock.bus`."""

    def __init__(self, face: AsyncBus, call: Call) -> None:
        self._face = face
        self._call = call

    @property
    def topics(self) -> tuple[str, ...]:
        return self._face.topics

    @property
    def group(self) -> str | None:
        return self._face.group

    def publish(
        self,
        body: Any,
        *,
        key: str | None = None,
        id: str | None = None,
        headers: Mapping[str, str] | None = None,
        once: bool = False,
        sending: Sending | None = None,
    ) -> Receipt:
        """Append a message; it is on the server when this returns.

        It is sent once: if the connection breaks before the answer, `PublishUnknownError` carries its id. With `once`,
        or an `id` of your own, it may be published again under that id, and is stored only once within a day.
        """
        return self._call(lambda: self._face.publish(body, key=key, id=id, headers=headers, once=once, sending=sending))

    def publish_many(
        self, bodies: Iterable[Any], *, once: bool = False, topic: str | None = None
    ) -> "list[Receipt | PenstockError]":
        """Append many, in order, taken from the iterable as they are sent. One result for each, never fail-fast.

        What the iterable itself raises is raised here; what was taken from it before is then stored, but perhaps for
        the last ones.
        """
        # Taken in the caller's thread: what is slow to come must not hold up the other threads' calls.
        given = iter(bodies)
        results: list[Receipt | PenstockError] = []
        while True:
            some = list(islice(given, _BODIES_PER_CALL))
            if results and not some:
                return results
            results += self._call(partial(self._face.publish_many, some, once=once, topic=topic))
            if len(some) < _BODIES_PER_CALL:
                return results

    @property
    def dead(self) -> "DeadLetters":
        """The dead letters of this bus's group."""
        return DeadLetters(self._face.dead, self._call)

    def pause(self) -> None:
        """Have every worker of the group stop reading, within about a second, until `resume`. Survives restarts."""
        self._call(self._face.pause)

    def resume(self) -> None:
        self._call(self._face.resume)

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.{type(self).__name__} of {self._face!r}>"
