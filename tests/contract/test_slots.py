"""Everything a topic needs lies in the topic's own cluster slot, under keys that nothing else can be called."""

import asyncio
import inspect
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import redis
from hypothesis import assume, example, given
from hypothesis import strategies as st
from redis.crc import key_slot

from penstock import Penstock
from penstock.backend import keys
from penstock.backend.base import StreamBackend
from penstock.backend.crons import CronChange, CronPlan
from penstock.backend.entry import (
    Appended,
    ClaimedMessage,
    DeadLetter,
    Handling,
    Helping,
    Moved,
    Park,
    Settled,
    Stored,
    Throttle,
)
from penstock.backend.old_queue import Move, OldCounts, OldQueue, Place
from penstock.backend.old_queue import Moved as TakenOver
from penstock.backend.redis import RedisBackend
from penstock.backend.redis.scripts import load
from penstock.backend.survey import Position
from penstock.backend.trail import Trail, Unique, Where
from penstock.errors import ConfigurationError
from penstock.message.ids import new_id
from penstock.message.message import Message
from tests.support.servers import Server, cluster_of_one
from tests.support.verbs import leased
from tests.support.waiting import blocked

pytestmark = pytest.mark.timeout(180)  # many examples, each of which takes long where the machine is busy

NOW = timedelta(0)
HOUR = timedelta(hours=1)
LUA = sorted(path.stem for path in Path(inspect.getfile(RedisBackend)).parent.glob("lua/*.lua"))

NAMED: dict[str, Callable[[str, str], str]] = {
    "once": keys.once, "parked": keys.parked, "retry": keys.retry, "steals": keys.steals, "turn": keys.turn,
    "starts": keys.starts, "unique": keys.unique,
    "handled": lambda topic, name: keys.handled(topic, name, "u"),
    "replayed": lambda topic, name: keys.handled(topic, "g", "u", name),
}  # fmt: skip
SINGLE: dict[str, Callable[[str], str]] = {
    "dead": keys.dead, "cursors": keys.cursors, "groups": keys.groups, "later": keys.later, "paused": keys.paused,
    "obeyed": keys.obeyed, "recalled": keys.recalled, "rate": keys.rate, "crons": keys.crons, "migrated": keys.migrated,
}  # fmt: skip


@pytest.fixture(scope="module")
def cluster(server: Server) -> Iterator[Server]:
    with cluster_of_one(server.binary) as node:
        yield node


class Recorder:
    """A backend that notes which verbs were called."""

    def __init__(self, backend: RedisBackend) -> None:
        self.backend = backend
        self.called: set[str] = set()

    def __getattr__(self, verb: str) -> Any:
        self.called.add(verb)
        return getattr(self.backend, verb)


async def live(backend: Any, topic: str, group: str) -> None:
    """Every verb, each with something to do."""
    retry = keys.retry(topic, group)
    assert await backend.create_group(topic, group) is True
    await backend.publish(topic, Message(0))
    await backend.publish_many(topic, [Message(number) for number in range(1, 6)])
    await backend.publish_once(topic, [Message(number) for number in range(6, 9)], window=HOUR)
    assert len(await backend.read_range(topic, "-", "+", 100)) == 9
    entries = await backend.read_new(topic, group, "a", 9, timedelta(seconds=5), ahead=True)
    assert all(isinstance(entry, ClaimedMessage) for entry in entries)
    ids = [entry.id for entry in entries]
    assert await backend.renew(topic, group, "a", ids) == []
    assert await backend.release(topic, group, "a", ids[:1]) == []
    taken = await backend.reclaim_idle(topic, group, "b", HOUR, 10)
    assert [entry.id for entry in taken] == ids[:1]
    assert await backend.settle(topic, group, "a", done=entries[:2]) == Settled(1, 0, (ids[0],))
    parks = [Park(entry, NOW, 2) for entry in entries[2:6]] + [Park(entries[6], HOUR, 2)]
    letters = [DeadLetter(entries[7], "why")]
    assert await backend.settle(topic, group, "a", parked=parks, dead=letters) == Settled(6)
    assert [one.attempt for one in await backend.read_parked(topic, group)] == [2] * 5
    assert (await backend.awaited(topic, group)).parked == 5
    assert [one.moved async for one in backend.promote_early(topic, group, only_count=True)] == [5]
    assert (await backend.promote(topic, group))[0] == 4
    again = await backend.read_new(retry, group, "a", 4, NOW)
    back = await backend.reclaim_idle(retry, group, "b", NOW, 1)
    assert await backend.settle(retry, group, "b", done=back) == Settled(1)
    settled = await backend.settle(
        retry, group, "a", done=again[1:2], parked=[Park(again[2], NOW, 3)], dead=[DeadLetter(again[3], "why")]
    )
    assert settled == Settled(3)
    assert await backend.complete(topic, group, "a", [ids[0]], fence=0, suspects=True) == Settled(fenced=(ids[0],))
    await backend.ack(topic, group, ids[0])
    assert await backend.ack_many(topic, group, ids) == 1
    assert await backend.forget_consumer(retry, group, "a") is True
    assert await backend.forget_consumer(topic, group, "a") is True
    assert (await backend.trim(topic, ids[-1])).pin is None
    await live_later(backend, topic)
    await live_dead_letters(backend, topic, group)
    await live_handling(backend, topic, group)
    await live_in_sequence(backend, topic, f"{group}:3", ids)
    await live_in_partitions(backend, topic, group)
    await live_together(backend, topic, f"{group}:2")
    await live_watching(backend, topic, f"{group}:2")
    await live_following(backend, topic, group)
    await live_in_lanes(backend, topic, group)
    await live_examined(backend, topic, group)
    await backend.copy_dead(topic, group, [DeadLetter(entries[0], "why")])
    await live_by_hand(backend, topic, f"{group}:4")
    assert await backend.cut(topic, 1000) == 0


async def live_by_hand(backend: Any, topic: str, group: str) -> None:
    """On a topic of the same slot, for in the end it is removed."""
    other = keys.lane(topic, "by-hand")
    assert await backend.append(other, [Stored("5-0", [b"payload", b"1"])], keep_ids=True) == [Appended.NEW]
    await backend.register(other)
    assert other in [name async for name in backend.streams("*")]
    for name in (group, "other"):
        await backend.create_group(other, name)
    (entry,) = await backend.read_new(other, group, "a", 1, NOW)
    assert [held.id for held in await backend.held(other, group, consumer="a")] == [entry.id]
    assert await backend.expire(other, group, "a", [entry.id]) == []
    assert await backend.settle(other, group, "a", parked=[Park(entry, HOUR, 2)]) == Settled(1)
    await backend.move_group(other, group, "0")
    assert await backend.remove_group(other, group) is True
    assert (await backend.kept(other))[other].is_registered is True
    assert await backend.remove_topic(other) == 1


async def live_in_sequence(backend: Any, topic: str, reader: str, ids: list[str]) -> None:
    token = await backend.take_turn(topic, reader, "holder", HOUR)
    stands = await backend.stand(topic, reader, token, "0", await backend.unsubscriptions(topic, reader))
    await backend.advance(topic, reader, token, expected="0-0", to="9999999999999-0")
    await backend.place_reader(topic, reader, token, Position(ids[-1], 1, stands.position.epoch), snapshot=True)
    assert await backend.begin_head(topic, reader, token, "9999999999999-1") == 0
    assert await backend.fail_head(topic, reader, token, "9999999999999-1", 1) == 1
    letter = DeadLetter(leased(topic, "9999999999999-1"), "why")
    await backend.bury_head(topic, reader, token, letter, expected=ids[-1])
    assert await backend.keep_turn(topic, reader, token, HOUR) is True
    assert await backend.leave_turn(topic, reader, token) is True
    assert await backend.forget_reader(topic, reader) is True


async def live_in_partitions(backend: Any, topic: str, group: str) -> None:
    assert await backend.note_partitions(topic, 3) == await backend.partitions(topic) == 3
    assert await backend.renumber_partitions(topic, 3, 4) is True
    assert await backend.join(topic, group, "a", HOUR) == ["a"]
    assert await backend.join(topic, group, "b", HOUR) == ["a", "b"]
    await backend.leave(topic, group, "b")
    assert await backend.is_paused(topic, group) is False


def lanes_of(topic: str) -> tuple[str, ...]:
    return tuple(keys.lane(topic, priority) for priority in ("high", "normal", "low"))


async def live_in_lanes(backend: Any, topic: str, group: str) -> None:
    lanes = lanes_of(topic)
    book = Recorder(backend.speaking({}, Trail(keys.queue_home(topic, lanes[0]), lanes, HOUR, HOUR)))
    for lane in lanes:
        await book.create_group(lane, group)
        await book.create_group(keys.retry(lane, group), group)
    jobs = [Message(number) for number in range(6)]
    places = [(lanes[1], await book.publish(lanes[1], job)) for job in jobs[:3]]
    await book.schedule(lanes[2], group, [jobs[3]], delay=HOUR)
    assert (await book.hasten(group, jobs[3].id))[1] is True
    assert (await book.cancel(group, jobs[0].id, places[0]))[1] is True
    assert (await book.reassign(group, jobs[1].id, lanes[0], places[1]))[1] is True
    until_done = Unique(while_in=frozenset({Where.QUEUED, Where.PARKED}))
    for due in (None, HOUR):
        put = await book.put_unique(f"{group}/{due}", group, job := jobs.pop(), lanes[1], until_done, due)
        assert put.topic == lanes[1]
    await book.end_unique(f"{group}/{HOUR}", job.id)
    # So slow that what is remembered of it, which expires, is still there when all keys are looked at.
    helping = Helping(9, ((0, 9), (1, 9), (2, 9)), Throttle(limit=10, interval_us=60_000_000, burst=10))
    sheaves = await book.read_lanes(lanes, group, "a", helping, NOW)
    read = [entry for sheaf in sheaves for entry in sheaf]
    assert len(read) == 4
    assert await book.note({read[0].message.id: {"progress": b"1"}}, HOUR) == []
    await book.let_go(read[0].message.id)
    assert (await book.locate(group, read[0].message.id)).where is Where.RUNNING
    assert await book.settle(lanes[0], group, "a", done=read[:1]) == Settled(1)
    assert await book.drop(lanes[0], group, [read[0].id]) == 1
    assert (await book.cancel(group, read[1].message.id, (lanes[1], read[1].id)))[1] is False
    last = Message(7)
    assert (await book.cancel(group, last.id, (lanes[0], await book.publish(lanes[0], last))))[1] is True
    await live_by_the_clock(book, lanes[1])
    await live_taking_over(book, lanes, group)
    assert (await book.kept(lanes[1]))[lanes[1]].unique == 1
    assert await book.remove_topic(lanes[1]) > 1
    await book.put_unique(group, group, Message(9), lanes[0], until_done, None)
    backend.called.update(book.called)


async def live_by_the_clock(book: Any, lane: str) -> None:
    plan = CronPlan("UTC * * * * *", "{}")
    begun = (await book.look_at_crons({"clean": plan})).records["clean"].last
    while not await book.tick(lane, "clean", plan, begun, begun + 1, [(begun + 1, Message(8))]):
        await asyncio.sleep(0.001)  # the server's clock is not past it yet
    assert await book.change_cron("clean", CronChange.PAUSE) is True


async def live_taking_over(book: Any, lanes: tuple[str, ...], group: str) -> None:
    beside = keys.dead(lanes[0])  # whatever lies in the slot
    old = OldQueue(f"{beside}:main", f"{beside}:jobs:", f"{beside}:dlq", f"{beside}:active")
    links = book.backend._links
    await links.command("fill", "ZADD", old.waiting, 1, "a", 2, "b")
    await links.command("fill", "MSET", f"{old.records}a", "A", f"{old.records}b", "B")
    assert await book.count_old(old) == OldCounts(2, 0, 0)
    waiting = await book.read_old(old, 0, 10)
    places = [(Place.LANE, [b"payload", b"1"]), (Place.PARKED, [b"payload", b"2"])]
    moves = [Move(job, new_id(), place, lanes[0], fields) for job, (place, fields) in zip(waiting, places, strict=True)]
    assert await book.take_over(old, group, moves) == [TakenOver.DONE] * 2
    assert (await book.count_taken_over(old))["lane"] == 1


async def live_together(backend: Any, topic: str, group: str) -> None:
    both = [topic, keys.retry(topic, group)]
    for stream in both:
        await backend.create_group(stream, group, "$")
    await backend.watch(topic, group)
    await backend.publish_many(topic, [Message(number) for number in range(4)])
    read = await backend.read_new(both, group, "c", 2, timedelta(seconds=5), ahead=True)
    assert await backend.stop_reading(both, group, "c") == 2
    heirs = await backend.reclaim_idle(topic, group, "d", NOW, 10)
    assert [entry.state.suspect for entry in heirs] == [True, True, False, False]
    assert await backend.mark_start(heirs[0], group, "d") == 1
    assert await backend.mark_start(heirs[2], group, "d") == 1
    assert await backend.mark_start(read[0], group, "c") is None
    outcomes = {"done": heirs[:1], "parked": [Park(heirs[1], HOUR, 2)], "dead": [DeadLetter(heirs[3], "why")]}
    assert await backend.settle(topic, group, "d", **outcomes) == Settled(3)
    assert await backend.read_sheaves(both, group, "c", 1, NOW) == []


async def live_watching(backend: Any, topic: str, group: str) -> None:
    assert (await backend.watch(topic, group)).missed == 0
    assert (await backend.restore_group(topic, group))[1] is True
    assert await backend.restore_group(topic, f"{group}:3") == ("0-0", False)
    for name in (group, "other"):
        await backend.pause(topic, name)
    await backend.resume(topic, "other")
    assert await backend.obey(topic, "other", paused=True, epoch="e", command_id="1-0")
    assert (await backend.watch(topic, group)).paused
    assert len(await backend.consumers(topic, group)) == 2
    assert await backend.forget_idle(topic, group, NOW) == 1
    await backend.register(topic)
    assert await backend.topics() == [topic]
    assert group in [one.name for one in (await backend.inspect(topic)).groups]
    await backend.speaking({}).aclose()
    await (await backend.another()).aclose()


async def live_examined(backend: Any, topic: str, group: str) -> None:
    assert (await backend.server()).is_cluster
    assert await backend.gone(topic, ["1-0"]) == {"1-0"}
    assert await backend.begun(topic, group, ["1-0"]) == {}
    assert [one.problem async for one in backend.parcels(topic, group)] == [""] * 2
    assert [one.problem async for one in backend.parcels(topic, None)] == [""]
    assert {one.found for one in await backend.keys_of(topic, [group])} >= {"stream", "zset", "hash", "set", "string"}
    assert (await backend.books(topic)).registered
    await backend.is_handled(topic, group, new_id())
    await backend.place_cursor(topic, "nobody", Position("0-0", -1, ""))


async def live_following(backend: Any, topic: str, cursor: str) -> None:
    assert backend.slot(topic) == key_slot(topic.encode())
    seen = await backend.glimpse(topic, "0-0", 1)
    assert await backend.looking().glimpse(topic, "0-0", 1) == seen
    assert await backend.read_before(topic, seen.survey.first, 5) == []
    message = (await backend.read_range(topic, "-", "+", 1))[0].message
    assert (await backend.find_near(topic, message.id, HOUR))[1]
    start = Position("0-0", 0, seen.survey.epoch)
    for name in (cursor, "other"):
        assert await backend.held_cursor(topic, name) is None
        assert await backend.hold_cursor(topic, name, start) == start
    assert await backend.move_cursor(topic, cursor, Position(seen.survey.newest, 1, start.epoch)) is Moved.MOVED
    assert await backend.forget_cursor(topic, "other") is True
    bell = backend.bell()
    assert await bell.rings({topic: "0-0"}, HOUR) == {topic}
    bell.close()


async def live_later(backend: Any, topic: str) -> None:
    length = len(await backend.read_range(topic, "-", "+", 100))
    await backend.publish_later(topic, [Message(0)], delay=NOW, once=True)
    await backend.publish_later(topic, [Message(1)], delay=HOUR)
    assert (await backend.promote_later(topic))[0] == 1
    await backend.publish_durably(topic, Message(2), replicas=1, timeout=timedelta(milliseconds=1))
    assert len(await backend.read_range(topic, "-", "+", 100)) == length + 2


async def live_dead_letters(backend: Any, topic: str, group: str) -> None:
    letters = await backend.read_dead(topic)
    assert len(letters) == await backend.count_dead(topic) == 2
    assert (await backend.replay_dead(topic, group, letters[:1], "a/b:{c}")).ok == (letters[0].id,)
    assert await backend.purge_dead(topic, [letters[1].id]) == 1
    assert await backend.bound_dead(topic, "0-0", 0) == 0
    assert (await backend.read_new(keys.retry(topic, group), group, "a", 1, NOW))[0].state.replay == "a/b:{c}"


async def live_handling(backend: Any, topic: str, group: str) -> None:
    (entry,) = await backend.reclaim_idle(keys.retry(topic, group), group, "b", NOW, 1)
    claims = [(entry.message.id, "", entry.origin), (entry.message.id, entry.state.replay, entry.origin)]
    assert await backend.claim_handling(topic, group, claims, HOUR) == [Handling.NEW, Handling.NEW]
    assert await backend.complete_handling(entry.stream, group, "b", [entry], HOUR) == Settled(1)
    assert await backend.release_handling(topic, group, claims) == 1


@pytest.mark.parametrize("group", ["g", "mail:eu", "a/{b}"])
@pytest.mark.parametrize("topic", ["orders", "a:b:c", "{tag}", "a{tag}b", "a:{t:g}:b"])
async def test_every_verb_keeps_to_the_slot_of_its_topic(cluster: Server, topic: str, group: str) -> None:
    async with await RedisBackend.connect(cluster.url) as backend:
        recorder = Recorder(backend)
        with cluster.client() as admin:
            admin.flushall()
            await live(recorder, topic, group)
            found = [key.decode() for key in admin.scan_iter(count=1000) if key != keys.TOPICS.encode()]
            slots = {admin.execute_command("CLUSTER KEYSLOT", key) for key in found}
    assert slots == {key_slot(topic.encode())}
    topics = {topic, *lanes_of(topic)}
    kinds = {key.rpartition(":")[2].partition("/")[0] for key in found if key not in topics}
    assert kinds == {
        "crons", "cursors", "dead", "groups", "handled", "job", "later", "members", "migrated", "obeyed", "once",
        "parked", "partitions", "paused", "rate", "recalled", "retry", "starts", "steals", "turn", "unique",
    }  # fmt: skip
    verbs = {name for name, _ in inspect.getmembers(StreamBackend, inspect.isfunction) if not name.startswith("_")}
    assert recorder.called == verbs - {"aclose"}


async def test_topics_of_different_slots_are_followed_together(cluster: Server) -> None:
    names = [f"slot:{number}" for number in range(5)]
    assert len({key_slot(name.encode()) for name in names}) == 5
    async with Penstock.connect(cluster.url) as app, app.tail(names) as tail:
        for number in range(3):
            for name in names:
                await app.bus(name).publish({"n": number})
        async with asyncio.timeout(20):
            items = [await anext(tail) for _ in range(15)]
        waiting = asyncio.create_task(anext(tail))
        with cluster.client() as admin:
            await blocked(admin, readers=5)
            assert admin.info("clients")["blocked_clients"] == 5, "a reader for each slot, and nobody else"
        waiting.cancel()
        await asyncio.wait([waiting])
    assert {item.topic: item.message.body["n"] for item in items} == dict.fromkeys(names, 2)


async def test_keys_of_two_slots_in_one_script_would_have_been_refused(cluster: Server) -> None:
    with cluster.client() as admin:
        with pytest.raises(redis.exceptions.RedisError, match="slot"):
            admin.execute_command("EVAL", "#!lua\nreturn 1", 2, "a", "b")
        with pytest.raises(redis.exceptions.RedisError, match="slot"):
            admin.execute_command("EVAL", "#!lua\nreturn redis.call('GET', 'b')", 1, "a")


@pytest.mark.parametrize("script", LUA)
def test_no_script_makes_up_a_key(script: str) -> None:
    # One node cannot notice a key that was not declared but lies in the same slot; a proxy or another server may.
    assert "penstock:" not in load(script).text
    assert "#!lua" in load(script).text


TRICKY = st.text(alphabet="ab:{}/%7D.é ", min_size=1, max_size=12)
NAMES = st.one_of(TRICKY, st.text(min_size=1, max_size=20)).filter(str.isprintable)


@st.composite
def topics(draw: st.DrawFn) -> str:
    topic = draw(NAMES)
    try:
        keys.check_topic(topic)
    except ConfigurationError:
        assume(False)
    return topic


@st.composite
def addresses(draw: st.DrawFn) -> tuple[tuple[str, str, str | None], str]:
    """What a key is for, and the key."""
    topic, kind = draw(topics()), draw(st.sampled_from([*NAMED, *SINGLE]))
    if kind in SINGLE:
        return (topic, kind, None), SINGLE[kind](topic)
    name = draw(NAMES)
    return (topic, kind, name), NAMED[kind](topic, name)


@given(addresses(), addresses())
@example((("a", "retry", "g"), keys.retry("a", "g")), (("a:retry/g", "dead", None), keys.dead("a:retry/g")))
@example((("a/b", "retry", "g"), keys.retry("a/b", "g")), (("a%2Fb", "retry", "g"), keys.retry("a%2Fb", "g")))
@example((("a{b}", "turn", "g"), keys.turn("a{b}", "g")), (("{b}a", "turn", "g"), keys.turn("{b}a", "g")))
def test_no_two_purposes_share_a_key(
    one: tuple[tuple[str, str, str | None], str], other: tuple[tuple[str, str, str | None], str]
) -> None:
    assert (one[0] == other[0]) == (one[1] == other[1])


@given(topics(), topics(), NAMES, NAMES)
def test_no_two_groups_share_a_key(topic: str, other: str, name: str, another: str) -> None:
    for build in NAMED.values():
        assert (build(topic, name) == build(topic, another)) == (name == another)
        assert (build(topic, name) == build(other, name)) == (topic == other)
    assert len({build(topic, name) for build in NAMED.values()}) == len(NAMED)


@given(topics(), NAMES)
@example("a%2Fb", "g")
@example("a%3Aretry", "%2F")
def test_a_retry_stream_knows_its_topic_and_no_topic_is_taken_for_one(topic: str, group: str) -> None:
    assert keys.home(keys.retry(topic, group)) == topic
    assert keys.is_retry(keys.retry(topic, group))
    assert keys.home(topic) == topic
    assert not keys.is_retry(topic)


@given(st.from_regex(r"[A-Za-z0-9._:-]{0,9}(\{[A-Za-z0-9._:-]{1,9}\}[A-Za-z0-9._:-]{0,9})?", fullmatch=True), NAMES)
def test_every_key_of_a_topic_we_may_create_is_in_its_slot(topic: str, name: str) -> None:
    assume(keys.may_create(topic))
    built = [build(topic, name) for build in NAMED.values()] + [build(topic) for build in SINGLE.values()]
    assert {key_slot(key.encode()) for key in built} == {key_slot(topic.encode())}


@given(st.text(alphabet="a:{}", min_size=1, max_size=8))
def test_a_name_whose_slot_we_could_not_share_is_never_created(topic: str) -> None:
    if key_slot(keys.dead(topic).encode()) != key_slot(topic.encode()):
        assert not keys.may_create(topic)
