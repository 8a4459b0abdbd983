"""A queue of jobs, as its user sees it."""

import asyncio
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from types import NoneType
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.backend.base import StreamBackend
from penstock.backend.old_queue import OldQueue
from penstock.delivery.crew import Handle
from penstock.delivery.duty import Duty
from penstock.delivery.handlers import Handlers, Middleware
from penstock.delivery.leases import LeaseKeeper
from penstock.delivery.letters import DeadLetters
from penstock.delivery.outcome import Reject
from penstock.delivery.plan import Plan
from penstock.delivery.threads import HandlerThreads
from penstock.delivery.worker import Worker
from penstock.errors import ConfigurationError, PenstockError
from penstock.events import Listeners, Scope, Trouble
from penstock.jobs.beside import beside
from penstock.jobs.delivery import JobDelivery
from penstock.jobs.doing import Doing
from penstock.jobs.enqueuing import Claim, Enqueuer, Trace, When
from penstock.jobs.host import Host
from penstock.jobs.job import Job, JobHandle, JobStatus
from penstock.jobs.ledger import Ledger, deadline_after
from penstock.jobs.listing import Listing
from penstock.jobs.migration import Migration
from penstock.jobs.old_jobs import Bands
from penstock.jobs.pulling import Puller
from penstock.jobs.schedules import Schedule, Schedules
from penstock.jobs.stats import QueueStats, stats_of
from penstock.jobs.taking import Pulled, Taking
from penstock.jobs.terms import Terms
from penstock.jobs.ticking import Ticker
from penstock.jobs.timetable import Missed, Timetable
from penstock.message.message import Message
from penstock.message.wire import Wire
from penstock.options import AckMode, Priority, Subscription, Unhandled, Unique, check_count, check_kind

if TYPE_CHECKING:
    from penstock.telemetry.tracing import Tracing

F = TypeVar("F", bound=Callable[[Any], Any])

_DRAIN_SECONDS = 0.05
_NO_PROCESSES = "it has handlers that want a process of their own: run it with `penstock run --processes N`"


class JobQueue:
    """Enqueues jobs into three lanes, and has workers do them, the urgent ones first. Made by `Penstock.jobs`."""

    def __init__(
        self,
        terms: Terms,
        wires: Mapping[str, Wire],
        backend: Callable[[], StreamBackend],
        listeners: Listeners,
        trace: Trace | None,
        host: Host,
    ) -> None:
        self.name = terms.queue
        self.lanes = terms.lanes
        self.topics = tuple(terms.lanes.values())
        self.group: str | None = terms.group
        self._wires = wires
        self._backend = backend
        self._listeners = listeners
        self._terms = terms
        self._host = host
        self._is_kept = False
        self._in_process: dict[str | None, Callable[[Any], Any]] = {}
        self.limits = next(iter(wires.values())).limits
        self._pulled_now: Pulled | None = None
        self._is_running = False
        self._handlers = Handlers(tuple(wires.values()))
        self._tell = partial(_tell, listeners, terms.group)
        self._ledger = Ledger(backend, terms, wires)
        self._schedules: dict[str, Schedule] = {}
        self._enqueuer = Enqueuer(backend, terms, self._ledger, trace, self._tell)

    @property
    def server(self) -> StreamBackend:
        """The connection as this queue uses it, for tools. Raises `ConfigurationError` unless connected."""
        return self._backend()

    @property
    def options(self) -> Subscription | None:
        return self._terms.plan.options

    @property
    def keeps_results(self) -> bool:
        """Whether what handlers return is kept; else it may be anything."""
        return self._terms.options.results

    @property
    def is_busy(self) -> bool:
        """Never: a job is settled after its handler has ended."""
        return False

    def on(self, tp: Any, *, process: bool = False) -> Callable[[F], F]:
        """Register the handler of a kind of job; `dict` takes any JSON object that no other handler takes.

        An `async def` is awaited, a plain `def` runs in a thread, or, with `process`, in a process of its own: see
        `penstock run --processes`. It returns: the job is done. It raises: the job is tried again later, until its
        attempts are used up; `Reject` gives it up at once, `Snooze` puts it off.
        """
        self._check_can_register()
        kind = self._handlers.check(tp, 1)

        def register(function: F) -> F:
            self._handlers.add(tp, self._elsewhere(kind, function) if process else function, 1)
            self._keep_once()
            return function

        return register

    def in_process(self, kind: str | None) -> Callable[[Any], Any]:
        """The handler of this kind that is to run in a process of its own: here."""
        return self._in_process[kind]

    def unpack(self, lane: str, entry_id: str, raw: Sequence[bytes]) -> Message[Any]:
        """The message in an entry of one of its lanes."""
        return self._wires[lane].unpack(lane, entry_id, raw)

    def default(self, function: F) -> F:
        """Register the handler of whatever no other handler takes."""
        self._check_can_register()
        self._handlers.add_default(function)
        self._keep_once()
        return function

    def middleware(self, function: Middleware) -> Middleware:
        """Register what runs around every handler: `async def f(delivery, call_next)`. The first is outermost."""
        self._check_can_register()
        self._handlers.add_middleware(function)
        return function

    def trace(self, tracing: "Tracing") -> None:
        """Trace every attempt. `Penstock.trace` sees to it."""
        self._handlers.add_middleware(tracing.around, tracing.around_batch)

    async def enqueue(
        self,
        body: Any,
        *,
        priority: Priority = Priority.NORMAL,
        delay: timedelta | None = None,
        at: datetime | None = None,
        unique_key: str | None = None,
        unique: Unique | timedelta = Unique.UNTIL_DONE,
    ) -> JobHandle:
        """Have a job done: it is on the server when this returns. With `delay` or `at`, not before then.

        `body` may be a `Message`, to give the job an id, headers or a type of your own. It is sent once: if the
        connection breaks before the answer, `PublishUnknownError` carries its id. With a `unique_key` there is one such
        job at a time: if one stands for that key already, nothing is enqueued, and the handle is that one's. `unique`
        says how long it does: while it is queued, until it is done, or for a window of time.
        """
        message, when = _as_message(body), When(delay, at)
        if unique_key is None:
            return await self._enqueuer.enqueue(message, priority, when)
        return await self._enqueuer.enqueue_unique(message, priority, when, Claim(unique_key, unique))

    async def enqueue_many(
        self,
        bodies: Iterable[Any],
        *,
        priority: Priority = Priority.NORMAL,
        delay: timedelta | None = None,
        at: datetime | None = None,
    ) -> "list[JobHandle | PenstockError]":
        """Have many done, in order, taken from the iterable as they are sent. One result for each, never fail-fast."""
        return await self._enqueuer.enqueue_many(map(_as_message, bodies), priority, When(delay, at))

    def cron(
        self,
        expression: str,
        body: Any,
        *,
        name: str = "",
        timezone: str = "UTC",
        priority: Priority = Priority.NORMAL,
        missed: Missed = Missed.latest(),  # noqa: B008 - frozen
    ) -> None:
        """Have a job enqueued at the times of a cron expression, by whichever workers of the queue run then.

        However many there are, each tick is enqueued once. The times are those of `timezone`, by the server's clock:
        what the clocks of a day leave out is done right behind the gap, and what they repeat is done once, unless the
        minute or the hour is a `*`. A schedule is known by its `name`, or else by the type of the body: declared anew
        with other times, it begins anew. `missed` says what becomes of ticks at which no worker was there.
        """
        self._check_can_register()
        table, lane = Timetable(expression, timezone, missed), self._enqueuer.lane(priority)
        schedule = Schedule(name, table, _as_message(body), priority, self._terms, self._wires[lane])
        if schedule.name in self._schedules:
            raise ConfigurationError(
                f"the queue {self.name!r} has a schedule {schedule.name!r} already: give this one another name"
            )
        self._schedules[schedule.name] = schedule

    @property
    def schedules(self) -> Schedules:
        """The schedules of this queue on the server: list, pause, resume, forget."""
        return Schedules(self._backend, self.name)

    def migration(
        self,
        source: OldQueue = OldQueue(),  # noqa: B008 - frozen
        bands: Bands = Bands(),  # noqa: B008 - frozen
        show: Callable[[int, int], None] = lambda done, total: None,
    ) -> Migration:
        """How the jobs of a queue in a sorted set of the same server are taken over. `show` is told how far it is."""
        return Migration(self._backend(), self._terms, self._wires, source, bands, show)

    async def stats(self) -> QueueStats:
        """How many jobs wait, run, and are dead, lane by lane."""
        return await stats_of(self._backend(), self._terms)

    async def drain(self, timeout: timedelta | None = None) -> None:
        """Wait until no job is queued or runs; those that wait for their time do not count. Workers must be running.

        Raises TimeoutError if it takes longer than `timeout`.
        """
        deadline = deadline_after(timeout)
        is_idle = (await self.stats()).is_idle  # one look there is, however short the time
        async with asyncio.timeout_at(deadline):
            while not is_idle:
                await asyncio.sleep(_DRAIN_SECONDS)
                is_idle = (await self.stats()).is_idle

    async def job(self, id: str) -> JobHandle:
        """The job of this id; raises `JobNotFoundError` if nothing is known of it."""
        return await self._ledger.find(id)

    async def unfinished(self, status: JobStatus | None = None, *, most: int = 100) -> list[Job]:
        """Up to `most` jobs that are not done, of this status or of any: those in the lanes, those that wait, the dead.

        Lane by lane, the most urgent first. Of those that are done nothing is left to list.
        """
        check_kind("unfinished(...)", status, JobStatus, NoneType)
        check_count("unfinished(most=...)", most)
        return await Listing(self._backend, self._terms, self._ledger, self.dead).jobs(status, most)

    async def dequeue(self, timeout: timedelta = timedelta(0)) -> JobDelivery[Any] | None:
        """The most urgent job there is, for you to settle: `ack()`, `retry()` or `reject()`. None: there is none.

        Waits up to `timeout` for one. It is yours for the queue's lease, and not looked after: if it is not settled by
        then, whoever works on the queue next takes it over, and that counts as an attempt.
        """
        return await self.pulled.puller.next(timeout)

    def take(self, timeout: timedelta = timedelta(0)) -> Taking:
        """The same as a block: `async with queue.take() as job`, which is None if there is none.

        Its lease is renewed until the block is left, or the queue's timeout is over. Then it is settled: done if the
        block ended, tried again or given up if it raised, as with a handler.
        """
        return Taking(self.pulled.taker, timeout)

    @property
    def dead(self) -> DeadLetters:
        """The dead letters of this queue, lane by lane."""
        return DeadLetters(self._backend, self._wires, self._terms.group, self._listeners)

    async def pause(self) -> None:
        """Have every worker of the queue begin no more jobs, within about a second, until `resume`."""
        for lane in self.topics:
            await self._backend().pause(lane, self._terms.group)

    async def resume(self) -> None:
        for lane in self.topics:
            await self._backend().resume(lane, self._terms.group)

    async def work(self, stop: asyncio.Event, keeper: LeaseKeeper, concurrency: int) -> None:
        """Have jobs done by the handlers until `stop` is set, then drain. `Penstock.run` calls this."""
        if self._handlers.is_empty:
            raise ConfigurationError(f"the queue {self.name!r} has no handlers: register one with on()")
        if self._in_process and self._host.processes() is None:
            raise ConfigurationError(f"the queue {self.name!r} cannot run: {_NO_PROCESSES}")
        threads = HandlerThreads(self._terms.options.threads)
        self._is_running = True
        try:
            route = self._handlers.route(threads, Unhandled.DEAD_LETTER)
            plan = replace(self._terms.plan, concurrency=concurrency, consumer="")
            doing = self._doing(plan.consumer, route.one)
            duties = self._duties(plan, doing)
            worker = Worker(duties, keeper, doing.do, bound=self._terms.options.bound, make=JobDelivery)
            ticker = Ticker(self._backend(), self._terms, tuple(self._schedules.values()), self._listeners.emit)
            async with beside(stop, doing.attend(worker.slots), *([ticker.run()] if self._schedules else [])):
                await worker.run(stop)
        finally:
            self._is_running = False
            threads.close()
            await self._handlers.flush()

    @property
    def pulled(self) -> Pulled:
        """For those who ask for jobs: the same until the app connects anew."""
        backend = self._backend()
        if self._pulled_now is None or self._pulled_now.backend is not backend:
            self._pulled_now = Pulled(backend, self._puller)
            self._host.at_close(self._pulled_now.close)
        return self._pulled_now

    def _puller(self, renews: bool) -> tuple[Puller, Doing]:
        options = replace(self._terms.plan.options, ack=AckMode.MANUAL)
        plan = replace(self._terms.plan, consumer="", options=options)
        doing = self._doing(plan.consumer, None)
        return Puller(self._duties(plan, doing), self._terms.options.bound, renews=renews), doing

    def _doing(self, consumer: str, handle: Handle | None) -> Doing:
        return Doing(self._backend(), self._terms, consumer, self.limits, handle, self._tell)

    def _duties(self, plan: Plan, doing: Doing) -> list[Duty]:
        backend = self._backend()
        return [Duty(replace(plan, topic=lane), backend, self._listeners, doing) for lane in self.topics]

    def _elsewhere(self, kind: str | None, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """What calls `function` in a process of its own."""
        if inspect.iscoroutinefunction(function):
            raise ConfigurationError(f"on(process=True) is for a plain function: {function!r} is async")
        self._in_process[kind] = function

        async def call(job: JobDelivery[Any]) -> Any:
            processes = self._host.processes()
            if processes is None:
                raise Reject(_NO_PROCESSES)
            return await processes.call(self.name, kind, job)

        return call

    def _keep_once(self) -> None:
        if not self._is_kept:
            self._is_kept = True
            self._host.keep(self)

    def _check_can_register(self) -> None:
        if self._is_running:
            raise ConfigurationError(f"{self!r} is running: register handlers and middleware before that")

    def __repr__(self) -> str:
        return f"<JobQueue {self.name} group={self.group!r}>"


def _as_message(body: Any) -> Message[Any]:
    return body if isinstance(body, Message) else Message(body)


def _tell(listeners: Listeners, group: str, topic: str, error: PenstockError) -> None:
    listeners.emit(Trouble(Scope.UPKEEP, error, topic=topic, group=group))
