"""What a dead consumer held goes to a living one, once, and nothing of it is lost in silence."""

import asyncio
from datetime import timedelta
from typing import Any, cast

import redis

from penstock.backend import keys
from penstock.backend.entry import ClaimedMessage, DeadLetter, Malformed, Settled
from penstock.backend.redis import RedisBackend
from penstock.delivery.delivery import Delivery
from penstock.message.message import Message
from tests.support.dead import dead_letters

NOW = timedelta(0)
HOUR = timedelta(hours=1)


async def publish(backend: RedisBackend, topic: str, count: int) -> None:
    await backend.create_group(topic, "g")
    await backend.publish_many(topic, [Message({"n": n}) for n in range(count)])


def age(admin: "redis.Redis", topic: str, consumer: str, ids: list[str], idle_ms: int = 3_600_000) -> None:
    admin.xclaim(topic, "g", consumer, 0, ids, idle=idle_ms, justid=True)


async def test_only_entries_that_were_idle_long_enough_are_taken(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    await publish(backend, topic, 3)
    entries = await backend.read_new(topic, "g", "dead", 3, NOW)
    age(admin, topic, "dead", [entries[1].id])
    taken = await backend.reclaim_idle(topic, "g", "alive", HOUR, 10)
    assert [entry.id for entry in taken] == [entries[1].id]
    assert isinstance(taken[0], ClaimedMessage)
    assert taken[0].message.body == {"n": 1}
    assert taken[0].state.redelivered
    assert taken[0].state.attempt == 1  # being handed out again is no failure of the handler's


async def test_no_more_are_taken_than_there_is_room_for_and_the_rest_keeps_its_age(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    await publish(backend, topic, 5)
    entries = await backend.read_new(topic, "g", "dead", 5, NOW)
    age(admin, topic, "dead", [entry.id for entry in entries])
    ids = []
    for room in (2, 2, 2):
        taken = await backend.reclaim_idle(topic, "g", "alive", HOUR, room)
        assert len(taken) <= room
        ids += [entry.id for entry in taken]
    assert ids == [entry.id for entry in entries]


async def test_of_what_was_handed_back_no_more_is_taken_than_there_is_room_for(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    await publish(backend, topic, 8)
    ids = [entry.id for entry in await backend.read_new(topic, "g", "left", 8, NOW)]
    suspects = [ids[3], ids[6], ids[7]]
    age(admin, topic, "left", suspects)
    assert await backend.release(topic, "g", "left", [one for one in ids if one not in suspects]) == []
    none = await backend.reclaim_idle(topic, "g", "busy", HOUR, 1, handed_back=0)
    assert [(entry.id, entry.state.suspect) for entry in none] == [(ids[3], True)]
    some = await backend.reclaim_idle(topic, "g", "b", HOUR, 10, handed_back=2)
    assert [(one.id, one.state.suspect) for one in some] == [
        (ids[0], False), (ids[1], False), (ids[6], True), (ids[7], True),
    ]  # fmt: skip
    rest = await backend.reclaim_idle(topic, "g", "b", HOUR, 10)
    assert [entry.id for entry in rest] == [ids[2], ids[4], ids[5]]


LARGE = "x" * 600_000


async def test_large_entries_are_taken_a_few_at_a_time_and_none_is_skipped(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    await backend.create_group(topic, "g")
    await backend.publish_many(topic, [Message(LARGE) for _ in range(5)])
    ids = [entry.id for entry in await backend.read_new(topic, "g", "dead", 5, NOW)]
    age(admin, topic, "dead", ids)
    taken = []
    while page := await backend.reclaim_idle(topic, "g", "alive", HOUR, 64):
        assert len(page) <= 2  # about a MiB
        taken += [entry.id for entry in page]
    assert taken == ids


async def test_a_large_entry_that_is_left_alone_is_not_read_for_that(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    await backend.create_group(topic, "g")
    await backend.publish_many(topic, [Message(LARGE) for _ in range(5)])
    ids = [entry.id for entry in await backend.read_new(topic, "g", "left", 5, NOW)]
    await backend.release(topic, "g", "left", ids)
    admin.config_resetstat()
    assert await backend.reclaim_idle(topic, "g", "busy", HOUR, 64, handed_back=0) == []
    assert "cmdstat_xrange" not in admin.info("commandstats")


async def test_leases_of_large_entries_are_renewed_a_few_at_a_time(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    await backend.create_group(topic, "g")
    await backend.publish_many(topic, [Message(LARGE) for _ in range(6)])
    ids = [entry.id for entry in await backend.read_new(topic, "g", "a", 6, NOW)]
    age(admin, topic, "a", [*ids[:2], *ids[3:]])
    age(admin, topic, "thief", [ids[2]])
    admin.xdel(topic, ids[4])
    admin.config_resetstat()
    assert await backend.renew(topic, "g", "a", ids) == [ids[2], ids[4]]
    assert admin.info("commandstats")["cmdstat_evalsha"]["calls"] >= 4  # one for each that was copied
    idle = {
        row["message_id"].decode(): row["time_since_delivered"] for row in admin.xpending_range(topic, "g", "-", "+", 9)
    }
    assert [one for one in ids if idle[one] > 60_000] == [ids[2], ids[4]]


async def test_every_delivery_of_a_message_to_a_group_carries_a_higher_number(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    await backend.create_group(topic, "other")
    await publish(backend, topic, 1)
    (fresh,) = await backend.read_new(topic, "g", "a", 1, NOW)
    await backend.renew(topic, "g", "a", [fresh.id])
    (stolen,) = await backend.reclaim_idle(topic, "g", "b", NOW, 1)
    await backend.release(topic, "g", "b", [fresh.id])
    (taken,) = await backend.reclaim_idle(topic, "g", "c", HOUR, 1)
    assert [entry.state.deliveries for entry in (fresh, stolen, taken)] == [1, 2, 3]
    assert [Delivery(None, cast(Any, entry), cast(Any, None)).fence for entry in (fresh, stolen, taken)] == [1, 2, 3]
    assert admin.xpending_range(topic, "g", "-", "+", 1)[0]["times_delivered"] == 3
    (theirs,) = await backend.read_new(topic, "other", "a", 1, NOW)
    assert theirs.state.deliveries == 1


async def test_eight_reclaimers_never_take_the_same_entry(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    await publish(backend, topic, 400)
    entries = await backend.read_new(topic, "g", "dead", 400, NOW)
    age(admin, topic, "dead", [entry.id for entry in entries])

    async def reclaim(number: int) -> list[str]:
        taken: list[str] = []
        while page := await backend.reclaim_idle(topic, "g", f"heir-{number}", HOUR, 7):
            taken += [entry.id for entry in page]
        return taken

    shares = await asyncio.gather(*(reclaim(number) for number in range(8)))
    assert sorted(entry for share in shares for entry in share) == sorted(entry.id for entry in entries)
    assert sum(bool(share) for share in shares) > 1


async def test_what_the_consumer_is_working_on_is_not_taken_from_itself(backend: RedisBackend, topic: str) -> None:
    await publish(backend, topic, 3)
    entries = await backend.read_new(topic, "g", "a", 3, NOW)
    running = [entries[0].id, entries[2].id]
    taken = await backend.reclaim_idle(topic, "g", "a", NOW, 10, running=running)
    assert [entry.id for entry in taken] == [entries[1].id]


async def test_what_an_earlier_life_of_the_same_consumer_left_is_taken(backend: RedisBackend, topic: str) -> None:
    await publish(backend, topic, 1)
    (left,) = await backend.read_new(topic, "g", "a", 1, NOW)
    (taken,) = await backend.reclaim_idle(topic, "g", "a", NOW, 10)
    assert taken.id == left.id
    assert await backend.settle(topic, "g", "a", done=[taken]) == Settled(ok=1)


async def test_a_scan_looks_at_a_bounded_part_and_goes_on_next_time(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    await publish(backend, topic, 5000)
    entries = await backend.read_new(topic, "g", "busy", 5000, NOW)
    age(admin, topic, "busy", [entries[-1].id])
    calls = 0
    while not (taken := await backend.reclaim_idle(topic, "g", "alive", HOUR, 10)):
        calls += 1
        assert calls < 10
    assert calls >= 2  # 5,000 rows are more than one call looks at
    assert [entry.id for entry in taken] == [entries[-1].id]


async def test_an_entry_deleted_while_pending_is_reported_until_it_is_settled(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    await publish(backend, topic, 3)
    entries = await backend.read_new(topic, "g", "dead", 3, NOW)
    admin.xdel(topic, entries[0].id)
    admin.xtrim(topic, maxlen=1, approximate=False)
    for reclaimer in ("alive", "other"):
        taken = await backend.reclaim_idle(topic, "g", reclaimer, NOW, 10)
        lost = [entry for entry in taken if isinstance(entry, Malformed) and entry.lost]
        assert [entry.id for entry in lost] == [entries[0].id, entries[1].id]
    letters = [DeadLetter(entry, "lost") for entry in lost]
    assert await backend.settle(topic, "g", "alive", dead=letters) == Settled(ok=2)
    assert await backend.settle(topic, "g", "other", dead=letters) == Settled(gone=2)
    records = [record for record, _ in dead_letters(admin, topic)]
    assert [(record.entry, record.lost) for record in records] == [(entries[0].id, True), (entries[1].id, True)]
    assert admin.xpending(topic, "g")["pending"] == 1


async def test_a_consumer_that_holds_entries_is_not_removed(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    await publish(backend, topic, 1)
    entries = await backend.read_new(topic, "g", "a", 1, NOW)
    assert await backend.forget_consumer(topic, "g", "a") is False
    assert admin.xpending(topic, "g")["pending"] == 1
    await backend.settle(topic, "g", "a", done=entries)
    assert await backend.forget_consumer(topic, "g", "a") is True
    assert admin.xinfo_consumers(topic, "g") == []
    assert admin.hlen(keys.steals(topic, "g")) == 0
    assert await backend.forget_consumer(topic, "g", "a") is True


async def test_forgetting_a_consumer_of_a_vanished_stream_or_group_is_fine(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    assert await backend.forget_consumer(topic, "g", "a") is True
    await publish(backend, topic, 1)
    admin.xgroup_destroy(topic, "g")
    assert await backend.forget_consumer(topic, "g", "a") is True


async def test_entries_thrown_away_with_their_consumer_are_gone_when_settled(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    await publish(backend, topic, 2)
    entries = await backend.read_new(topic, "g", "a", 2, NOW)
    assert admin.xgroup_delconsumer(topic, "g", "a") == 2
    assert await backend.settle(topic, "g", "a", done=entries) == Settled(gone=2)
