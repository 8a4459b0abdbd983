"""Settling acts on what is still ours, and on nothing else."""

from datetime import timedelta

import pytest
import redis

from penstock.backend import keys
from penstock.backend.entry import ClaimedMessage, DeadLetter, Park, Settled
from penstock.backend.redis import RedisBackend
from penstock.errors import ConfigurationError, WrongKeyTypeError
from penstock.message.message import Message
from tests.support.dead import dead_letters

NOW = timedelta(0)
SOON = timedelta(milliseconds=200)


async def lease(backend: RedisBackend, topic: str, consumer: str = "a", count: int = 10) -> list[ClaimedMessage]:
    entries = await backend.read_new(topic, "g", consumer, count, NOW)
    assert all(isinstance(entry, ClaimedMessage) for entry in entries)
    return entries  # type: ignore[return-value]


async def publish(backend: RedisBackend, topic: str, count: int = 1) -> None:
    await backend.create_group(topic, "g")
    await backend.publish_many(topic, [Message({"n": n}) for n in range(count)])


def pending(admin: "redis.Redis", stream: str, group: str = "g") -> list[str]:
    return [row["message_id"].decode() for row in admin.xpending_range(stream, group, "-", "+", 1000)]


async def test_what_is_done_leaves_the_pending_list(backend: RedisBackend, topic: str, admin: "redis.Redis") -> None:
    await publish(backend, topic, 3)
    entries = await lease(backend, topic)
    assert pending(admin, topic) == [entry.id for entry in entries]
    assert await backend.settle(topic, "g", "a", done=entries[:2]) == Settled(ok=2)
    assert pending(admin, topic) == [entries[2].id]


async def test_settling_twice_reports_gone_and_harms_nobody(backend: RedisBackend, topic: str) -> None:
    await publish(backend, topic, 2)
    entries = await lease(backend, topic)
    await backend.settle(topic, "g", "a", done=entries[:1])
    assert await backend.settle(topic, "g", "a", done=entries) == Settled(ok=1, gone=1)


async def test_a_zombie_cannot_settle_what_was_taken_from_it(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    await publish(backend, topic, 2)
    entries = await lease(backend, topic, "zombie")
    taken = await backend.reclaim_idle(topic, "g", "heir", NOW, 1)
    assert [entry.id for entry in taken] == [entries[0].id]
    result = await backend.settle(topic, "g", "zombie", done=entries)
    assert result == Settled(ok=1, fenced=(entries[0].id,))
    assert pending(admin, topic) == [entries[0].id]
    assert await backend.settle(topic, "g", "heir", done=taken) == Settled(ok=1)


async def test_an_entry_that_went_to_another_and_came_back_is_ours_again(backend: RedisBackend, topic: str) -> None:
    await publish(backend, topic)
    await lease(backend, topic, "a")
    await backend.reclaim_idle(topic, "g", "b", NOW, 1)
    again = await backend.reclaim_idle(topic, "g", "a", NOW, 1)
    assert await backend.settle(topic, "g", "a", done=again) == Settled(ok=1)


async def test_entries_read_after_a_theft_settle_without_a_look_at_each(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    await publish(backend, topic, 2)
    first = await lease(backend, topic, "a", 1)
    await backend.reclaim_idle(topic, "g", "b", NOW, 1)
    await backend.settle(topic, "g", "a", done=first)
    second = await lease(backend, topic, "a", 1)
    admin.config_resetstat()
    assert await backend.settle(topic, "g", "a", done=second) == Settled(ok=1)
    assert "cmdstat_xpending" not in admin.info("commandstats")


async def test_a_deleted_steal_counter_makes_settling_look_at_each_entry(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    await publish(backend, topic, 2)
    entries = await lease(backend, topic, "zombie")
    await backend.reclaim_idle(topic, "g", "heir", NOW, 1)
    admin.delete(keys.steals(topic, "g"))
    result = await backend.settle(topic, "g", "zombie", done=entries)
    assert result == Settled(ok=1, fenced=(entries[0].id,))


async def test_a_parked_delivery_is_fenced_per_entry(backend: RedisBackend, topic: str, admin: "redis.Redis") -> None:
    await publish(backend, topic, 3)
    entries = await lease(backend, topic, "zombie")
    await backend.reclaim_idle(topic, "g", "heir", NOW, 1)
    await backend.ack(topic, "g", entries[1].id)
    parks = [Park(entry, SOON, 2) for entry in entries]
    assert await backend.settle(topic, "g", "zombie", parked=parks) == Settled(1, 1, (entries[0].id,))
    assert admin.zcard(keys.parked(topic, "g")) == 1
    assert pending(admin, topic) == [entries[0].id]


async def test_a_dead_letter_is_fenced_per_entry(backend: RedisBackend, topic: str, admin: "redis.Redis") -> None:
    await publish(backend, topic, 3)
    entries = await lease(backend, topic, "zombie")
    await backend.reclaim_idle(topic, "g", "heir", NOW, 1)
    await backend.ack(topic, "g", entries[1].id)
    letters = [DeadLetter(entry, "no use") for entry in entries]
    assert await backend.settle(topic, "g", "zombie", dead=letters) == Settled(1, 1, (entries[0].id,))
    assert admin.xlen(keys.dead(topic)) == 1
    assert pending(admin, topic) == [entries[0].id]


async def test_a_dead_letter_keeps_every_byte_and_says_why(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    await publish(backend, topic)
    (entry,) = await lease(backend, topic)
    await backend.settle(topic, "g", "a", dead=[DeadLetter(entry, "bad \ud800 total", {"error": "ValueError"})])
    ((record, raw),) = dead_letters(admin, topic)
    assert raw == list(entry.raw)
    assert (record.topic, record.group, record.entry, record.attempts) == (topic, "g", entry.id, 1)
    assert record.reason == "bad \\ud800 total"
    assert record.details == {"error": "ValueError"}


async def test_a_dead_letter_that_cannot_be_written_leaves_the_entry_pending(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    await publish(backend, topic)
    (entry,) = await lease(backend, topic)
    admin.set(keys.dead(topic), "in the way")
    with pytest.raises(WrongKeyTypeError, match="dead"):
        await backend.settle(topic, "g", "a", dead=[DeadLetter(entry, "why")])
    assert pending(admin, topic) == [entry.id]
    admin.delete(keys.dead(topic))
    assert await backend.settle(topic, "g", "a", dead=[DeadLetter(entry, "why")]) == Settled(ok=1)


async def test_a_delivery_that_cannot_be_parked_stays_pending(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    await publish(backend, topic)
    (entry,) = await lease(backend, topic)
    admin.set(keys.parked(topic, "g"), "in the way")
    with pytest.raises(WrongKeyTypeError, match="parked"):
        await backend.settle(topic, "g", "a", parked=[Park(entry, SOON, 2)])
    assert pending(admin, topic) == [entry.id]


async def test_more_entries_than_one_script_takes_settle_in_one_call(backend: RedisBackend, topic: str) -> None:
    await publish(backend, topic, 2500)
    entries = await lease(backend, topic, count=2500)
    assert len(entries) == 2500
    assert await backend.settle(topic, "g", "a", done=entries) == Settled(ok=2500)


async def test_ack_ignores_unknown_ids_and_counts_the_rest(backend: RedisBackend, topic: str) -> None:
    await publish(backend, topic, 2)
    entries = await lease(backend, topic)
    assert await backend.ack_many(topic, "g", [entries[0].id, "1-1"]) == 1
    assert await backend.ack_many(topic, "g", [entries[0].id]) == 0
    assert await backend.ack_many(topic, "no such group", [entries[1].id]) == 0
    await backend.ack(topic, "g", entries[1].id)


async def test_settling_survives_a_flushed_script_cache(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    await publish(backend, topic, 4)
    entries = await lease(backend, topic)
    for entry in entries[:2]:
        admin.script_flush()
        assert await backend.settle(topic, "g", "a", done=[entry]) == Settled(ok=1)
    admin.script_flush()
    assert await backend.settle(topic, "g", "a", parked=[Park(entries[2], NOW, 2)]) == Settled(ok=1)
    admin.script_flush()
    assert await backend.settle(topic, "g", "a", dead=[DeadLetter(entries[3], "why")]) == Settled(ok=1)


async def test_renewing_tells_which_entries_are_not_ours_any_more(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    await publish(backend, topic, 4)
    entries = await lease(backend, topic, "a")
    await backend.reclaim_idle(topic, "g", "b", NOW, 1)
    await backend.ack(topic, "g", entries[1].id)
    admin.xdel(topic, entries[2].id)
    ids = [entry.id for entry in entries]
    assert await backend.renew(topic, "g", "a", ids) == ids[:3]
    # Renewing a deleted entry would make the server drop it from the pending list without a word.
    assert pending(admin, topic) == [ids[0], ids[2], ids[3]]


async def test_a_renewed_entry_is_not_idle_and_counts_no_delivery(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    await publish(backend, topic)
    (entry,) = await lease(backend, topic)
    admin.xclaim(topic, "g", "a", 0, [entry.id], idle=60_000, justid=True)
    assert await backend.renew(topic, "g", "a", [entry.id]) == []
    assert await backend.reclaim_idle(topic, "g", "b", timedelta(seconds=30), 1) == []
    assert admin.xpending_range(topic, "g", "-", "+", 1)[0]["times_delivered"] == 1


async def test_a_released_entry_can_be_reclaimed_at_once(backend: RedisBackend, topic: str) -> None:
    await publish(backend, topic)
    (entry,) = await lease(backend, topic)
    assert await backend.reclaim_idle(topic, "g", "b", timedelta(hours=1), 1) == []
    assert await backend.release(topic, "g", "a", [entry.id]) == []
    (taken,) = await backend.reclaim_idle(topic, "g", "b", timedelta(hours=1), 1)
    assert taken.id == entry.id
    assert await backend.release(topic, "g", "a", [entry.id]) == [entry.id]


@pytest.mark.parametrize("outcome", ["done", "parked", "dead"])
async def test_readers_of_a_destroyed_group_cannot_settle_for_its_successor(
    backend: RedisBackend, topic: str, admin: "redis.Redis", outcome: str
) -> None:
    await publish(backend, topic)
    (entry,) = await lease(backend, topic, "before")
    admin.xgroup_destroy(topic, "g")
    assert await backend.create_group(topic, "g") is True
    (again,) = await lease(backend, topic, "after")
    assert again.id == entry.id
    late = {"done": [entry], "parked": [Park(entry, NOW, 2)], "dead": [DeadLetter(entry, "why")]}
    result = await backend.settle(topic, "g", "before", **{outcome: late[outcome]})
    assert result == Settled(fenced=(entry.id,))
    assert await backend.settle(topic, "g", "after", done=[again]) == Settled(ok=1)


async def test_a_group_that_was_there_keeps_its_counters(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    await publish(backend, topic)
    await lease(backend, topic)
    assert await backend.create_group(topic, "g") is False
    assert admin.hlen(keys.steals(topic, "g")) == 1


async def test_entries_of_one_stream_cannot_be_settled_on_another(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    await publish(backend, topic)
    (entry,) = await lease(backend, topic)
    with pytest.raises(ConfigurationError, match="by stream"):
        await backend.settle(topic + ":other", "g", "a", done=[entry])
    with pytest.raises(ConfigurationError, match="by stream"):
        await backend.settle(topic + ":other", "g", "a", parked=[Park(entry, NOW, 2)])
    with pytest.raises(ConfigurationError, match="by stream"):
        await backend.settle(topic + ":other", "g", "a", dead=[DeadLetter(entry, "why")])
    assert pending(admin, topic) == [entry.id]


async def test_large_copies_are_written_in_several_steps(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    await backend.create_group(topic, "g")
    await backend.publish_many(topic, [Message("x" * 400_000) for _ in range(12)])
    entries = await lease(backend, topic, count=12)
    await backend.renew(topic, "g", "a", [])
    admin.config_resetstat()
    assert await backend.settle(topic, "g", "a", parked=[Park(entry, NOW, 2) for entry in entries]) == Settled(ok=12)
    assert admin.info("commandstats")["cmdstat_evalsha"]["calls"] >= 4
    moved = []
    while (count := (await backend.promote(topic, "g"))[0]) > 0:
        moved.append(count)
    assert sum(moved) == 12
    assert max(moved) <= 4


async def test_nothing_is_settled_where_it_cannot_be_seen_who_else_reads(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    await publish(backend, topic)
    (entry,) = await lease(backend, topic)
    admin.set(keys.cursors(topic), "in the way")
    with pytest.raises(WrongKeyTypeError, match="cursors"):
        await backend.complete(topic, "g", "a", [entry.id], fence=entry.fence, drops=True)
    assert pending(admin, topic) == [entry.id]
