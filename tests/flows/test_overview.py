"""The overview tells how topics and groups stand: right where it says exact, and never 0 for want of knowledge."""

import random
import shutil
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import redis

from penstock.backend import keys
from penstock.backend.entry import ClaimedMessage, DeadLetter, FetchedEntry, Park
from penstock.backend.redis import RedisBackend
from penstock.errors import GroupMissingError
from penstock.message.ids import new_id
from penstock.message.message import Message
from penstock.overview import GroupView, Lag, Overview, Pin
from tests.support.servers import Server, redis_binary, valkey_binary

NOW = timedelta(0)
HOUR = timedelta(hours=1)
_BINARIES = {"valkey": valkey_binary, "redis": redis_binary}


@pytest.fixture(scope="module", params=list(_BINARIES))
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    binary = _BINARIES[request.param]()
    if binary is None:
        pytest.skip(f"{request.param}-server is not installed")
    directory = Path(tempfile.mkdtemp(prefix="ps-"))
    started = Server(binary, directory)
    try:
        yield started
    finally:
        started.stop()
        shutil.rmtree(directory)


@pytest.fixture
def admin(server: Server) -> "Iterator[redis.Redis]":
    with server.client() as client:
        yield client


@pytest.fixture
async def backend(server: Server) -> AsyncIterator[RedisBackend]:
    async with await RedisBackend.connect(server.url) as connected:
        yield connected


@pytest.fixture
def topic() -> str:
    return f"t:{new_id()}"


async def publish(backend: RedisBackend, topic: str, count: int) -> list[str]:
    return [str(id) for id in await backend.publish_many(topic, [Message({"n": n}) for n in range(count)])]


async def join(backend: RedisBackend, topic: str) -> None:
    """As a worker does. Where nobody has looked after it, Redis 7.0 may have forgotten how much the group has read."""
    await backend.create_group(topic, "g")
    await backend.watch(topic, "g")


async def take(
    backend: RedisBackend, stream: str, count: int, group: str = "g", consumer: str = "c"
) -> list[FetchedEntry]:
    return await backend.read_new(stream, group, consumer, count, NOW)


async def seen(backend: RedisBackend, topic: str, group: str = "g") -> GroupView:
    return await Overview(backend).group(topic, group)


def told(lag: Lag) -> tuple[str, int | None]:
    return lag.state, lag.messages


def true_lag(admin: "redis.Redis", topic: str, last: str) -> int:
    if last.startswith("18446744073709551615"):
        return 0
    return len(admin.xrange(topic, f"({last}", "+"))


# Lag.


async def test_lag_is_exact_for_a_new_group_and_after_every_read(backend: RedisBackend, topic: str) -> None:
    await join(backend, topic)
    await publish(backend, topic, 5)
    assert told((await seen(backend, topic)).lag) == ("exact", 5)
    await take(backend, topic, 2)
    assert told((await seen(backend, topic)).lag) == ("exact", 3)
    await take(backend, topic, 3)
    assert (await seen(backend, topic)).lag == Lag("exact", 0, 0.0)


async def test_deleting_an_unread_entry_leaves_an_estimate_and_never_nothing(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    await backend.create_group(topic, "g")
    ids = await publish(backend, topic, 9)
    await take(backend, topic, 2)
    admin.xdel(topic, ids[5])
    assert admin.xinfo_groups(topic)[0]["lag"] is None  # what the server itself says of it
    lag = (await seen(backend, topic)).lag
    assert told(lag) == ("estimated", 6)
    assert lag.seconds is not None
    await take(backend, topic, 1)
    state, messages = told((await seen(backend, topic)).lag)
    assert state in ("estimated", "unknown")
    assert messages != 0
    await take(backend, topic, 10)
    assert told((await seen(backend, topic)).lag) == ("exact", 0)


async def test_unread_entries_that_were_trimmed_are_not_counted(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    await backend.create_group(topic, "g")
    await publish(backend, topic, 6)
    await take(backend, topic, 2)
    admin.xtrim(topic, maxlen=2, approximate=False)
    assert admin.xinfo_groups(topic)[0]["lag"] == 4  # what the server itself says of it
    assert told((await seen(backend, topic)).lag) == ("exact", 2)


async def test_passing_by_what_was_trimmed_unread_is_no_exact_number_until_the_end(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    await backend.create_group(topic, "g")
    await publish(backend, topic, 20)
    await take(backend, topic, 2)
    admin.xtrim(topic, maxlen=10, approximate=False)
    await take(backend, topic, 3)
    state, messages = told((await seen(backend, topic)).lag)
    assert (state, messages) == ("exact", 7) or state == "estimated"
    assert messages is not None
    assert messages >= 7
    await take(backend, topic, 10)
    assert told((await seen(backend, topic)).lag) == ("exact", 0)


async def test_a_group_made_in_the_middle_does_not_know_until_it_has_caught_up(
    backend: RedisBackend, topic: str
) -> None:
    ids = await publish(backend, topic, 10)
    await backend.create_group(topic, "g", ids[4])
    lag = (await seen(backend, topic)).lag
    assert told(lag) == ("unknown", None)
    assert lag.seconds is not None
    await take(backend, topic, 5)
    assert told((await seen(backend, topic)).lag) == ("exact", 0)
    await publish(backend, topic, 3)
    await backend.watch(topic, "g")
    assert told((await seen(backend, topic)).lag)[1] in (3, None)
    await take(backend, topic, 1)
    assert told((await seen(backend, topic)).lag)[1] in (2, None)


async def test_a_group_that_starts_at_the_end_is_behind_by_nothing_and_then_unsure(
    backend: RedisBackend, topic: str
) -> None:
    await publish(backend, topic, 10)
    await backend.create_group(topic, "g", "$")
    assert told((await seen(backend, topic)).lag) == ("exact", 0)
    await publish(backend, topic, 2)
    state, messages = told((await seen(backend, topic)).lag)
    assert (state, messages) in (("unknown", None), ("exact", 2))


async def test_lag_stays_exact_where_everything_that_went_was_settled(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    await join(backend, topic)
    ids = await publish(backend, topic, 1000)
    await backend.settle(topic, "g", "c", done=await take(backend, topic, 900))
    await backend.watch(topic, "g")  # as a worker does every second
    while (await backend.trim(topic, ids[899])).removed:
        pass
    assert admin.xlen(topic) < 1000
    assert told((await seen(backend, topic)).lag) == ("exact", 100)
    await take(backend, topic, 30)
    assert told((await seen(backend, topic)).lag) == ("exact", 70)


@pytest.mark.parametrize("removal", ["trimmed", "deleted"])
async def test_a_count_that_was_right_before_unread_entries_went_is_not_relied_on(
    backend: RedisBackend, topic: str, admin: "redis.Redis", removal: str
) -> None:
    await join(backend, topic)
    ids = await publish(backend, topic, 20)
    await take(backend, topic, 2)
    await backend.watch(topic, "g")
    assert told((await seen(backend, topic)).lag) == ("exact", 18)
    if removal == "trimmed":
        admin.xtrim(topic, minid=ids[4], approximate=False)
    else:
        admin.xdel(topic, *ids[2:4])
    await take(backend, topic, 5)  # past the gap, before anybody has watched
    state, messages = told((await seen(backend, topic)).lag)
    assert state in ("estimated", "unknown")
    assert messages is None or messages >= 11


async def test_a_count_that_was_set_by_hand_is_never_a_false_nothing(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    await backend.create_group(topic, "g")
    ids = await publish(backend, topic, 10)
    admin.execute_command("XGROUP SETID", topic, "g", ids[3], "ENTRIESREAD", 10)
    assert admin.xinfo_groups(topic)[0]["lag"] == 0  # what the server itself says of it
    assert told((await seen(backend, topic)).lag) == ("unknown", None)


async def test_lag_in_seconds_is_the_age_of_the_oldest_unread_entry(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    await backend.create_group(topic, "g")
    now = int(datetime.now(UTC).timestamp() * 1000)
    for minutes in (90, 60, 30):
        admin.xadd(topic, {"payload": "1"}, id=f"{now - minutes * 60_000}-0")
    for minutes in (90, 60, 30):
        seconds = (await seen(backend, topic)).lag.seconds
        assert seconds is not None
        assert minutes * 60 <= seconds < minutes * 60 + 60
        await take(backend, topic, 1)
    assert (await seen(backend, topic)).lag.seconds == 0.0


async def test_ids_made_by_hand_are_no_times(backend: RedisBackend, topic: str, admin: "redis.Redis") -> None:
    await backend.create_group(topic, "g")
    admin.xadd(topic, {"payload": "1"}, id="1-1")
    group = await seen(backend, topic)
    assert group.lag == Lag("exact", 1, None)
    assert group.oldest_unsettled is None
    assert (await Overview(backend).topic(topic)).pin == Pin("group", "g", None)


class Trial:
    """Anybody does anything, and after each step every number is compared with a count by hand."""

    def __init__(self, backend: RedisBackend, admin: "redis.Redis", topic: str, seed: int) -> None:
        self.backend = backend
        self.admin = admin
        self.topic = topic
        self.dice = random.Random(seed)
        self.states: Counter[str] = Counter()

    async def step(self) -> None:
        acts = [self.add, self.add, self.read, self.read, self.read, self.watch, self.trim]
        act = self.dice.choice([*acts, self.delete, self.cut, self.regroup])
        await act()
        for group in (await Overview(self.backend).topic(self.topic)).groups:
            self.check(group, act.__name__)

    def check(self, group: GroupView, act: str) -> None:
        state, messages = told(group.lag)
        truth = true_lag(self.admin, self.topic, group.last_delivered)
        self.states[state if truth else "caught up"] += 1
        if state == "exact":
            assert messages == truth, (act, group)
        elif state == "estimated":
            assert messages is not None
            assert messages >= truth > 0, (act, group)
        else:
            assert truth > 0, (act, group)

    @property
    def group(self) -> str:
        return self.dice.choice("ab")

    @property
    def ids(self) -> list[bytes]:
        return [id for id, _ in self.admin.xrange(self.topic)]

    async def add(self) -> None:
        for _ in range(self.dice.randint(1, 6)):
            self.admin.xadd(self.topic, {"payload": "1"})

    async def read(self) -> None:
        group = self.group
        ids = [id for _, rows in self.admin.xreadgroup(group, "c", {self.topic: ">"}, count=3) for id, _ in rows]
        if ids and self.dice.random() < 0.8:
            self.admin.xack(self.topic, group, *ids)

    async def watch(self) -> None:
        await self.backend.watch(self.topic, self.group)

    async def trim(self) -> None:
        # Exactly up to the horizon, as the server would trim approximately if its nodes were as small.
        trimmed = await self.backend.trim(self.topic, "18446744073709551615-0")
        self.admin.xtrim(self.topic, minid=trimmed.horizon, approximate=False)

    async def delete(self) -> None:
        if ids := self.ids:
            self.admin.xdel(self.topic, self.dice.choice(ids))

    async def cut(self) -> None:
        if self.dice.random() < 0.3:
            self.admin.xtrim(self.topic, maxlen=self.dice.randint(0, 10), approximate=False)

    async def regroup(self) -> None:
        if self.dice.random() < 0.3:
            group = self.group
            self.admin.xgroup_destroy(self.topic, group)
            await self.backend.create_group(
                self.topic, group, self.dice.choice(["0", "$", *(id.decode() for id in self.ids)])
            )


@pytest.mark.parametrize("seed", range(4))
async def test_whatever_happens_exact_is_right_and_an_estimate_is_at_least_the_truth(
    backend: RedisBackend, admin: "redis.Redis", topic: str, seed: int
) -> None:
    trial = Trial(backend, admin, topic, seed)
    for group in "ab":
        await backend.create_group(topic, group)
    for _ in range(250):
        await trial.step()
    assert {"exact", "estimated", "unknown", "caught up"} <= trial.states.keys(), trial.states


# What else there is to see of a group and of a topic.


async def test_a_group_shows_what_is_pending_parked_ready_and_dead_and_who_holds_it(
    backend: RedisBackend, topic: str
) -> None:
    await join(backend, topic)
    await publish(backend, topic, 10)
    entries = [entry for entry in await take(backend, topic, 8) if isinstance(entry, ClaimedMessage)]
    parks = [Park(entry, NOW, 2) for entry in entries[:2]]
    await backend.settle(topic, "g", "c", parked=[*parks, Park(entries[2], HOUR, 2)], done=entries[3:4])
    await backend.settle(topic, "g", "c", dead=[DeadLetter(entries[4], "why")])
    await backend.promote(topic, "g")
    await take(backend, keys.retry(topic, "g"), 1, consumer="d")
    await backend.publish_later(topic, [Message(1)], delay=HOUR)
    await backend.pause(topic, "g")
    view = await Overview(backend).topic(topic)
    (group,) = view.groups
    assert (group.name, group.topic, told(group.lag)) == ("g", topic, ("exact", 2))
    assert (group.pending, group.parked, group.ready, group.paused) == (4, 1, 1, True)
    assert [(one.name, one.pending) for one in group.consumers] == [("c", 3), ("d", 1)]
    assert (view.dead, view.later, view.length, view.exists) == (1, 1, 10, True)
    assert view.at is not None
    for due in (group.parked_due, view.later_due):
        assert due is not None
        assert timedelta(minutes=59) < due - view.at <= HOUR


@pytest.mark.parametrize("place", ["pending", "unread", "parked", "retrying"])
async def test_the_oldest_unsettled_message_counts_from_its_publish_wherever_it_waits(
    backend: RedisBackend, topic: str, admin: "redis.Redis", place: str
) -> None:
    await backend.create_group(topic, "g")
    assert (await seen(backend, topic)).oldest_unsettled is None
    old = int(datetime.now(UTC).timestamp() * 1000) - 3_600_000
    admin.xadd(topic, {"payload": "1"}, id=f"{old}-0")
    if place != "unread":
        (entry,) = await take(backend, topic, 1)
        assert isinstance(entry, ClaimedMessage)
        if place != "pending":
            await backend.settle(topic, "g", "c", parked=[Park(entry, HOUR if place == "parked" else NOW, 2)])
        if place == "retrying":
            assert (await backend.promote(topic, "g"))[0] == 1
    await publish(backend, topic, 1)
    age = (await seen(backend, topic)).oldest_unsettled
    assert age is not None
    assert HOUR <= age < HOUR + timedelta(minutes=1)


async def test_what_pins_a_topic_is_named_with_the_time_since_when(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    overview = Overview(backend)
    now = int(datetime.now(UTC).timestamp() * 1000)
    ids = [f"{now - minutes * 60_000}-0" for minutes in (50, 40, 30, 20, 10)]
    times = [datetime.fromtimestamp(int(id.partition("-")[0]) / 1000, UTC) for id in ids]
    for id in ids:
        admin.xadd(topic, {"payload": "1"}, id=id)
    assert (await overview.topic(topic)).pin == Pin("nobody", None, times[0])
    await backend.create_group(topic, "fast")
    await backend.create_group(topic, "slow")
    await backend.settle(topic, "fast", "c", done=await take(backend, topic, 5, "fast"))
    assert (await overview.topic(topic)).pin == Pin("group", "slow", times[0])
    entries = await take(backend, topic, 4, "slow")
    await backend.settle(topic, "slow", "c", done=[entries[0], *entries[2:]])
    assert (await overview.topic(topic)).pin == Pin("group", "slow", times[1])  # one entry, still pending
    await backend.settle(topic, "slow", "c", done=entries[1:2])
    assert (await overview.topic(topic)).pin == Pin("group", "slow", times[4])
    admin.hset(keys.cursors(topic), "lake", ids[2])
    assert (await overview.topic(topic)).pin == Pin("cursor", "lake", times[2])
    admin.hset(keys.cursors(topic), "lake", ids[4])
    await backend.settle(topic, "slow", "c", done=await take(backend, topic, 1, "slow"))
    assert (await overview.topic(topic)).pin is None
    admin.hset(keys.cursors(topic), "lake", "nowhere")
    assert (await overview.topic(topic)).pin == Pin("cursor", "lake", times[0])


async def test_what_pins_is_what_trimming_says_it_is(backend: RedisBackend, topic: str) -> None:
    await backend.create_group(topic, "a")
    await backend.create_group(topic, "b")
    await publish(backend, topic, 10)
    await backend.settle(topic, "a", "c", done=await take(backend, topic, 7, "a"))
    await take(backend, topic, 9, "b")
    pin = (await Overview(backend).topic(topic)).pin
    assert pin is not None
    assert str((await backend.trim(topic, "9999999999999-0")).pin) == f"{pin.kind} {pin.name}" == "group b"


async def test_all_registered_topics_are_listed_and_a_broken_one_harms_none(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    admin.flushall()
    names = [f"{topic}:{number:02}" for number in range(20)]
    for name in names[:18]:
        await backend.register(name)
        await backend.create_group(name, "g")
        await backend.watch(name, "g")
    for name in names[18:]:
        await backend.register(name)
    admin.set(names[19], "no stream")
    views = await Overview(backend).topics()
    assert [view.name for view in views] == names
    assert [view.exists for view in views] == [True] * 18 + [False, True]
    assert [len(view.groups) for view in views] == [1] * 18 + [0, 0]
    assert len({view.epoch for view in views[:18]} - {None}) == 18
    assert [view.problem is None for view in views] == [True] * 19 + [False]
    assert names[19] in (views[19].problem or "")


async def test_a_group_that_is_not_there_is_an_error_that_names_it(backend: RedisBackend, topic: str) -> None:
    await backend.create_group(topic, "g")
    await backend.watch(topic, "g")
    with pytest.raises(GroupMissingError, match="'nobody'"):
        await Overview(backend).group(topic, "nobody")
    with pytest.raises(GroupMissingError):
        await Overview(backend).group(topic, keys.OWN_GROUP)
