"""Who may have killed its consumer is known, and every start of it is counted on the server until it is settled."""

import asyncio
from datetime import timedelta

import pytest
import redis

from penstock.backend import keys
from penstock.backend.entry import ClaimedMessage, DeadLetter, FetchedEntry, Malformed, Park, Settled
from penstock.backend.redis import RedisBackend, links
from penstock.errors import ServerOutOfMemoryError, ServerUnreachableError, WrongKeyTypeError
from penstock.message.message import Message
from tests.support.proxy import Proxy
from tests.support.waiting import healed

NOW = timedelta(0)
HOUR = timedelta(hours=1)


@pytest.fixture
async def group(backend: RedisBackend, topic: str) -> str:
    await backend.create_group(topic, "g")
    return "g"


async def suspects(backend: RedisBackend, topic: str, count: int, heir: str = "heir") -> list[ClaimedMessage]:
    """Entries whose consumer died with them in its hands."""
    await backend.publish_many(topic, [Message(n) for n in range(count)])
    await backend.read_new(topic, "g", "dead", count, NOW)
    return claimed(await backend.reclaim_idle(topic, "g", heir, NOW, count))


def claimed(entries: list[FetchedEntry]) -> list[ClaimedMessage]:
    assert all(isinstance(entry, ClaimedMessage) for entry in entries)
    return [entry for entry in entries if isinstance(entry, ClaimedMessage)]


def marks(admin: "redis.Redis", topic: str) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = admin.hgetall(keys.starts(topic, "g"))
    return found


async def test_what_was_handed_back_is_no_suspect_and_what_was_left_is(
    backend: RedisBackend, topic: str, group: str
) -> None:
    await backend.publish_many(topic, [Message(n) for n in range(4)])
    entries = await backend.read_new(topic, group, "a", 4, NOW)
    assert [entry.state.suspect for entry in entries] == [False] * 4
    await backend.release(topic, group, "a", [entries[0].id, entries[2].id])
    taken = await backend.reclaim_idle(topic, group, "b", NOW, 10)
    assert [entry.state.suspect for entry in taken] == [False, True, False, True]
    assert [entry.message.body for entry in claimed(taken)] == [0, 1, 2, 3]
    again = await backend.reclaim_idle(topic, group, "c", NOW, 10)
    assert [entry.state.suspect for entry in again] == [True] * 4  # b did not hand them back


async def test_a_retry_is_suspect_too_and_keeps_its_attempt(backend: RedisBackend, topic: str, group: str) -> None:
    await backend.publish(topic, Message(0))
    (entry,) = claimed(await backend.read_new(topic, group, "a", 1, NOW))
    await backend.settle(topic, group, "a", parked=[Park(entry, NOW, 2)])
    await backend.promote(topic, group)
    retry = keys.retry(topic, group)
    await backend.read_new(retry, group, "a", 1, NOW)
    (again,) = await backend.reclaim_idle(retry, group, "b", NOW, 1)
    assert (again.state.suspect, again.state.attempt, again.state.with_max_attempt(3).suspect) == (True, 2, True)


async def test_starts_are_counted_per_entry_whoever_starts_it(backend: RedisBackend, topic: str, group: str) -> None:
    first, second = await suspects(backend, topic, 2)
    assert await backend.mark_start(first, group, "heir") == 1
    assert await backend.mark_start(second, group, "heir") == 1
    assert await backend.mark_start(first, group, "heir") == 2
    await backend.reclaim_idle(topic, group, "next", NOW, 10)
    assert await backend.mark_start(first, group, "next") == 3
    assert await backend.begun(topic, group, [first.id, second.id, "9-9"]) == {first.id: 3, second.id: 1}
    assert await backend.begun(keys.retry(topic, group), group, [first.id]) == {}


async def test_only_its_holder_can_count_a_start(
    backend: RedisBackend, topic: str, group: str, admin: "redis.Redis"
) -> None:
    held, settled = await suspects(backend, topic, 2)
    await backend.settle(topic, group, "heir", done=[settled])
    assert await backend.mark_start(held, group, "dead") is None
    assert await backend.mark_start(settled, group, "heir") is None
    assert marks(admin, topic) == {}


async def test_an_entry_of_the_topic_and_one_of_its_retries_under_the_same_id_are_counted_apart(
    backend: RedisBackend, topic: str, group: str, admin: "redis.Redis"
) -> None:
    retry = keys.retry(topic, group)
    await backend.create_group(retry, group)
    (entry,) = await suspects(backend, topic, 1)
    await backend.settle(topic, group, "heir", parked=[Park(entry, NOW, 2)])
    await backend.promote(topic, group)
    ((raw_id, fields),) = admin.xrange(retry)
    admin.xdel(retry, raw_id)
    for stream in (topic, retry):
        admin.xadd(stream, fields, id="9999999999999-7")
    entries = claimed(await backend.read_new((topic, retry), group, "c", 1, NOW))
    assert [one.id for one in entries] == ["9999999999999-7"] * 2
    assert [await backend.mark_start(one, group, "c") for one in entries] == [1, 1]
    assert len(marks(admin, topic)) == 2


@pytest.mark.parametrize("outcome", ["done", "parked", "dead"])
@pytest.mark.parametrize("on_retry", [False, True])
async def test_settling_forgets_the_starts_in_the_same_step(
    backend: RedisBackend, topic: str, group: str, admin: "redis.Redis", outcome: str, on_retry: bool
) -> None:
    stream = topic
    (entry, other) = await suspects(backend, topic, 2)
    if on_retry:
        stream = keys.retry(topic, group)
        await backend.settle(topic, group, "heir", parked=[Park(entry, NOW, 2), Park(other, NOW, 2)])
        await backend.promote(topic, group)
        await backend.read_new(stream, group, "dead", 2, NOW)
        entry, other = claimed(await backend.reclaim_idle(stream, group, "heir", NOW, 2))
    for one in (entry, other):
        assert await backend.mark_start(one, group, "heir") == 1
    outcomes = {"done": [entry], "parked": [Park(entry, HOUR, 3)], "dead": [DeadLetter(entry, "why")]}
    settle = {outcome: outcomes[outcome]}
    assert await backend.settle(stream, group, "heir", **settle) == Settled(ok=1)  # type: ignore[arg-type]
    (left,) = marks(admin, topic)
    assert left.decode().endswith(other.id)
    # A zombie's settle must not wipe out what is counted for the new holder.
    await backend.reclaim_idle(stream, group, "next", NOW, 10)
    outcomes = {"done": [other], "parked": [Park(other, HOUR, 3)], "dead": [DeadLetter(other, "why")]}
    assert await backend.settle(stream, group, "heir", **{outcome: outcomes[outcome]}) == Settled(fenced=(other.id,))  # type: ignore[arg-type]
    assert len(marks(admin, topic)) == 1


async def test_starts_of_what_was_taken_stay_when_it_is_settled_beside_what_was_not(
    backend: RedisBackend, topic: str, group: str, admin: "redis.Redis"
) -> None:
    kept, taken = await suspects(backend, topic, 2)
    for entry in (kept, taken):
        await backend.mark_start(entry, group, "heir")
    await backend.reclaim_idle(topic, group, "next", NOW, 10, running=[kept.id])
    assert await backend.settle(topic, group, "heir", done=[kept, taken]) == Settled(ok=1, fenced=(taken.id,))
    assert [field.decode() for field in marks(admin, topic)] == [f"topic/{taken.id}"]


async def test_a_settle_without_suspects_does_not_ask_for_starts(
    backend: RedisBackend, topic: str, group: str, admin: "redis.Redis"
) -> None:
    await backend.publish_many(topic, [Message(n) for n in range(100)])
    entries = await backend.read_new(topic, group, "a", 100, NOW)
    admin.config_resetstat()
    await backend.settle(topic, group, "a", done=entries)
    calls = {name.removeprefix("cmdstat_") for name in admin.info("commandstats")}
    assert calls - {"evalsha", "eval", "config|resetstat"} == {"hget", "xack"}


async def test_a_lost_answer_does_not_count_a_start_twice(
    wired: RedisBackend, proxy: Proxy, topic: str, admin: "redis.Redis"
) -> None:
    (entry,) = await suspects(wired, topic, 1)
    assert await wired.mark_start(entry, "g", "heir") == 1
    proxy.drop_reply_to("EVALSHA")
    assert await wired.mark_start(entry, "g", "heir") == 2
    assert proxy.dropped == 1
    (count,) = marks(admin, topic).values()
    assert count.startswith(b"2 ")


async def test_a_start_that_nobody_could_note_is_an_error(
    wired: RedisBackend, proxy: Proxy, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "_PATIENCE_SECONDS", 0.2)
    (entry,) = await suspects(wired, topic, 1)
    proxy.refusing = True
    proxy.cut()
    with pytest.raises(ServerUnreachableError):
        await wired.mark_start(entry, "g", "heir")
    proxy.refusing = False
    assert await healed(lambda: wired.mark_start(entry, "g", "heir")) == 1


async def test_starts_can_be_counted_on_a_server_without_memory(
    backend: RedisBackend, topic: str, group: str, admin: "redis.Redis"
) -> None:
    (entry,) = await suspects(backend, topic, 1)
    admin.config_set("maxmemory", 1)
    try:
        with pytest.raises(ServerOutOfMemoryError):
            await backend.publish(topic, Message(1))
        assert await backend.mark_start(entry, group, "heir") == 1
        assert await backend.settle(topic, group, "heir", done=[entry]) == Settled(ok=1)
    finally:
        admin.config_set("maxmemory", 0)
    assert marks(admin, topic) == {}


async def test_starts_of_entries_that_left_by_another_way_are_swept_by_the_scans(
    backend: RedisBackend, topic: str, group: str, admin: "redis.Redis"
) -> None:
    """Acked by others, or settled as no suspect; the marks of what is still pending stay, lost or not."""
    entries = await suspects(backend, topic, 60)
    for entry in entries:
        await backend.mark_start(entry, group, "heir")
    kept = [entries[0].id, entries[59].id]
    admin.xdel(topic, kept[0])
    admin.xack(topic, group, *[entry.id for entry in entries[1:59]])
    async with asyncio.timeout(20):
        while len(marks(admin, topic)) > 2:
            await backend.reclaim_idle(topic, group, "heir", HOUR, 10)
    assert sorted(field.decode().partition("/")[2] for field in marks(admin, topic)) == kept
    (lost,) = [
        one
        for one in await backend.reclaim_idle(topic, group, "heir", NOW, 10)
        if isinstance(one, Malformed) and one.lost
    ]
    assert await backend.settle(topic, group, "heir", dead=[DeadLetter(lost, "lost")]) == Settled(ok=1)
    assert len(marks(admin, topic)) == 1


async def test_a_scan_of_one_stream_leaves_the_starts_of_the_other_alone(
    backend: RedisBackend, topic: str, group: str, admin: "redis.Redis"
) -> None:
    retry = keys.retry(topic, group)
    await backend.create_group(retry, group)
    (entry,) = await suspects(backend, topic, 1)
    await backend.mark_start(entry, group, "heir")
    for _ in range(5):
        await backend.reclaim_idle(retry, group, "heir", NOW, 10)
    assert len(marks(admin, topic)) == 1


async def test_something_else_at_the_key_of_the_starts_stops_nothing_half_way(
    backend: RedisBackend, topic: str, group: str, admin: "redis.Redis"
) -> None:
    first, second = await suspects(backend, topic, 2)
    admin.set(keys.starts(topic, group), "mine")
    for settle in (
        {"done": [first]},
        {"parked": [Park(first, HOUR, 2)]},
        {"dead": [DeadLetter(second, "why")]},
    ):
        with pytest.raises(WrongKeyTypeError, match="starts"):
            await backend.settle(topic, group, "heir", **settle)  # type: ignore[arg-type]
    with pytest.raises(WrongKeyTypeError, match="starts"):
        await backend.mark_start(first, group, "heir")
    with pytest.raises(WrongKeyTypeError, match="starts"):
        await backend.reclaim_idle(topic, group, "thief", NOW, 10)
    assert admin.xpending(topic, group)["consumers"] == [{"name": b"heir", "pending": 2}]
    assert not admin.exists(keys.parked(topic, group), keys.dead(topic))
