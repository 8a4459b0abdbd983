"""An inspection finds what is there, changes nothing, and does not cost more where there is more."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis

from penstock.backend import keys
from penstock.backend.entry import ClaimedMessage, DeadLetter, Park
from penstock.backend.facts import TopicFacts
from penstock.backend.redis import RedisBackend
from penstock.errors import WrongKeyTypeError
from penstock.message.message import Message

NOW = timedelta(0)
HOUR = timedelta(hours=1)


async def publish(backend: RedisBackend, topic: str, count: int) -> list[str]:
    return [str(id) for id in await backend.publish_many(topic, [Message({"n": n}) for n in range(count)])]


async def read(
    backend: RedisBackend, stream: str, count: int, group: str = "g", consumer: str = "c"
) -> list[ClaimedMessage]:
    entries = await backend.read_new(stream, group, consumer, count, NOW)
    assert all(isinstance(entry, ClaimedMessage) for entry in entries)
    return entries  # type: ignore[return-value]


async def test_a_topic_that_does_not_exist_is_empty_and_stays_away(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    facts = await backend.inspect(topic)
    assert facts == TopicFacts(topic, facts.now, exists=False)
    assert abs(datetime.now(UTC) - facts.now) < HOUR
    assert not admin.exists(topic)


async def test_a_topic_without_groups_says_what_it_holds(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    ids = await publish(backend, topic, 5)
    admin.xdel(topic, ids[2])
    admin.xtrim(topic, minid=ids[1], approximate=False)
    admin.hset(keys.cursors(topic), "lake", ids[0])
    facts = await backend.inspect(topic)
    assert (facts.length, facts.entries_added) == (3, 5)
    assert (facts.first_id, facts.last_id, facts.max_deleted) == (ids[1], ids[4], ids[2])
    assert facts.cursors == {"lake": ids[0]}
    assert (facts.epoch, facts.groups) == (None, ())


async def test_a_stream_that_was_emptied_has_no_first_entry(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    ids = await publish(backend, topic, 2)
    admin.xtrim(topic, maxlen=0, approximate=False)
    facts = await backend.inspect(topic)
    assert (facts.exists, facts.length, facts.first_id, facts.last_id) == (True, 0, None, ids[1])


async def test_every_place_a_message_can_be_in_is_counted_where_it_is(backend: RedisBackend, topic: str) -> None:
    retry = keys.retry(topic, "g")
    await backend.create_group(topic, "g")
    ids = await publish(backend, topic, 10)
    entries = await read(backend, topic, 8)
    parks = [Park(entry, NOW, 2) for entry in entries[:3]]
    await backend.settle(topic, "g", "c", parked=[*parks, Park(entries[3], HOUR, 2)])
    await backend.settle(topic, "g", "c", dead=[DeadLetter(entries[4], "why")], done=entries[5:6])
    assert (await backend.promote(topic, "g"))[0] == 3
    await read(backend, retry, 1, consumer="d")
    await backend.publish_later(topic, [Message(1), Message(2)], delay=HOUR)
    facts = await backend.inspect(topic)
    (group,) = facts.groups
    assert (group.name, group.last_delivered, group.next_id) == ("g", ids[7], ids[8])
    assert (group.pending, group.oldest_pending) == (2, ids[6])
    assert (group.parked, group.parked_origin) == (1, ids[3])
    assert (group.retrying, group.ready, group.retry_origin) == (1, 2, ids[0])
    assert (facts.dead, facts.later) == (1, 2)
    for due in (group.parked_due, facts.later_due):
        assert due is not None
        assert timedelta(minutes=59) < due - facts.now <= HOUR
    assert [(one.name, one.pending) for one in group.consumers] == [("c", 2), ("d", 1)]
    assert all(one.idle < HOUR for one in group.consumers)


async def test_a_consumer_of_topic_and_retries_is_one(backend: RedisBackend, topic: str) -> None:
    retry = keys.retry(topic, "g")
    await backend.create_group(topic, "g")
    await publish(backend, topic, 3)
    entries = await read(backend, topic, 3)
    await backend.settle(topic, "g", "c", parked=[Park(entries[0], NOW, 2)])
    await backend.promote(topic, "g")
    await read(backend, retry, 1)
    ((consumer,),) = [group.consumers for group in (await backend.inspect(topic)).groups]
    assert (consumer.name, consumer.pending) == ("c", 3)


async def test_the_epoch_is_told_and_the_group_that_holds_it_is_not(backend: RedisBackend, topic: str) -> None:
    await backend.create_group(topic, "g")
    seen = await backend.watch(topic, "g")
    facts = await backend.inspect(topic)
    assert facts.epoch == seen.epoch is not None
    assert [group.name for group in facts.groups] == ["g"]


async def test_only_the_paused_group_is_paused(backend: RedisBackend, topic: str) -> None:
    for group in ("a", "b"):
        await backend.create_group(topic, group)
    await backend.pause(topic, "b")
    assert [group.paused for group in (await backend.inspect(topic)).groups] == [False, True]


async def test_all_of_many_groups_are_found(backend: RedisBackend, topic: str, admin: "redis.Redis") -> None:
    names = [f"g{number:03}" for number in range(150)]
    ids = await publish(backend, topic, 150)
    for number, name in enumerate(names):
        await backend.create_group(topic, name, ids[number])
    groups = (await backend.inspect(topic)).groups
    assert [group.name for group in groups] == names
    assert [group.last_delivered for group in groups] == ids
    assert [group.next_id for group in groups] == [*ids[1:], None]


async def test_large_entries_on_the_way_leave_no_group_out_and_make_no_command_long(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    ids = [str(id) for id in await backend.publish_many(topic, [Message("x" * 200_000) for _ in range(12)])]
    for number, id in enumerate(ids):
        await backend.create_group(topic, f"g{number:02}", id)
    before = admin.info("commandstats")["cmdstat_evalsha"]["calls"]
    groups = (await backend.inspect(topic)).groups
    assert [group.next_id for group in groups] == [*ids[1:], None]
    calls = admin.info("commandstats")["cmdstat_evalsha"]["calls"] - before
    assert calls >= 6, "one script has copied all those entries"


async def test_groups_that_others_made_under_any_name_are_shown(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    await publish(backend, topic, 1)
    admin.xgroup_create(topic, b"\xff\n", "0")
    admin.xgroup_create(topic, "at the end of time", "18446744073709551615-18446744073709551615")
    admin.xreadgroup(b"\xff\n", b"\x00c", {topic: ">"})
    odd, ended = sorted((await backend.inspect(topic)).groups, key=lambda group: group.name)
    assert (odd.name, odd.pending, odd.consumers[0].name) == ("\\xff\n", 1, "\x00c")
    assert ended.next_id is None


async def test_what_is_no_parcel_of_ours_is_counted_and_tells_no_origin(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    await backend.create_group(topic, "g")
    await backend.create_group(keys.retry(topic, "g"), "g")
    admin.zadd(keys.parked(topic, "g"), {b"\xff\xff\xff\xff": 10**30})
    admin.xadd(keys.retry(topic, "g"), {"what": "ever"})
    (group,) = (await backend.inspect(topic)).groups
    assert (group.parked, group.parked_origin, group.ready, group.retry_origin) == (1, None, 1, None)
    assert group.parked_due is not None
    assert group.parked_due.year == 9999


@pytest.mark.parametrize("kind", ["topic", "dead", "later", "cursors", "groups", "paused", "parked", "retry"])
async def test_a_key_of_another_type_is_named(
    backend: RedisBackend, topic: str, admin: "redis.Redis", kind: str
) -> None:
    await backend.create_group(topic, "g")
    names = {"topic": topic, "parked": keys.parked(topic, "g"), "retry": keys.retry(topic, "g")}
    name = names.get(kind) or getattr(keys, kind)(topic)
    admin.delete(name)
    admin.set(name, "x")
    with pytest.raises(WrongKeyTypeError, match=topic):
        await backend.inspect(topic)


async def test_it_changes_nothing_and_needs_no_memory(backend: RedisBackend, topic: str, admin: "redis.Redis") -> None:
    await backend.create_group(topic, "g")
    await publish(backend, topic, 3)
    await read(backend, topic, 2)
    names = [*admin.scan_iter(f"penstock:{{{topic}}}:*", count=10_000), topic]
    before = {name: admin.dump(name) for name in names}
    admin.config_set("maxmemory", 1)
    try:
        assert (await backend.inspect(topic)).length == 3
    finally:
        admin.config_set("maxmemory", 0)
    assert {
        name: admin.dump(name) for name in [*admin.scan_iter(f"penstock:{{{topic}}}:*", count=10_000), topic]
    } == before


async def grown(backend: RedisBackend, admin: "redis.Redis", topic: str, size: int) -> None:
    await backend.create_group(topic, "g")
    await backend.create_group(keys.retry(topic, "g"), "g")
    await publish(backend, topic, 2 * size)
    await publish(backend, keys.retry(topic, "g"), size)
    admin.xreadgroup("g", "c", {topic: ">"}, count=size)
    admin.xreadgroup("g", "c", {keys.retry(topic, "g"): ">"}, count=size // 2)
    for start in range(0, size, 1000):
        members = {f"{number}": number for number in range(start, min(size, start + 1000))}
        admin.zadd(keys.parked(topic, "g"), members)
        admin.zadd(keys.later(topic), members)


def microseconds(admin: "redis.Redis") -> int:
    stats: dict[str, Any] = admin.info("commandstats")
    return int(stats["cmdstat_evalsha"]["usec"])


async def test_its_cost_does_not_grow_with_what_is_stored_pending_or_parked(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    small, large = topic, topic + ":large"
    await grown(backend, admin, small, 100)
    await grown(backend, admin, large, 20_000)
    cost: dict[str, list[int]] = {small: [], large: []}
    for _ in range(30):
        for one, costs in cost.items():
            before = microseconds(admin)
            await backend.inspect(one)
            costs.append(microseconds(admin) - before)
    # The least of many: a busy neighbour makes a call dearer, never cheaper. Anything that walks through what is
    # stored would cost about two hundred times as much.
    assert min(cost[large]) <= 3 * min(cost[small]), cost


async def test_a_cursor_that_was_counted_on_this_very_stream_has_its_ordinal(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    ids = await publish(backend, topic, 5)
    await backend.create_group(topic, "g")
    await backend.watch(topic, "g")
    epoch = (await backend.inspect(topic)).epoch
    places = {"counted": f"{ids[2]} {epoch} 3", "by-hand": ids[2], "before": f"{ids[2]} 0badc0de 3", "odd": "nowhere"}
    admin.hset(keys.cursors(topic), mapping=places)
    facts = await backend.inspect(topic)
    assert facts.ordinals == {"counted": 3}
    assert facts.foreign == {"before"}
    assert facts.cursors["by-hand"] == ids[2]


async def test_a_count_that_a_restart_has_lost_is_what_was_noted_or_unknown(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    """As a server that forgets it has it behind a restart: the note is of another run, the count too small."""
    await publish(backend, topic, 5)
    await backend.create_group(topic, "g")
    await backend.watch(topic, "g")
    await read(backend, topic, 3)
    await backend.watch(topic, "g")
    note = json.loads(admin.hget(keys.groups(topic), "topic/g"))
    admin.hset(keys.groups(topic), "topic/g", json.dumps({**note, "run": "0badc0de"}))
    last = admin.xinfo_groups(topic)[0]["last-delivered-id"]
    admin.xgroup_setid(topic, "g", last, entries_read=0)
    assert [(one.name, one.entries_read) for one in (await backend.inspect(topic)).groups] == [("g", 3)]
    await read(backend, topic, 1)
    (group,) = (await backend.inspect(topic)).groups
    assert (group.entries_read, group.may_count_less) == (None, False)


async def test_of_a_group_that_nobody_looked_after_a_server_that_forgets_may_count_less(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    await publish(backend, topic, 5)
    await backend.create_group(topic, "g")
    await read(backend, topic, 3)
    forgets = admin.info("server")["redis_version"].startswith("7.0")
    (group,) = (await backend.inspect(topic)).groups
    assert (group.entries_read, group.may_count_less) == (3, forgets)
    await backend.watch(topic, "g")
    (group,) = (await backend.inspect(topic)).groups
    assert group.may_count_less == forgets, "a look proves nothing of what was counted before it"
    await read(backend, topic, 2)
    await backend.watch(topic, "g")
    (group,) = (await backend.inspect(topic)).groups
    assert not group.may_count_less
