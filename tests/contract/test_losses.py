"""Entries that vanish before a group read them are counted, exactly and once, whoever looks."""

import asyncio
import random
from datetime import timedelta

import pytest
import redis

from penstock.backend.redis import RedisBackend
from penstock.backend.sighting import GroupSighting
from penstock.message.message import Message
from tests.support.proxy import Proxy
from tests.support.waiting import ENOUGH, blocked, healed

NOW = timedelta(0)
LONG = timedelta(seconds=30)


@pytest.fixture
async def group(backend: RedisBackend, topic: str) -> str:
    await backend.create_group(topic, "g")
    await backend.watch(topic, "g")
    return "g"


async def publish(backend: RedisBackend, topic: str, count: int = 1) -> list[str]:
    return [str(id) for id in await backend.publish_many(topic, [Message(n) for n in range(count)])]


def cut(admin: "redis.Redis", topic: str, keep: int) -> None:
    admin.xtrim(topic, maxlen=keep, approximate=False)


async def test_unread_entries_that_were_trimmed_are_told_once(
    backend: RedisBackend, topic: str, group: str, admin: "redis.Redis"
) -> None:
    await publish(backend, topic, 10)
    await backend.read_new(topic, group, "c", 3, NOW)
    cut(admin, topic, 5)
    seen = await backend.watch(topic, group)
    assert (seen.missed, seen.lag, seen.lag_exact, seen.entries_read) == (2, 5, True, 5)
    assert (await backend.watch(topic, group)).missed == 0
    cut(admin, topic, 4)
    assert (await backend.watch(topic, group)).missed == 1
    assert len(await backend.read_new(topic, group, "c", 10, NOW)) == 4
    assert (await backend.watch(topic, group)).missed == 0
    assert next(row for row in admin.xinfo_groups(topic) if row["name"] == b"g")["lag"] == 0


async def test_what_was_trimmed_after_it_was_read_is_not_missed(
    backend: RedisBackend, topic: str, group: str, admin: "redis.Redis"
) -> None:
    await publish(backend, topic, 10)
    await backend.read_new(topic, group, "c", 7, NOW)
    cut(admin, topic, 3)
    assert (await backend.watch(topic, group)).missed == 0
    await backend.read_new(topic, group, "c", 7, NOW)
    cut(admin, topic, 0)
    assert (await backend.watch(topic, group)).missed == 0


@pytest.mark.parametrize("ahead", [False, True])
async def test_a_gap_that_the_group_has_passed_is_counted_too(
    backend: RedisBackend, topic: str, group: str, admin: "redis.Redis", *, ahead: bool
) -> None:
    """Some servers show no trace of it afterwards: it is counted when the read is sent."""
    await publish(backend, topic, 100)
    missed = 0
    for keep in (60, 20):
        first = await backend.read_new(topic, group, "c", 5, LONG)
        cut(admin, topic, keep)
        passed = await backend.read_new(topic, group, "c", 5, LONG, ahead=ahead)
        assert len(first) == len(passed) == 5
        missed += (await backend.watch(topic, group)).missed
    assert missed == (40 - 5) + (40 - 10)
    assert (await backend.watch(topic, group)).missed == 0


async def test_a_gap_is_counted_after_the_server_forgot_its_scripts(
    backend: RedisBackend, topic: str, group: str, admin: "redis.Redis"
) -> None:
    await publish(backend, topic, 50)
    await backend.read_new(topic, group, "c", 5, NOW)
    admin.script_flush()
    await backend.read_new(topic, group, "c", 5, NOW)  # learns of it, and reads all the same
    cut(admin, topic, 20)
    assert len(await backend.read_new(topic, group, "c", 5, NOW)) == 5
    assert (await backend.watch(topic, group)).missed == 20


async def test_nothing_is_missed_where_a_group_begins(backend: RedisBackend, topic: str, admin: "redis.Redis") -> None:
    ids = await publish(backend, topic, 10)
    cut(admin, topic, 7)
    for name, start in (("all", "0"), ("new", "$"), ("mid", ids[6])):
        await backend.create_group(topic, name, start)
        assert (await backend.watch(topic, name)).missed == 0
        await backend.read_new(topic, name, "c", 2, NOW)
        assert (await backend.watch(topic, name)).missed == 0
    await publish(backend, topic, 4)
    cut(admin, topic, 2)
    missed = {name: (await backend.watch(topic, name)).missed for name in ("all", "new")}
    assert missed == {"all": 5 + 2, "new": 2}
    admin.xdel(topic, admin.xinfo_stream(topic)["last-generated-id"])
    await backend.create_group(topic, "late")
    seen = await backend.watch(topic, "late")
    assert (seen.missed, seen.deleted_unread) == (0, None)


async def test_a_stream_that_was_emptied_has_missed_all_that_was_unread(
    backend: RedisBackend, topic: str, group: str, admin: "redis.Redis"
) -> None:
    ids = await publish(backend, topic, 5)
    await backend.read_new(topic, group, "c", 2, NOW)
    admin.xdel(topic, *ids)
    seen = await backend.watch(topic, group)
    assert (seen.missed, seen.lag, seen.first_id, seen.deleted_unread) == (3, 0, None, None)


async def test_an_entry_deleted_from_the_middle_is_named_once(
    backend: RedisBackend, topic: str, group: str, admin: "redis.Redis"
) -> None:
    ids = await publish(backend, topic, 10)
    entries = await backend.read_new(topic, group, "c", 3, NOW)
    await backend.watch(topic, group)
    admin.xdel(topic, entries[1].id)
    assert (await backend.watch(topic, group)).deleted_unread is None  # it was read
    admin.xdel(topic, ids[5])
    seen = [await backend.watch(topic, group) for _ in range(2)]
    assert [(one.deleted_unread, one.missed) for one in seen] == [(ids[5], 0), (None, 0)]


async def test_many_who_look_at_once_tell_each_loss_once(
    backend: RedisBackend, topic: str, group: str, admin: "redis.Redis"
) -> None:
    await publish(backend, topic, 100)
    async with await backend.another() as other:
        seen: list[GroupSighting] = []
        for keep in (90, 70, 40):
            cut(admin, topic, keep)
            seen += await asyncio.gather(*(one.watch(topic, group) for one in (backend, other) for _ in range(4)))
    assert sorted(one.missed for one in seen if one.missed) == [10, 20, 30]


async def test_a_look_whose_answer_was_lost_tells_its_losses_again(
    wired: RedisBackend, proxy: Proxy, topic: str, admin: "redis.Redis"
) -> None:
    await wired.watch(topic, "g")
    await publish(wired, topic, 10)
    cut(admin, topic, 8)
    proxy.drop_reply_to("EVALSHA")
    assert (await wired.watch(topic, "g")).missed == 2
    assert proxy.dropped == 1
    cut(admin, topic, 5)
    proxy.stall()
    looking = asyncio.create_task(wired.watch(topic, "g"))
    async with asyncio.timeout(ENOUGH):
        while not proxy.held:
            await asyncio.sleep(0.005)
    looking.cancel()
    await asyncio.wait([looking])
    proxy.flow()
    assert (await healed(lambda: wired.watch(topic, "g"))).missed == 3
    assert (await wired.watch(topic, "g")).missed == 0


async def test_a_new_stream_under_the_name_starts_with_no_debt(
    backend: RedisBackend, topic: str, group: str, admin: "redis.Redis"
) -> None:
    await publish(backend, topic, 10)
    await backend.read_new(topic, group, "c", 10, NOW)
    await backend.watch(topic, group)
    admin.delete(topic)
    await publish(backend, topic, 3)
    await backend.restore_group(topic, group)
    seen = await backend.watch(topic, group)
    assert (seen.missed, seen.lag) == (0, 3)


async def test_a_blocked_reader_that_is_woken_counts_nothing(
    backend: RedisBackend, topic: str, group: str, admin: "redis.Redis"
) -> None:
    for _ in range(3):
        reading = asyncio.create_task(backend.read_new(topic, group, "c", 10, LONG))
        await blocked(admin)
        await publish(backend, topic)
        assert len(await reading) == 1
    assert (await backend.watch(topic, group)).missed == 0


class Truth:
    """What the group has read, what is there, and what it will never see."""

    def __init__(self) -> None:
        self.there: list[int] = []
        self.added = 0
        self.last = 0
        self.missed = 0

    def unread(self) -> list[int]:
        return [number for number in self.there if number > self.last]

    def lose(self, gone: list[int]) -> None:
        self.missed += sum(number > self.last for number in gone)
        self.there = [number for number in self.there if number not in gone]


async def trial(backend: RedisBackend, admin: "redis.Redis", topic: str, seed: int, *, deleting: bool) -> None:
    dice, truth, told = random.Random(seed), Truth(), 0

    def add(count: int) -> None:
        for _ in range(count):
            truth.added += 1
            truth.there.append(truth.added)
            admin.xadd(topic, {"payload": "1"}, id=f"{truth.added}-0")

    def trim(keep: int) -> None:
        cut(admin, topic, keep)
        truth.lose(truth.there[: len(truth.there) - keep])

    add(dice.randint(1, 9))
    trim(dice.randint(0, len(truth.there)))
    truth.missed = 0
    start = dice.choice(["0", "$"])
    await backend.create_group(topic, "g", start)
    truth.last = truth.added if start == "$" else 0
    await backend.watch(topic, "g")
    for step in range(40):
        action = dice.choice(["add", "add", "read", "read", "trim", "look", "delete"])
        if action == "add":
            add(dice.randint(1, 4))
        elif action == "read":
            count = dice.randint(1, 4)
            expected = truth.unread()[:count]
            got = await backend.read_new(topic, "g", "c", count, NOW)
            assert [entry.id for entry in got] == [f"{number}-0" for number in expected]
            truth.last = expected[-1] if expected else truth.last
        elif action == "trim":
            trim(dice.randint(0, len(truth.there)))
        elif action == "delete" and deleting and truth.there:
            victim = dice.choice(truth.there)
            admin.xdel(topic, f"{victim}-0")
            truth.lose([victim])
        elif action == "look":
            seen = await backend.watch(topic, "g")
            told += seen.missed
            where = f"seed {seed}, step {step}: {seen}"
            assert told <= truth.missed if deleting else told == truth.missed, where
            assert not seen.lag_exact or seen.lag == len(truth.unread()), where
            assert deleting or seen.lag == len(truth.unread()), where
            assert seen.lag is None or 0 <= seen.lag <= seen.length, where


async def test_what_is_told_is_what_was_lost_whatever_is_trimmed_when(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    for seed in range(60):
        await trial(backend, admin, f"{topic}:{seed}", seed, deleting=False)


async def test_where_entries_are_deleted_too_nothing_is_told_that_was_not_lost(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    for seed in range(60):
        await trial(backend, admin, f"{topic}:{seed}", seed, deleting=True)


@pytest.mark.parametrize("since", [["7-0", "12-0"], ["12-0"], []], ids=str)
async def test_a_server_that_lost_what_was_there_is_found_out_by_who_saw_it(
    backend: RedisBackend, topic: str, group: str, admin: "redis.Redis", since: list[str]
) -> None:
    admin.xadd(topic, {"payload": "1"}, id="5-0")
    assert (await backend.watch(topic, group)).newest_id == "5-0"
    old = admin.dump(topic)
    admin.xadd(topic, {"payload": "1"}, id="9-0")
    known = await backend.watch(topic, group)
    assert (await backend.watch(topic, group, known)).fell_back_to is None
    admin.restore(topic, 0, old, replace=True)
    for id in since:
        admin.xadd(topic, {"payload": "1"}, id=id)
    seen = await backend.watch(topic, group, known)
    assert (seen.fell_back_to, seen.fell_back_from) == ("7-0" if "7-0" in since else "5-0", "9-0")
    for one in (seen, known):  # also another process, which has not looked yet
        assert (await backend.watch(topic, group, one)).fell_back_from is None


async def test_what_a_reader_was_given_and_the_server_lost_is_told_once_with_all_that_is_known(
    backend: RedisBackend, topic: str, group: str, admin: "redis.Redis"
) -> None:
    admin.xadd(topic, {"payload": "1"}, id="4-0")
    first = await backend.read_new(topic, group, "a", 9, NOW)
    old = admin.dump(topic)
    for id in ("7-0", "8-0", "9-0"):
        admin.xadd(topic, {"payload": "1"}, id=id)
    for consumer in ("a", "b"):
        await backend.read_new(topic, group, consumer, 1, NOW)
    known = await backend.watch(topic, group)
    assert (len(first), known.last_delivered, known.newest_id) == (1, "8-0", "9-0")
    admin.restore(topic, 0, old, replace=True)
    admin.xadd(topic, {"payload": "1"}, id="12-0")
    for consumer in ("b", "a"):
        await backend.read_new(topic, group, consumer, 1, NOW)
    told = [await backend.watch(topic, group) for _ in range(2)]
    assert [(one.fell_back_to, one.fell_back_from) for one in told] == [("4-0", "8-0"), (None, None)]
    more = [await backend.watch(topic, group, known) for _ in range(2)]
    assert [(one.fell_back_to, one.fell_back_from) for one in more] == [("4-0", "9-0"), (None, None)]
    assert await backend.read_new(topic, group, "a", 1, NOW) == []
    assert (await backend.watch(topic, group)).fell_back_from is None


async def test_who_looked_before_it_reads_on_is_told_once(
    backend: RedisBackend, topic: str, group: str, admin: "redis.Redis"
) -> None:
    admin.xadd(topic, {"payload": "1"}, id="4-0")
    old = admin.dump(topic)
    admin.xadd(topic, {"payload": "1"}, id="9-0")
    await backend.read_new(topic, group, "c", 9, NOW)
    known = await backend.watch(topic, group)
    admin.restore(topic, 0, old, replace=True)
    admin.xadd(topic, {"payload": "1"}, id="12-0")
    assert (await backend.watch(topic, group, known)).fell_back_from == "9-0"
    await backend.read_new(topic, group, "c", 9, NOW)
    assert (await backend.watch(topic, group, known)).fell_back_from is None


async def test_an_empty_stream_that_lost_its_only_entries_is_found_out_too(
    backend: RedisBackend, topic: str, group: str, admin: "redis.Redis"
) -> None:
    old = admin.dump(topic)
    admin.xadd(topic, {"payload": "1"}, id="9-0")
    known = await backend.watch(topic, group)
    admin.restore(topic, 0, old, replace=True)
    admin.xadd(topic, {"payload": "1"}, id="12-0")
    seen = await backend.watch(topic, group, known)
    assert (seen.fell_back_to, seen.fell_back_from) == ("0-0", "9-0")


@pytest.mark.parametrize("removed", [("XDEL", "9-0"), ("XTRIM", "MINID", "12-0"), ("XTRIM", "MAXLEN", "0")], ids=str)
async def test_an_entry_that_was_removed_is_no_sign_of_a_server_that_fell_back(
    backend: RedisBackend, topic: str, group: str, admin: "redis.Redis", removed: tuple[str, ...]
) -> None:
    for id in ("5-0", "9-0"):
        admin.xadd(topic, {"payload": "1"}, id=id)
    await backend.read_new(topic, group, "c", 9, NOW)
    known = await backend.watch(topic, group)
    admin.xadd(topic, {"payload": "1"}, id="12-0")
    admin.execute_command(removed[0], topic, *removed[1:])
    await backend.read_new(topic, group, "c", 9, NOW)
    assert (await backend.watch(topic, group, known)).fell_back_from is None


async def test_a_stream_that_was_made_anew_is_no_server_that_fell_back(
    backend: RedisBackend, topic: str, group: str, admin: "redis.Redis"
) -> None:
    admin.xadd(topic, {"payload": "1"}, id="9-0")
    known = await backend.watch(topic, group)
    admin.delete(topic)
    await backend.create_group(topic, group)
    admin.xadd(topic, {"payload": "1"}, id="5-0")
    for _ in range(2):  # the second look is another process's: the first has noted the new stream already
        seen = await backend.watch(topic, group, known)
        assert (seen.epoch != known.epoch, seen.fell_back_from) == (True, None)
