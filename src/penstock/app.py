"""The front door: one place to connect, and the faces that share the connection."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext
from datetime import datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from weakref import WeakValueDictionary

from penstock.backend import keys
from penstock.backend.base import StreamBackend
from penstock.backend.redis import RedisBackend
from penstock.backend.trail import Trail
from penstock.bus.bus import Bus
from penstock.changes.changes import Changes
from penstock.changes.ground import Ground, Tools
from penstock.changes.opening import Opening
from penstock.changes.stream import ChangeStream
from penstock.changes.terms import Terms
from penstock.delivery.face import Face
from penstock.delivery.leases import LeaseKeeper
from penstock.delivery.outcome import Snooze
from penstock.delivery.plan import Plan, refuse_terms, start_id
from penstock.delivery.together import run_together
from penstock.errors import ConfigurationError
from penstock.events import Listener, Listeners
from penstock.jobs.host import Host
from penstock.jobs.processes import HandlerProcesses
from penstock.jobs.queue import JobQueue
from penstock.jobs.terms import lanes_of, terms_of
from penstock.keyed.keyed_bus import KeyedBus
from penstock.keyed.partitions import names_of, ordering_of
from penstock.message.wire import Wire
from penstock.options import LEASE, ByKey, ChangeOptions, JobOptions, Priority, Retry, Subscription, check_kind
from penstock.process import spared_by_the_collector, stopped_by_signals
from penstock.tail.hub import Hub
from penstock.tail.places import After
from penstock.tail.tail import QUEUE, Tail
from penstock.telemetry.logs import Logs
from penstock.telemetry.observer import ErrorObserver, observe

if TYPE_CHECKING:
    import redis.asyncio

    from penstock.telemetry.tracing import Tracing

_NATIVE = Wire()
_LOGS: Listener = Logs()
"""Stands for a `Logs()` of the app's own: what one app has told of is news in another."""


class Penstock:
    """Declares faces, connects them, and runs them. Declaring needs no connection, so it may happen in a module."""

    def __init__(
        self, url: str | None, client: "redis.asyncio.Redis | None", prefix: str, logs: Listener | None
    ) -> None:
        if url is not None and client is not None:
            raise ConfigurationError("connect to a URL or like a client, not both")
        if not isinstance(prefix, str) or not prefix.isprintable():
            raise ConfigurationError(f"a prefix is text that can be printed, not {prefix!r}")
        self.url = url
        self._client = client
        self.prefix = prefix
        self._listeners = Listeners()
        if logs is not None:
            self._listeners.listen(Logs() if logs is _LOGS else logs)
        self._wires: dict[str, Wire] = {}
        # Weak, but for those with handlers: a program may ask for a bus each time it publishes.
        self._faces: WeakValueDictionary[int, Face] = WeakValueDictionary()
        self._handled: list[Face] = []
        self._made = 0
        self._backend: RedisBackend | None = None
        self._stop: asyncio.Event | None = None
        self._is_stop_due = False
        self._idle = asyncio.Event()
        self._tracing: Tracing | None = None
        self._hub: Hub | None = None
        self._tools: Tools | None = None
        self._reading: set[ChangeStream[Any]] = set()
        self._at_close: list[Callable[[], Awaitable[None]]] = []
        self.processes: HandlerProcesses | None = None
        """Where handlers run that want a process of their own. `penstock run --processes` sees to it."""

    @classmethod
    def connect(
        cls,
        url: str | None = None,
        *,
        client: "redis.asyncio.Redis | None" = None,
        prefix: str = "",
        logs: Listener | None = _LOGS,
    ) -> Self:
        """Connect on `async with` to `url`, else $PENSTOCK_URL, else the embedded server; or where `client` does.

        URLs are `redis://`, `rediss://`, `unix://`, `embedded://`, and `redis+sentinel://host:26379/service`, which
        leads to the primary of the moment, also after a failover. docs/security.md has their forms.

        `prefix` goes before every topic name, so that several environments can share a server. Receipts, deliveries,
        letters and events carry the whole name; a name that begins with the prefix already is taken as it is, so both
        forms work wherever a topic is asked for. `logs` is who writes the log: a `Logs()` unless you give your own,
        such as `Logs(texts=True)`, or None for no log at all.
        """
        return cls(url, client, prefix, logs)

    def bus(
        self,
        topic: str | Sequence[str],
        *,
        group: str | None = None,
        retry: Retry = Retry(),  # noqa: B008 - frozen
        lease: timedelta = LEASE,
        start: str | datetime = "earliest",
        options: Subscription = Subscription(),  # noqa: B008 - frozen
        partitions: int | None = None,
        ordering: ByKey | str | None = None,
    ) -> Bus:
        """A bus of one topic or several. Without a group it only publishes.

        Every group gets each message; within a group, one of its workers does. `start` is where a group begins that
        does not exist yet: "earliest", "latest", an entry id, or a moment. `lease` is how long a worker may give no
        sign of life before others take over what it has; make it longer than the largest entry needs to arrive, or
        that one is taken over on its way, by one worker after the other. With `partitions` and `ordering="key"`, or
        `ByKey(...)`, the messages of each key are handled in order: see `KeyedBus`.
        """
        topics = self._names_of(topic)
        whole, by_key = topics[0], ordering_of(topics, partitions, ordering)
        if by_key is not None:
            topics = names_of(whole, partitions or 0)
        for name in topics:
            keys.check_named(name)
        plan = None
        if group is None:
            refuse_terms(retry=retry, lease=lease, start=start, options=options)
        else:
            first, begin = topics[0], start_id(start)
            plan = Plan(topic=first, group=group, retry=retry, lease=lease, start=begin, options=options)
        # Types are the bus's own: what one group reads as a record, another may take as a plain object.
        wires = {name: self._wires.get(whole if by_key else name, _NATIVE).copy() for name in topics}
        trace = self._tracing.outgoing if self._tracing is not None else None
        facts: dict[str, Any] = {
            "wires": wires,
            "backend": self._view(wires),
            "listeners": self._listeners,
            "plan": plan,
            "trace": trace,
            "full_name": self.full_name,
            "keep": self._handled.append,
        }
        bus = Bus(**facts) if by_key is None else KeyedBus(whole, by_key, self._sequential, **facts)
        if self._tracing is not None and plan is not None:
            bus.trace(self._tracing)
        self._add(bus)
        return bus

    def jobs(
        self,
        queue: str,
        *,
        group: str = keys.JOB_GROUP,
        retry: Retry = Retry(),  # noqa: B008 - frozen
        lease: timedelta = LEASE,
        lanes: Mapping[Priority, str] | None = None,
        options: JobOptions = JobOptions(),  # noqa: B008 - frozen
    ) -> JobQueue:
        """A queue of jobs: three lanes by priority, each job done by one of the queue's workers.

        `lanes` names the streams of the priorities, to adopt those that are there; else they are `{queue}:high`,
        `{queue}:normal` and `{queue}:low`. `lease` is how long a worker may give no sign of life before others take
        over its jobs. `group` is what the workers call themselves on the server: one queue has one.
        """
        named = lanes_of(queue, lanes, self.full_name)
        terms = terms_of(queue, named, options, group=group, retry=retry, lease=lease)
        wires = {name: self._wires.get(name, _NATIVE).copy() for name in named.values()}
        trace = self._tracing.outgoing if self._tracing is not None else None
        host = Host(self._handled.append, self._at_close.append, lambda: self.processes)
        made = JobQueue(terms, wires, self._view(wires, terms.trail), self._listeners, trace, host)
        if self._tracing is not None:
            made.trace(self._tracing)
        self._add(made)
        return made

    def tail(
        self, topic: str | Sequence[str], *, after: After | Mapping[str, After] = "latest", queue: int = QUEUE
    ) -> Tail:
        """Follow one topic or several without a group: everybody who does sees every message.

        `after` is where to begin: "earliest", "latest", an entry id, an item's `position`, a message's UUID, a moment,
        `Last(n)` or a durable `Cursor(name)`; or, for several topics, a mapping that says so for each. `queue` is how
        far this follower may be behind the newest message before it is told of a gap and goes on with newer ones.
        However many follow in this process, they share one connection.
        """
        topics = self._names_of(topic, "a tail")
        for name in topics:
            keys.check_topic(name)
        if isinstance(after, Mapping):
            after = {self.full_name(name): place for name, place in after.items()}
        wires = {name: self._wires.get(name, _NATIVE) for name in topics}
        return Tail(self._following, wires, after, queue, self._listeners)

    def changes(
        self,
        topic: str,
        *,
        of: Any = None,
        reader: str,
        start: str | datetime = "earliest",
        lease: timedelta = LEASE,
        coalesce: int = 1,
        options: ChangeOptions = ChangeOptions(),  # noqa: B008 - frozen
    ) -> Changes[Any]:
        """Read a topic strictly in order, one message at a time, each until it is acknowledged.

        `of` is the type of its messages: a dataclass, a msgspec.Struct or a pydantic model, a union of these, `dict`
        for JSON objects, or nothing for whatever comes. All processes that read as the same `reader` share one place in
        the topic, and one of them has the turn; another takes over after `lease` if that one dies or freezes, and at
        once if it leaves. `start` is where a reader begins that does not exist yet: "earliest", "latest", an entry id,
        or a moment. With `coalesce` the server learns of up to so many acknowledged messages together: much faster, and
        a crash repeats up to so many.
        """
        (name,) = self._names_of(topic, "a change stream") if isinstance(topic, str) else self._names_of("")
        terms = Terms(topic=name, reader=reader, start=start_id(start), lease=lease, coalesce=coalesce, options=options)
        opening = Opening(name, self._wires.get(name, _NATIVE), of)
        ground, bus = Ground(self._sequential, self._listeners), self.bus(name, group=reader)
        changes: Changes[Any] = Changes(terms, ground, opening, bus.publish, lambda: bus.dead)
        changes.when_open(self._reading.add, self._reading.discard)
        return changes

    async def forget_cursor(self, topic: str, name: str) -> bool:
        """Remove a durable cursor of `tail`, which then holds back no trimming any more; False if there is none."""
        return await self.backend.forget_cursor(self.full_name(topic), name)

    @property
    def faces(self) -> tuple[Face, ...]:
        """Every face that was declared and is still in use, in that order."""
        return tuple(self._faces.values())

    @property
    def handled_faces(self) -> tuple[Face, ...]:
        """Those with handlers: what `run` runs if none is named."""
        return tuple(self._handled)

    @property
    def has_address(self) -> bool:
        """Whether it was told where to connect, by a URL or a client of its own."""
        return self.url is not None or self._client is not None

    @property
    def backend(self) -> RedisBackend:
        """The connection itself, for tools. Raises `ConfigurationError` unless connected."""
        if self._backend is None:
            raise ConfigurationError("this app is not connected: use it within `async with app:`")
        return self._backend

    def full_name(self, topic: str) -> str:
        """The topic's name on the server: with the prefix, which it may carry already."""
        return topic if topic.startswith(self.prefix) else self.prefix + topic

    def use_wire(self, topic: str, wire: Wire) -> None:
        """Read and write `topic` in another wire format, in every face of it that is made from now on."""
        self._wires[self.full_name(topic)] = wire

    def trace(self, tracing: "Tracing") -> None:
        """Trace every publish and every delivery of this app, with OpenTelemetry. Before its first face is made."""
        if self._made:
            raise ConfigurationError("trace() comes before the first face: those made already would not be traced")
        tracing.expected = (*tracing.expected, Snooze)
        self._tracing = tracing

    def observe(self, observer: ErrorObserver) -> Callable[[], None]:
        """Tell `observer` of every error, by its scope, from now on; returns how to end that."""
        return self.listen(observe(observer))

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with every event of `penstock.events` from now on; returns how to end that."""
        return self._listeners.listen(listener)

    async def open(self) -> Self:
        """Connect, unless connected. `async with` does this."""
        if self._backend is None:
            connecting = (
                RedisBackend.connect(self.url, wires=self._wires)
                if self._client is None
                else RedisBackend.from_client(self._client, wires=self._wires)
            )
            backend = await connecting
            if self._backend is None:
                self._backend = backend
            else:
                # Somebody else was opening it too. No lock: one outlives the event loop that it was waited for in.
                await backend.aclose()
        return self

    async def aclose(self) -> None:
        """Let go of the server; if it is running, stop and drain first. Idempotent."""
        if self._stop is not None:
            self._stop.set()
            await self._idle.wait()
        for changes in list(self._reading):
            await changes.aclose()
        backend, self._backend, self._is_stop_due = self._backend, None, False
        tools, self._tools = self._tools, None
        if tools is not None:
            await tools.aclose()
        hub, self._hub = self._hub, None
        if hub is not None:
            await hub.aclose()
        closing, self._at_close[:] = tuple(self._at_close), ()
        for close in closing:
            await close()
        if backend is not None:
            await backend.aclose()

    async def run(self, *faces: Face, concurrency: int = 100, signals: bool = True) -> None:
        """Deliver to the handlers of these faces, or of all, until SIGTERM, SIGINT or `stop`; then drain.

        `concurrency` is how many handlers run at the same time for each topic of a bus, and for each queue. Signals are
        only caught in the main thread, and only the first: a second one ends the process as it would have without us.
        """
        chosen = faces or self.handled_faces
        if not chosen:
            raise ConfigurationError("nothing to run: no bus and no queue of this app has a handler")
        for face in chosen:
            check_kind("run(...)", face, Bus, JobQueue)
        if strangers := [face for face in chosen if face not in self.faces]:
            raise ConfigurationError(f"{strangers[0]!r} belongs to another app: let that one run it")
        if self._stop is not None:
            raise ConfigurationError("this app is running already")
        keeper = LeaseKeeper(self.backend)
        self._stop = stop = asyncio.Event()
        if self._is_stop_due:
            self._is_stop_due = False
            stop.set()
        self._idle.clear()
        keeper.start()
        try:
            loop = asyncio.get_running_loop()
            caught = stopped_by_signals(lambda: loop.call_soon_threadsafe(stop.set)) if signals else nullcontext()
            with caught, spared_by_the_collector():
                await run_together([face.work(stop, keeper, concurrency) for face in chosen], stop)
        finally:
            self._stop = None
            try:
                await keeper.close()
            finally:
                self._idle.set()

    def stop(self) -> None:
        """Have `run` drain and return: the next one, if the app is open and not running. Else it does nothing."""
        if self._stop is not None:
            self._stop.set()
        elif self._backend is not None:
            self._is_stop_due = True

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def _add(self, face: Face) -> None:
        self._made += 1
        self._faces[self._made] = face

    def _following(self) -> Hub:
        """Those who follow share what is read, until the app connects anew."""
        if self._hub is None:
            self._hub = Hub(self.backend, self._listeners)
        return self._hub

    async def _sequential(self) -> Tools:
        """Those who read in sequence share the thread that keeps their turns, and the connection they wait on."""
        if self._tools is None:
            self._tools = Tools.on(self.backend, self._listeners)
        return self._tools

    def _names_of(self, topic: str | Sequence[str], what: str = "a bus") -> list[str]:
        given = [topic] if isinstance(topic, str) else list(topic) if isinstance(topic, (list, tuple)) else []
        names = [self.full_name(name) for name in given if isinstance(name, str) and name]
        if not names or len(set(names)) != len(given):
            raise ConfigurationError(f"{what} needs the name of one topic, or a list of different ones, not {topic!r}")
        return names

    def _view(self, wires: Mapping[str, Wire], trail: Trail | None = None) -> Callable[[], StreamBackend]:
        """The connection as a face sees it: the same one each time, until the app connects anew."""
        known: list[tuple[RedisBackend, RedisBackend]] = []

        def view() -> RedisBackend:
            backend = self.backend
            if not known or known[0][0] is not backend:
                known[:] = [(backend, backend.speaking(wires, trail))]
            return known[0][1]

        return view

    def __repr__(self) -> str:
        return f"<Penstock {self._backend or 'not connected'}>"
