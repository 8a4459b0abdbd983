"""Those who look for a fault are shown what is there, and change nothing."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
import redis

from penstock.backend import keys
from penstock.backend.entry import ClaimedMessage, Park
from penstock.backend.evidence import Key, Parcel
from penstock.backend.facts import Awaited
from penstock.backend.parcel import unpack_fields
from penstock.backend.redis import RedisBackend
from penstock.backend.sighting import Turn
from penstock.errors import GroupMissingError
from penstock.message.message import Message
from tests.support.servers import Server

NOW = timedelta(0)
HOUR = timedelta(hours=1)


async def read(backend: RedisBackend, topic: str, count: int) -> list[ClaimedMessage]:
    await backend.create_group(topic, "g")
    await backend.publish_many(topic, [Message({"n": n}) for n in range(count)])
    entries = await backend.read_new(topic, "g", "c", count, NOW)
    assert all(isinstance(entry, ClaimedMessage) for entry in entries)
    return entries  # type: ignore[return-value]


async def test_the_server_says_what_it_is_and_how_it_is_set_up(
    server: Server, backend: RedisBackend, admin: "redis.Redis"
) -> None:
    facts = await backend.server()
    info = admin.info()
    assert facts.product == ("valkey" if "valkey" in server.binary else "redis")
    assert facts.version == info.get("valkey_version", info["redis_version"])
    assert (facts.appends, facts.snapshots, facts.policy, facts.maxmemory) == (False, "", "noeviction", 0)
    assert (facts.is_replica, facts.link_up, facts.replicas, facts.is_cluster) == (False, True, 0, False)
    assert (facts.idle_seconds, facts.min_replicas, facts.fsync) == (0, 0, "everysec")
    assert facts.append_ok
    assert facts.snapshot_ok
    assert facts.numbers >= (7, 0)


async def test_a_user_who_may_not_ask_for_settings_learns_the_rest(
    server: Server, backend: RedisBackend, admin: "redis.Redis"
) -> None:
    admin.acl_setuser("reader", enabled=True, nopass=True, keys=["*"], commands=["+@all", "-config"])
    try:
        url = server.url.replace("unix://", "unix://reader:x@")
        async with await RedisBackend.connect(url) as limited:
            facts = await limited.server()
    finally:
        admin.acl_deluser("reader")
    assert facts.version == (await backend.server()).version
    assert (facts.idle_seconds, facts.fsync, facts.snapshots, facts.stops_without_snapshot) == (None,) * 4


async def test_entries_that_were_trimmed_or_deleted_are_gone(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    ids = [entry.id for entry in await read(backend, topic, 6)]
    assert await backend.gone(topic, ids) == set()
    admin.xdel(topic, ids[3])
    admin.xtrim(topic, minid=ids[1], approximate=False)
    assert await backend.gone(topic, ids) == {ids[0], ids[3]}
    assert await backend.gone(topic, []) == set()
    admin.xtrim(topic, maxlen=0, approximate=False)
    assert await backend.gone(topic, ids) == set(ids)


async def test_large_entries_are_looked_at_a_few_at_a_time_and_all_of_them(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    ids = [admin.xadd(topic, {"payload": b"x" * 100_000}).decode() for _ in range(8)]
    ids += [admin.xadd(topic, {"payload": b"x"}).decode() for _ in range(200)]
    admin.xdel(topic, ids[-1], ids[6])  # from now on nothing is proved by numbers alone
    assert await backend.gone(topic, ids) == {ids[-1], ids[6]}


async def test_nothing_can_be_told_of_a_stream_that_is_not_there(backend: RedisBackend, topic: str) -> None:
    with pytest.raises(GroupMissingError, match="cannot look for entries"):
        await backend.gone(topic, ["1-0"])


@pytest.mark.parametrize("odd", ["abc", "nan", "1e400", "-5", "9" * 5000, "\u0663"])
async def test_a_turn_with_an_odd_value_breaks_no_look(
    backend: RedisBackend, topic: str, admin: redis.Redis, odd: str
) -> None:
    await backend.create_group(topic, "g")
    admin.hset(keys.turn(topic, "g"), mapping={"token": 1, "holder": "a", "until": odd, "failed": odd})
    (group,) = (await backend.inspect(topic)).groups
    assert group.turn is not None
    assert (group.turn.is_held, group.turn.failures) == (False, 0)


async def turn_in(backend: RedisBackend, topic: str) -> Turn | None:
    """That of the one reader it has."""
    (group,) = (await backend.inspect(topic)).groups
    return group.turn


async def test_a_turn_is_told_while_it_is_held_and_after(backend: RedisBackend, topic: str) -> None:
    await backend.create_group(topic, "r")
    assert await turn_in(backend, topic) is None
    token = await backend.take_turn(topic, "r", "holder", HOUR)
    assert isinstance(token, int)
    await backend.stand(topic, "r", token, "0", 0)
    await backend.begin_head(topic, "r", token, "5-0")
    await backend.fail_head(topic, "r", token, "5-0", 1)
    turn = await turn_in(backend, topic)
    assert turn is not None
    assert turn.is_held
    assert (turn.holder, turn.failed_id, turn.failures) == ("holder", "5-0", 1)
    assert turn.until is not None
    assert timedelta(minutes=59) < turn.until - turn.now <= HOUR
    await backend.leave_turn(topic, "r", token)
    left = await turn_in(backend, topic)
    assert left is not None
    assert not left.is_held


async def test_what_waits_is_told_by_due_time_and_what_cannot_be_opened_says_why(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    entries = await read(backend, topic, 2)
    await backend.settle(topic, "g", "c", parked=[Park(entries[0], HOUR, 2), Park(entries[1], 2 * HOUR, 2)])
    await backend.publish_later(topic, [Message(1)], delay=HOUR)
    admin.zadd(keys.parked(topic, "g"), {b"junk": 1000})
    parked = [one async for one in backend.parcels(topic, "g")]
    assert parked[0] == Parcel(datetime.fromtimestamp(1, UTC), problem="the parcel ends inside a value")
    assert [(one.record and one.record.entry, one.problem) for one in parked[1:]] == [
        (entry.id, "") for entry in entries
    ]
    (later,) = [one async for one in backend.parcels(topic, None)]
    assert later.problem == ""
    assert later.due is not None
    assert HOUR - timedelta(minutes=1) < later.due - datetime.now(UTC) < HOUR + timedelta(minutes=1)


@pytest.mark.parametrize("same", [False, True], ids=["due one after the other", "due together"])
async def test_what_waits_is_told_though_others_become_due_meanwhile(
    backend: RedisBackend, topic: str, admin: "redis.Redis", same: bool
) -> None:
    parked, due = keys.parked(topic, "g"), datetime.now(UTC) + HOUR
    for n in range(75):
        await backend.schedule(topic, "g", [Message(n)], until=due + (NOW if same else n * timedelta(seconds=1)))
    seen: list[bytes] = []
    async for parcel in backend.parcels(topic, "g"):
        seen.append(body_in(parcel.raw))
        if len(seen) in (20, 40):  # where one page ends
            admin.zremrangebyrank(parked, 0, 11)
    waited = {body_in(unpack_fields(member)) for member in admin.zrange(parked, 0, -1)}
    assert len(waited) == 75 - 2 * 12
    assert waited <= set(seen)
    assert same or len(seen) == 75


def body_in(raw: Sequence[bytes]) -> bytes:
    return dict(zip(raw[::2], raw[1::2], strict=True))[b"payload"]


async def test_what_waits_for_a_group_is_told_whether_the_group_is_there_or_not(
    backend: RedisBackend, topic: str
) -> None:
    assert await backend.awaited(topic, "g") == Awaited()
    due = datetime.now(UTC) + HOUR
    await backend.schedule(topic, "g", [Message(1), Message(2)], until=due)
    await backend.schedule(topic, "g", [Message(3)], delay=NOW)
    await backend.promote(topic, "g")
    waits = await backend.awaited(topic, "g")
    assert (waits.ready, waits.parked, waits.is_nothing) == (1, 2, False)
    assert waits.parked_due is not None
    assert abs(waits.parked_due - due) < timedelta(seconds=1)


async def test_keys_of_the_wrong_type_are_told_apart_from_those_that_are_right_or_missing(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    await read(backend, topic, 1)
    admin.set(keys.parked(topic, "g"), "no set")
    found = {key.name: key for key in await backend.keys_of(topic, ["g"])}
    assert found[topic] == Key(topic, "stream", "stream")
    assert found[keys.parked(topic, "g")].found == "string"
    assert found[keys.dead(topic)] == Key(keys.dead(topic), "stream", "none")
    assert found[keys.turn(topic, "g")].expected == "hash"


async def test_the_books_tell_of_groups_that_are_gone_too(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    await read(backend, topic, 1)
    await backend.watch(topic, "g")
    await backend.pause(topic, "gone")
    admin.hset(keys.groups(topic), "topic/odd", "{")
    books = await backend.books(topic)
    assert not books.registered
    assert books.groups == {"g"}
    assert books.noted == {"g": True, "odd": False}
    assert books.paused == {"gone"}
    assert len(books.epochs) == 1
    await backend.register(topic)
    assert (await backend.books(topic)).registered
