"""What a stream server must do, in plain Python: streams, leases, parked deliveries, dead letters, and blocked readers.

Entry ids are taken from the real server; everything else is decided here, by rules that are as short as they can be.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from penstock.backend.entry import Pin, Settled, Trimmed

SeatName = tuple[str, str, str]
"""Stream, group, consumer."""


def order(entry_id: str) -> tuple[int, int]:
    ms, _, sequence = entry_id.partition("-")
    return int(ms), int(sequence)


@dataclass(frozen=True)
class Item:
    """One delivery of one message: what an entry holds."""

    origin: str
    raw: tuple[bytes, ...]
    readable: bool = True
    attempt: int = 1
    first: datetime | None = None
    """When the first attempt was received; known once it was parked."""
    deliveries: int = field(default=0, compare=False)
    """How often the group was handed it before it became this entry."""


@dataclass(frozen=True)
class Letter:
    """What the dead letters must say, and, in `origin`, which message it is about."""

    group: str
    entry: str
    attempts: int
    raw: tuple[bytes, ...]
    lost: bool
    origin: str


@dataclass
class Lease:
    owner: str
    handed_back: bool = False
    deliveries: int = 1


@dataclass
class Group:
    last: str = "0-0"
    pending: dict[str, Lease] = field(default_factory=dict)

    def in_order(self) -> list[str]:
        return sorted(self.pending, key=order)


class Stream:
    """One stream key and its groups."""

    def __init__(self, groups: Iterable[str]) -> None:
        self.entries: dict[str, Item] = {}
        self.ever: dict[str, Item] = {}
        self.groups = {name: Group() for name in groups}

    def append(self, entry_id: str, item: Item) -> None:
        assert not self.ever or order(entry_id) > max(map(order, self.ever)), "entry ids must rise"
        self.entries[entry_id] = self.ever[entry_id] = item

    def unread(self, group: str) -> list[str]:
        return [entry_id for entry_id in self.entries if order(entry_id) > order(self.groups[group].last)]

    def lease(self, group: str, consumer: str, count: int) -> list[str]:
        ids = self.unread(group)[:count]
        for entry_id in ids:
            self.groups[group].pending[entry_id] = Lease(consumer)
            self.groups[group].last = entry_id
        return ids


class Model:
    """One topic with its retry streams, as its groups see it."""

    def __init__(self, topic: str, retry: dict[str, str]) -> None:
        self.topic = topic
        self.retry = retry
        self.groups = sorted(retry)
        self.streams = {topic: Stream(self.groups)}
        self.parked: dict[str, list[tuple[Item, bool]]] = {group: [] for group in self.groups}
        self.dead: list[Letter] = []
        self.done: dict[str, set[str]] = {group: set() for group in self.groups}
        self.destroyed: dict[str, set[str]] = {group: set() for group in self.groups}
        self.left_behind: set[str] = set()
        """Acked without a settle: in a retry stream they may stay for ever."""
        self.once: dict[str, str] = {}
        self.blocked: list[tuple[SeatName, int]] = []
        self.given: dict[SeatName, list[str]] = {}
        """What the server gave to a read that was interrupted, or sent ahead: it comes with the seat's next reads."""

    def group(self, stream: str, group: str) -> Group:
        return self.streams[stream].groups[group]

    def live(self, stream: str) -> list[tuple[str, Item]]:
        """What must be stored; a retry stream may hold more, which nobody will read."""
        found = self.streams[stream]
        if stream == self.topic:
            return list(found.entries.items())
        ((group, state),) = found.groups.items()
        wanted = {*found.unread(group), *state.pending}
        return [(entry_id, item) for entry_id, item in found.entries.items() if entry_id in wanted]

    def append(self, entry_id: str, raw: Sequence[bytes], *, readable: bool = True) -> None:
        self.streams[self.topic].append(entry_id, Item(entry_id, tuple(raw), readable))

    def serve(self) -> None:
        """What the server does after every command: blocked readers get what is there now, in the order they came."""
        for waiting in list(self.blocked):
            (stream, group, consumer), count = waiting
            if ids := self.streams[stream].lease(group, consumer, count):
                self.given[stream, group, consumer] = ids
                self.blocked.remove(waiting)

    def waits(self, seat: SeatName) -> bool:
        return any(name == seat for name, _ in self.blocked)

    def read(self, seat: SeatName, count: int, *, ahead: bool = False) -> list[str]:
        stream, group, consumer = seat
        if seat in self.given:
            ids = self.given.pop(seat)
            if ids[count:]:
                self.given[seat] = ids[count:]
            return ids[:count]
        ids = [] if self.waits(seat) else self.streams[stream].lease(group, consumer, count)
        if ahead and len(ids) == count:
            self.given[seat] = self.streams[stream].lease(group, consumer, count)
        return ids

    def is_gone(self, seat: SeatName, entry_id: str) -> bool:
        return bool(self._verdict(seat, entry_id).gone)

    def complete(self, seat: SeatName, ids: Sequence[str]) -> Settled:
        result = Settled()
        for entry_id in ids:
            verdict = self._verdict(seat, entry_id)
            result += verdict
            if verdict.ok:
                self.done[seat[1]].add(self._release(seat, entry_id).origin)
        return result

    def park(self, seat: SeatName, parks: Sequence[tuple[Item, str, int, bool]]) -> Settled:
        """For each: what the parker holds, its entry id, the next attempt's number, whether it is due at once."""
        result = Settled()
        for held, entry_id, attempt, due in parks:
            verdict = self._verdict(seat, entry_id)
            result += verdict
            if verdict.ok:
                self._release(seat, entry_id)
                self.parked[seat[1]].append((replace(held, attempt=attempt), due))
        return result

    def bury(self, seat: SeatName, letters: Sequence[tuple[Item, str, bool]]) -> Settled:
        """For each: what the one who gives up holds, its entry id, and whether it was told that the entry is lost."""
        result = Settled()
        for held, entry_id, lost in letters:
            verdict = self._verdict(seat, entry_id)
            if verdict.fenced and entry_id not in self.streams[seat[0]].entries:
                verdict = Settled(ok=1)  # nobody can handle it again, so whoever finds it may report it
            result += verdict
            if verdict.ok:
                origin = self._release(seat, entry_id).origin
                self.dead.append(Letter(seat[1], held.origin, held.attempt, held.raw, lost, origin))
        return result

    def ack(self, stream: str, group: str, ids: Sequence[str]) -> int:
        mine = [entry_id for entry_id in ids if self.group(stream, group).pending.pop(entry_id, None)]
        self.done[group] |= {self.streams[stream].ever[entry_id].origin for entry_id in mine}
        self.left_behind |= set(mine)
        return len(mine)

    def touch(self, seat: SeatName, ids: Sequence[str], *, hand_back: bool) -> list[str]:
        stream, group, consumer = seat
        refused = []
        for entry_id in ids:
            lease = self.group(stream, group).pending.get(entry_id)
            if lease and lease.owner == consumer and entry_id in self.streams[stream].entries:
                lease.handed_back = hand_back
            else:
                refused.append(entry_id)
        return refused

    def reclaim(
        self, seat: SeatName, after: str, count: int, *, handed_back_only: bool, running: Collection[str]
    ) -> tuple[dict[str, bool], list[str], str]:
        """What is taken and whether it is suspect, what is reported as lost, and where the next call goes on."""
        stream, group, consumer = seat
        pending = self.group(stream, group).pending
        rows = [entry_id for entry_id in self.group(stream, group).in_order() if order(entry_id) > order(after)]
        taken: dict[str, bool] = {}
        lost: list[str] = []
        seen = after
        running = {*running, *self.given.get(seat, [])}  # what a read has yet to return is looked after by that
        for entry_id in rows:
            if len(taken) == count:
                break
            seen = entry_id
            if entry_id in running or (handed_back_only and not pending[entry_id].handed_back):
                continue
            if entry_id in self.streams[stream].entries:
                taken[entry_id] = not pending[entry_id].handed_back
                pending[entry_id] = Lease(consumer, deliveries=pending[entry_id].deliveries + 1)
            else:
                lost.append(entry_id)
        return taken, lost, seen if rows and seen != rows[-1] else "0-0"

    def holds_nothing(self, seat: SeatName) -> bool:
        return all(lease.owner != seat[2] for lease in self.group(*seat[:2]).pending.values())

    def stop(self, seat: SeatName) -> int:
        """The seat is given nothing more; what it was given and has not taken is handed back."""
        ids = self.given.pop(seat, [])
        self.forget_seat(seat)
        return len(ids) - len(self.touch(seat, ids, hand_back=True))

    def forget_seat(self, seat: SeatName) -> None:
        """The consumer's own process forgets what it kept for itself, a read that is under way included."""
        self.given.pop(seat, None)
        self.blocked = [waiting for waiting in self.blocked if waiting[0] != seat]

    def promote(self, group: str, moved: Sequence[tuple[str, Item]]) -> None:
        """These parked deliveries, which must be due, became entries of the retry stream."""
        stream = self.streams.setdefault(self.retry[group], Stream([group]))
        for entry_id, item in moved:
            parked, _ = self.parked[group].pop(self.parked[group].index((item, True)))
            stream.append(entry_id, parked)
        self.serve()

    def due(self, group: str) -> int:
        return sum(due for _, due in self.parked[group])

    def trim(self, floor: str, limit: int, max_entries: int | None) -> Trimmed:
        """Exact for streams that keep each entry in a node of its own."""
        groups = {name: self.group(self.topic, name) for name in self.groups}
        oldest = {name: group.in_order()[0] if group.pending else group.last for name, group in groups.items()}
        slowest = min(oldest, key=lambda name: order(oldest[name]))
        entries, horizon = self.streams[self.topic].entries, oldest[slowest]
        settled = [entry_id for entry_id in entries if order(entry_id) < order(horizon)]
        doomed = [entry_id for entry_id in settled if order(entry_id) < order(floor)][:limit]
        excess = 0 if max_entries is None else max(0, len(entries) - len(doomed) - max_entries)
        doomed = settled[: min(limit, len(doomed) + excess)]
        for entry_id in doomed:
            del entries[entry_id]
        pinned = excess or order(horizon) < order(floor)
        return Trimmed(len(doomed), *((horizon, Pin("group", slowest)) if pinned else (floor, None)))

    def destroy(self, stream: str, ids: Sequence[str]) -> None:
        """An operator deletes entries, whoever may still need them."""
        for entry_id in ids:
            for group in self.streams[stream].groups:
                if entry_id in self.streams[stream].unread(group):
                    self.destroyed[group].add(self.streams[stream].entries[entry_id].origin)
            del self.streams[stream].entries[entry_id]

    def _verdict(self, seat: SeatName, entry_id: str) -> Settled:
        stream, group, consumer = seat
        lease = self.group(stream, group).pending.get(entry_id)
        if lease is None:
            return Settled(gone=1)
        return Settled(ok=1) if lease.owner == consumer else Settled(fenced=(entry_id,))

    def _release(self, seat: SeatName, entry_id: str) -> Item:
        stream, group, _ = seat
        del self.group(stream, group).pending[entry_id]
        if stream != self.topic:
            self.streams[stream].entries.pop(entry_id, None)
        return self.streams[stream].ever[entry_id]
