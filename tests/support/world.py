"""Consumers in processes of their own, an operator with a heavy hand, and a model that says what each must see.

Every action here does the same to a real server and to the model, and compares what both answer. Who acts on what is
left to `Choices`, so that Hypothesis or a seeded random source can decide it.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Protocol, TypeVar

import redis
from msgspec import structs

from penstock.backend import keys
from penstock.backend.entry import ClaimedMessage, DeadLetter, FetchedEntry, Malformed, Park, Settled
from penstock.backend.parcel import unpack_fields
from penstock.backend.redis import RedisBackend
from penstock.message.ids import new_id
from penstock.message.message import Message
from penstock.message.wire import Wire
from tests.support.audit import compare, parked_item
from tests.support.model import Item, Model, SeatName, Stream
from tests.support.servers import Server

T = TypeVar("T")

NOW = timedelta(0)
HOUR = timedelta(hours=1)
LONG_AGO = "0-0"
CONSUMERS = ("ann", "bob", "cat")
GROUPS = ("billing", "mail:eu")
MOST_HELD = 12


class Choices(Protocol):
    def pick(self, options: Sequence[T]) -> T: ...

    def some(self, options: Sequence[T], most: int) -> list[T]: ...

    def number(self, least: int, most: int) -> int: ...

    def flag(self) -> bool: ...


@dataclass(frozen=True)
class Held:
    """A delivery as a consumer has it in its hands, for as long as it likes: perhaps long after it was settled."""

    entry: FetchedEntry
    item: Item


class World:
    """One topic, two groups, three consumers."""

    def __init__(self, server: Server, admin: "redis.Redis") -> None:
        self.server = server
        self.admin = admin
        self.topic = f"t:{new_id()}"
        self.model = Model(self.topic, {group: keys.retry(self.topic, group) for group in GROUPS})
        self.held: dict[SeatName, list[Held]] = defaultdict(list)
        self.reclaim_from: dict[SeatName, str] = {}
        self.messages: list[Message[int]] = []
        self.counts: Counter[str] = Counter()
        self.missed: Counter[str] = Counter()
        self.backends: dict[str, RedisBackend] = {}
        self.stack = AsyncExitStack()

    async def open(self) -> None:
        for consumer in CONSUMERS:
            backend = await RedisBackend.connect(self.server.url)
            self.backends[consumer] = await self.stack.enter_async_context(backend)
        for group in GROUPS:
            await self.backends["ann"].create_group(self.topic, group)

    async def close(self) -> None:
        await self.stack.aclose()
        self.model.blocked.clear()
        await self.blocked_as_modelled()
        self.admin.delete(self.topic, *self.admin.scan_iter(f"penstock:{{{self.topic}}}:*", count=10_000))

    async def blocked_as_modelled(self) -> None:
        """Wait until as many readers are blocked on the server as the model has."""
        async with asyncio.timeout(10):
            while self.admin.info("clients")["blocked_clients"] != len(self.model.blocked):
                await asyncio.sleep(0.001)

    # Publishers.

    def _new_message(self) -> Message[int]:
        self.messages.append(Message(len(self.messages)))
        return self.messages[-1]

    async def publish(self, choices: Choices) -> None:
        backend = self.backends[choices.pick(CONSUMERS)]
        messages = [self._new_message() for _ in range(choices.number(1, 4))]
        if len(messages) == 1:
            ids: list[Any] = [await backend.publish(self.topic, messages[0])]
        else:
            ids = await backend.publish_many(self.topic, messages)
        for entry_id, message in zip(ids, messages, strict=True):
            self.model.append(entry_id, Wire().pack(message))
            self.model.serve()

    async def publish_once(self, choices: Choices) -> None:
        messages = [self._new_message() for _ in range(choices.number(0, 4))]
        messages += choices.some(self.messages, 3)
        backend = self.backends[choices.pick(CONSUMERS)]
        results = await backend.publish_once(self.topic, messages, window=HOUR)
        for result, message in zip(results, messages, strict=True):
            known = self.model.once.get(message.id)
            assert result.duplicate == (known is not None)
            assert known in (None, result.entry_id)
            if known is None:
                self.model.once[message.id] = result.entry_id
                self.model.append(result.entry_id, Wire().pack(message))
        self.model.serve()

    # Consumers.

    def _seat(self, choices: Choices, useful: Callable[[Stream, str], object]) -> SeatName:
        """Anybody at a stream where there is something to do for its group; at any stream if there is none."""
        seats = [(name, group) for name, stream in self.model.streams.items() for group in stream.groups]
        fitting = [(name, group) for name, group in seats if useful(self.model.streams[name], group)]
        return *choices.pick(fitting or seats), choices.pick(CONSUMERS)

    async def _busy_seat(self, choices: Choices) -> SeatName:
        """A consumer with something in its hands; one reads first if nobody has."""
        while not any(self.held.values()):
            await self.read(choices)
        return choices.pick(sorted(seat for seat, held in self.held.items() if held))

    def _receive(
        self, seat: SeatName, entries: Sequence[FetchedEntry], ids: Sequence[str], *, again: bool
    ) -> list[Held]:
        """Check what was delivered against the model, and keep it in the consumer's hands."""
        assert [entry.id for entry in entries] == list(ids)
        received = []
        for entry in entries:
            item = self.model.streams[seat[0]].ever[entry.id]
            assert isinstance(entry, ClaimedMessage if item.readable else Malformed)
            assert (entry.stream, entry.origin, tuple(entry.raw)) == (seat[0], item.origin, item.raw)
            assert (entry.state.attempt, entry.state.redelivered) == (item.attempt, again or seat[0] != self.topic)
            assert item.first in (None, entry.state.first_received)
            times = self.model.group(*seat[:2]).pending[entry.id].deliveries if again else 1
            assert entry.state.deliveries == item.deliveries + times
            received.append(Held(entry, item))
        self._keep(seat, received)
        return received

    def _keep(self, seat: SeatName, held: Sequence[Held]) -> None:
        self.held[seat] = [*self.held[seat], *held][-MOST_HELD:]

    async def read(self, choices: Choices) -> None:
        seat, count = self._seat(choices, Stream.unread), choices.number(1, 4)
        if not self.model.streams[seat[0]].unread(seat[1]) and seat not in self.model.given and not choices.flag():
            seat = self.topic, *seat[1:]
            await self.publish(choices)
        fresh = seat not in self.model.given and not self.model.waits(seat)
        await self.read_as(seat, count, ahead=fresh and choices.flag())

    async def read_as(self, seat: SeatName, count: int, *, ahead: bool = False) -> list[Held]:
        # What an interrupted read was given is on its way; anything else is there at once or not at all.
        timeout = timedelta(seconds=10) if self.model.given.get(seat) else NOW
        backend = self.backends[seat[2]]
        entries = await backend.read_new(*seat, count, timeout, ahead=ahead)
        if ahead:
            await backend.read_range(self.topic, "-", "+", 1)  # by now the server has answered what was sent before
        return self._receive(seat, entries, self.model.read(seat, count, ahead=ahead), again=False)

    async def interrupted_read(self, choices: Choices) -> None:
        """Nothing is there, so the reader waits; it is cancelled, but the server does not know."""
        seat = self._seat(choices, lambda stream, group: not stream.unread(group))
        if self.model.streams[seat[0]].unread(seat[1]) or seat in self.model.given or self.model.waits(seat):
            return
        count = choices.number(1, 4)
        waiting = asyncio.create_task(self.backends[seat[2]].read_new(*seat, count, timedelta(minutes=1)))
        self.model.blocked.append((seat, count))
        await self.blocked_as_modelled()
        waiting.cancel()
        await asyncio.wait([waiting])
        self.counts["interrupted"] += 1

    async def stop(self, choices: Choices) -> None:
        """The reader is told to stop, perhaps while it waits, perhaps with entries it has not looked at."""
        interrupted = sorted({*self.model.given, *(seat for seat, _ in self.model.blocked)})
        await self.stop_as(
            choices.pick(interrupted) if interrupted else self._seat(choices, lambda stream, group: True)
        )

    async def stop_as(self, seat: SeatName) -> None:
        # A blocked reader may be given something at any time, but nobody else acts while we stop it.
        expected = self.model.stop(seat)
        assert await self.backends[seat[2]].stop_reading(*seat) == expected
        self.counts["handed back"] += expected
        await self.blocked_as_modelled()

    async def catch_up(self, choices: Choices) -> None:
        """A healthy consumer: reads all there is, and completes it."""
        consumer = choices.pick(CONSUMERS)
        for group in GROUPS:
            seat = self.topic, group, consumer
            while self.model.streams[self.topic].unread(group) and not self.model.waits(seat):
                await self.settle_as(seat, await self.read_as(seat, MOST_HELD))

    async def settle(self, choices: Choices) -> None:
        seat = await self._busy_seat(choices)
        chosen = choices.some(self.held[seat], 4)
        done: list[Held] = []
        parks: list[tuple[Held, Park]] = []
        dead: list[Held] = []
        for held in chosen:
            outcome = choices.pick(("done", "done", "park", "dead"))
            if outcome == "park" and isinstance(held.entry, ClaimedMessage):
                attempt = held.item.attempt + choices.number(0, 1)
                parks.append((held, Park(held.entry, choices.pick((NOW, HOUR)), attempt, "failed")))
            else:
                (dead if outcome == "dead" else done).append(held)
        await self.settle_as(seat, done, parks, dead)
        if not choices.flag():  # else it stays in the consumer's hands, which may settle it again
            self.held[seat] = [held for held in self.held[seat] if not any(held is one for one in chosen)]

    async def settle_as(
        self, seat: SeatName, done: Sequence[Held], parks: Sequence[tuple[Held, Park]] = (), dead: Sequence[Held] = ()
    ) -> Settled:
        looks = self._calls("xpending")
        result = await self.backends[seat[2]].settle(
            *seat,
            done=[held.entry for held in done],
            parked=[park for _, park in parks],
            dead=[DeadLetter(held.entry, "no use") for held in dead],
        )
        if done and not parks and not dead:
            self.counts["slow" if self._calls("xpending") > looks else "fast"] += 1
        self.counts["fenced"] += len(result.fenced)
        gone = {held.entry.id for held in done if self.model.is_gone(seat, held.entry.id)}
        expected = self.model.complete(seat, [held.entry.id for held in done])
        expected += self.model.park(
            seat,
            [
                (
                    replace(held.item, first=p.entry.state.first_received, deliveries=p.entry.state.deliveries),
                    p.entry.id,
                    p.attempt,
                    p.delay == NOW,
                )
                for held, p in parks
            ],
        )
        letters = [(held.item, held.entry.id, getattr(held.entry, "lost", False)) for held in dead]
        expected += self.model.bury(seat, letters)
        assert gone.issuperset(result.unclear), f"{result}, but the model says {gone} are gone"
        found = structs.replace(result, unclear=())  # which of them that is depends on whether the server had to look
        assert found == expected, f"{found}, but the model says {expected}"
        return result

    def _calls(self, command: str) -> int:
        stats: dict[str, Any] = self.admin.info("commandstats").get(f"cmdstat_{command}", {})
        return int(stats.get("calls", 0))

    async def ack(self, choices: Choices) -> None:
        seat = await self._busy_seat(choices)
        ids = list({held.entry.id for held in choices.some(self.held[seat], 3)})
        acked = await self.backends[choices.pick(CONSUMERS)].ack_many(*seat[:2], ids)
        assert acked == self.model.ack(*seat[:2], ids)

    async def renew(self, choices: Choices) -> None:
        await self._touch(choices, hand_back=False)

    async def release(self, choices: Choices) -> None:
        await self._touch(choices, hand_back=True)

    async def _touch(self, choices: Choices, *, hand_back: bool) -> None:
        seat = await self._busy_seat(choices)
        backend = self.backends[seat[2]]
        ids = [held.entry.id for held in choices.some(self.held[seat], 4)]
        refused = await (backend.release if hand_back else backend.renew)(*seat, ids)
        assert refused == self.model.touch(seat, ids, hand_back=hand_back)

    async def reclaim(self, choices: Choices) -> None:
        seat = self._seat(choices, lambda stream, group: stream.groups[group].pending)
        running = {held.entry.id for held in self.held[seat]} if choices.flag() else set()
        await self.reclaim_as(seat, choices.number(1, 4), handed_back_only=choices.flag(), running=sorted(running))

    async def reclaim_as(
        self, seat: SeatName, count: int, *, handed_back_only: bool = False, running: Sequence[str] = ()
    ) -> int:
        least = HOUR if handed_back_only else NOW
        if self.model.waits(seat):
            # Which of its own it may take depends on when the read that is under way was sent: named, none of them.
            pending = self.model.group(*seat[:2]).pending
            running = sorted({*running, *(id for id, lease in pending.items() if lease.owner == seat[2])})
        entries = await self.backends[seat[2]].reclaim_idle(*seat, least, count, running=running)
        taken, lost, self.reclaim_from[seat] = self.model.reclaim(
            seat, self.reclaim_from.get(seat, LONG_AGO), count, handed_back_only=handed_back_only, running=running
        )
        self._receive(seat, entries[: len(taken)], list(taken), again=True)
        assert [entry.state.suspect for entry in entries] == [*taken.values(), *(False for _ in lost)]
        self.counts["suspect"] += sum(taken.values())
        for entry in entries[len(taken) :]:
            assert isinstance(entry, Malformed)
            assert entry.lost
            self._keep(seat, [Held(entry, Item(entry.id, (), readable=False))])
        assert [entry.id for entry in entries[len(taken) :]] == lost
        self.counts["lost"] += len(lost)
        return len(entries)

    # Upkeep.

    async def promote(self, choices: Choices) -> None:
        parking = [group for group in GROUPS if self.model.due(group)]
        await self.promote_as(choices.pick(parking or GROUPS), choices.pick((1, 2, 100)))

    async def promote_as(self, group: str, limit: int) -> None:
        retry = keys.retry(self.topic, group)
        expected = min(limit, self.model.due(group))
        parcels = self.admin.zrange(keys.parked(self.topic, group), 0, expected - 1) if expected else []
        before = self.admin.xlen(retry)
        moved, next_due = await self.backends["ann"].promote(self.topic, group, limit)
        assert moved == expected == self.admin.xlen(retry) - before
        stored = list(reversed(self.admin.xrevrange(retry, count=moved))) if moved else []
        items = [parked_item(unpack_fields(parcel)) for parcel in parcels]
        if moved:
            self.model.promote(group, [(raw.decode(), item) for (raw, _), item in zip(stored, items, strict=True)])
        if self.model.due(group):
            assert next_due == NOW
        elif self.model.parked[group]:
            assert next_due is not None
            assert HOUR - timedelta(minutes=10) < next_due <= HOUR
        else:
            assert next_due is None

    async def forget(self, choices: Choices) -> None:
        """By its own process, or by another one that takes it for dead."""
        seat, by = self._seat(choices, lambda stream, group: True), choices.pick(CONSUMERS)
        assert await self.backends[by].forget_consumer(*seat) is self.model.holds_nothing(seat)
        if by == seat[2]:
            self.model.forget_seat(seat)
            self.reclaim_from.pop(seat, None)
            await self.blocked_as_modelled()

    async def trim(self, choices: Choices) -> None:
        ids = [*self.model.streams[self.topic].ever, "9999999999999-7"]
        floor, limit, most = choices.pick(ids), choices.pick((1, 2, 1000)), choices.pick((None, None, 0, 3, 10))
        result = await self.backends[choices.pick(CONSUMERS)].trim(self.topic, floor, limit, max_entries=most)
        self.counts["trimmed"] += result.removed
        assert result == self.model.trim(floor, limit, most)

    async def watch(self, choices: Choices) -> None:
        group = choices.pick(GROUPS)
        seen = await self.backends[choices.pick(CONSUMERS)].watch(self.topic, group)
        stream, state = self.model.streams[self.topic], self.model.group(self.topic, group)
        assert (seen.length, seen.entries_added, seen.last_delivered) == (
            len(stream.entries),
            len(stream.ever),
            state.last,
        )
        assert (seen.pending, seen.low_water) == (len(state.pending), [*state.in_order(), state.last][0])
        assert not seen.lag_exact or seen.lag == len(stream.unread(group))
        self.missed[group] += seen.missed
        unread = {item for item in self.model.destroyed[group] if item in stream.ever}
        assert self.missed[group] <= len(unread), "more was told than was lost"

    # The operator.

    async def delete_entry(self, choices: Choices) -> None:
        stream = choices.pick(sorted(self.model.streams))
        if entries := self.model.live(stream):
            doomed, _ = choices.pick(entries)
            assert self.admin.xdel(stream, doomed) == 1
            self.model.destroy(stream, [doomed])

    async def cut_short(self, choices: Choices) -> None:
        stream = choices.pick(sorted(self.model.streams))
        entries = list(self.model.streams[stream].entries)
        keep = choices.number(0, 6)
        doomed = entries[: max(0, len(entries) - keep)]
        if stream == self.topic or self.admin.xlen(stream) == len(entries):
            assert self.admin.xtrim(stream, maxlen=keep, approximate=False) == len(doomed)
            self.model.destroy(stream, doomed)

    async def flush_scripts(self, choices: Choices) -> None:
        self.admin.script_flush()

    async def delete_counters(self, choices: Choices) -> None:
        self.admin.delete(keys.steals(self.topic, choices.pick(GROUPS)))

    async def foreign_entry(self, choices: Choices) -> None:
        entry_id = self.admin.xadd(self.topic, {b"junk": b"\xff"}).decode()
        self.model.append(entry_id, (b"junk", b"\xff"), readable=False)
        self.model.serve()

    async def drain(self) -> None:
        """In the end everything can be finished: nothing is stuck, and what was destroyed while pending is reported."""
        for group in GROUPS:
            await self.promote_as(group, 1000)
            for stream in [name for name in self.model.streams if group in self.model.streams[name].groups]:
                await self._drain((stream, group, "cat"))
                assert not self.model.group(stream, group).pending
        compare(self.model, self.admin)

    async def _drain(self, seat: SeatName) -> None:
        await self.stop_as(seat)  # what its reads have yet to return, it does not take over
        self.held.pop(seat, None)
        lost_before = self.counts["lost"]
        pending, entries = self.model.group(*seat[:2]).pending, self.model.streams[seat[0]].entries
        expected = len([entry_id for entry_id in pending if entry_id not in entries])
        while await self.reclaim_as(seat, MOST_HELD) or pending:
            held = self.held.pop(seat, [])
            lost = [one for one in held if isinstance(one.entry, Malformed) and one.entry.lost]
            await self.settle_as(seat, [one for one in held if one not in lost], (), lost)
        assert self.counts["lost"] - lost_before >= expected


Action = Callable[[World, Choices], Awaitable[None]]
