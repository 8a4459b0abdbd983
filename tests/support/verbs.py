"""Every verb of the backend that talks to the server, as one call each, for tests of what holds for all of them."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

from penstock.backend import keys
from penstock.backend.entry import ClaimedMessage, DeadLetter, DeadRecord, Letter, Park, PartialDeliveryState
from penstock.backend.redis import RedisBackend
from penstock.backend.survey import Position
from penstock.message.message import Message

Call: TypeAlias = Callable[[RedisBackend, str], Awaitable[Any]]

_NO_WAIT = timedelta(0)
_SHORT = timedelta(milliseconds=50)
_HOUR = timedelta(hours=1)
_ID = "01a1df23-6ea1-7709-951c-1f3775cc4fe9"


def leased(topic: str, entry_id: str = "1-1", fence: int = 0) -> ClaimedMessage:
    """An entry as `read_new` would have given it."""
    now = datetime.now(UTC)
    return ClaimedMessage(
        id=entry_id,
        message=Message(1),
        state=PartialDeliveryState(1, now, now),
        stream=topic,
        origin=entry_id,
        fence=fence,
        raw=(b"payload", b"1"),
    )


def buried(topic: str, entry_id: str = "1-1") -> Letter:
    """A dead letter as `read_dead` would have given it."""
    now = datetime.now(UTC)
    return Letter(entry_id, DeadRecord(topic, "g", "1-1", 1, "why", now, now), (b"payload", b"1"))


async def _publish_later(backend: RedisBackend, topic: str) -> Any:
    (result,) = await backend.publish_later(topic, [Message(1)], delay=_HOUR)
    if isinstance(result, Exception):
        raise result
    return result


async def _publish_many(backend: RedisBackend, topic: str) -> Any:
    (result,) = await backend.publish_many(topic, [Message(1)])
    if isinstance(result, Exception):
        raise result
    return result


VERBS: dict[str, Call] = {
    "create_group": lambda b, t: b.create_group(t, "g"),
    "publish": lambda b, t: b.publish(t, Message(1)),
    "publish_many": _publish_many,
    "publish_durably": lambda b, t: b.publish_durably(t, Message(1), replicas=1, timeout=_SHORT),
    "publish_later": _publish_later,
    "gone": lambda b, t: b.gone(t, ["1-1"]),
    "parcels": lambda b, t: anext(b.parcels(t, "g"), None),
    "keys_of": lambda b, t: b.keys_of(t, ["g"]),
    "books": lambda b, t: b.books(t),
    "promote_later": lambda b, t: b.promote_later(t),
    "publish_once": lambda b, t: b.publish_once(t, [Message(1)], window=_HOUR),
    "read_new": lambda b, t: b.read_new(t, "g", "c", 1, _NO_WAIT),
    # Another consumer: behind a read of its own consumer that is stuck it would give up in its time, with nothing.
    "read_new, blocking": lambda b, t: b.read_new(t, "g", "blocking", 1, _SHORT),
    "reclaim_idle": lambda b, t: b.reclaim_idle(t, "g", "c", _NO_WAIT, 1),
    "read_range": lambda b, t: b.read_range(t, "-", "+", 1),
    "settle, done": lambda b, t: b.settle(t, "g", "c", done=[leased(t)]),
    "settle, parked": lambda b, t: b.settle(t, "g", "c", parked=[Park(leased(t), _HOUR, 2)]),
    "settle, dead": lambda b, t: b.settle(t, "g", "c", dead=[DeadLetter(leased(t), "why")]),
    "complete": lambda b, t: b.complete(t, "g", "c", ["1-1"], fence=0),
    "ack": lambda b, t: b.ack(t, "g", "1-1"),
    "ack_many": lambda b, t: b.ack_many(t, "g", ["1-1"]),
    "renew": lambda b, t: b.renew(t, "g", "c", ["1-1"]),
    "release": lambda b, t: b.release(t, "g", "c", ["1-1"]),
    "promote": lambda b, t: b.promote(t, "g"),
    "promote_early": lambda b, t: anext(b.promote_early(t, "g")),
    "promote_early, to count": lambda b, t: anext(b.promote_early(t, "g", only_count=True)),
    "awaited": lambda b, t: b.awaited(t, "g"),
    "read_parked": lambda b, t: b.read_parked(t, "g"),
    "read_dead": lambda b, t: b.read_dead(t),
    "read_dead, backwards": lambda b, t: b.read_dead(t, backwards=True),
    "count_dead": lambda b, t: b.count_dead(t),
    "replay_dead": lambda b, t: b.replay_dead(t, "g", [buried(t)], "r"),
    "purge_dead": lambda b, t: b.purge_dead(t, ["1-1"]),
    "copy_dead": lambda b, t: b.copy_dead(t, "g", [DeadLetter(leased(t), "why")]),
    "bound_dead": lambda b, t: b.bound_dead(t, "1-1", 1),
    "claim_handling": lambda b, t: b.claim_handling(t, "g", [(_ID, "", "1-1")], _HOUR),
    "complete_handling": lambda b, t: b.complete_handling(t, "g", "c", [leased(t)], _HOUR),
    "release_handling": lambda b, t: b.release_handling(t, "g", [(_ID, "", "1-1")]),
    "read_new, together": lambda b, t: b.read_new([t, keys.retry(t, "g")], "g", "c", 1, _NO_WAIT),
    "mark_start": lambda b, t: b.mark_start(leased(t), "g", "c"),
    "watch": lambda b, t: b.watch(t, "g"),
    "restore_group": lambda b, t: b.restore_group(t, "g"),
    "pause": lambda b, t: b.pause(t, "g"),
    "resume": lambda b, t: b.resume(t, "g"),
    "register": lambda b, t: b.register(t),
    "inspect": lambda b, t: b.inspect(t),
    "consumers": lambda b, t: b.consumers(t, "g"),
    "forget_idle": lambda b, t: b.forget_idle(t, "g", _NO_WAIT),
    "forget_consumer": lambda b, t: b.forget_consumer(t, "g", "c"),
    "trim": lambda b, t: b.trim(t, "1-1"),
    "cut": lambda b, t: b.cut(t, 1),
    "take_turn": lambda b, t: b.take_turn(t, "r", "me", _HOUR),
    "keep_turn": lambda b, t: b.keep_turn(t, "r", 1, _HOUR),
    "unsubscriptions": lambda b, t: b.unsubscriptions(t, "r"),
    "stand": lambda b, t: b.stand(t, "r", 1, "0", 0),
    "begin_head": lambda b, t: b.begin_head(t, "r", 1, "1-1"),
    "fail_head": lambda b, t: b.fail_head(t, "r", 1, "1-1", 1),
    "bury_head": lambda b, t: b.bury_head(t, "r", 1, DeadLetter(leased(t), "why"), expected="0-0"),
    "place_reader": lambda b, t: b.place_reader(t, "r", 1, Position("1-1", 1, "e")),
    "forget_reader": lambda b, t: b.forget_reader(t, "r"),
    "join": lambda b, t: b.join(t, "g", "me", _HOUR),
    "leave": lambda b, t: b.leave(t, "g", "me"),
    "note_partitions": lambda b, t: b.note_partitions(t, 3),
    "partitions": lambda b, t: b.partitions(t),
    "renumber_partitions": lambda b, t: b.renumber_partitions(t, 3, 4),
    "is_paused": lambda b, t: b.is_paused(t, "g"),
    "leave_turn": lambda b, t: b.leave_turn(t, "r", 1),
    "advance": lambda b, t: b.advance(t, "r", 1, expected="0-0", to="1-1"),
}
