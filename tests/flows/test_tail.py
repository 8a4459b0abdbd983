"""Following a topic without a group: from any place, nothing lost in between, nothing twice."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
import redis

from penstock import Cursor, Last, Message, Penstock, Tailed, Unreadable, events
from penstock.backend import keys
from penstock.errors import ConfigurationError, CursorNotFoundError, WrongKeyTypeError
from penstock.message.ids import new_id
from tests.support.proxy import Proxy
from tests.support.stage import Stage
from tests.support.tailing import bodies, numbers, publish, take
from tests.support.waiting import blocked

BOTH = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)


@pytest.fixture
async def ten(stage: Stage) -> list[str]:
    """Entry ids of messages 0 to 9."""
    return await publish(stage, *range(10))


@BOTH
async def test_earliest_gives_what_is_there_and_then_what_comes(stage: Stage, ten: list[str]) -> None:
    async with stage.app.tail(stage.topic, after="earliest") as tail:
        items = await take(tail, 10)
        assert numbers(items) == list(range(10))
        assert [item.entry_id for item in items] == ten
        await publish(stage, 10, 11)
        assert numbers(await take(tail, 2)) == [10, 11]


@BOTH
async def test_latest_is_fixed_when_the_tail_opens_and_loses_nothing_between_reads(
    stage: Stage, ten: list[str], admin: "redis.Redis"
) -> None:
    async with stage.app.tail(stage.topic) as tail:
        await publish(stage, 10)  # before anything was asked for
        assert numbers(await take(tail, 1)) == [10]
        await blocked(admin)
        for number in range(11, 50):  # between two items, and while one is waited for
            await publish(stage, number)
            if number % 3:
                await asyncio.sleep(0)
        assert numbers(await take(tail, 39)) == list(range(11, 50))


async def test_who_was_given_nothing_goes_on_from_where_it_began(stage: Stage, ten: list[str]) -> None:
    async with stage.app.tail(stage.topic) as tail:
        began = tail.began_at()
    await publish(stage, 10)
    async with stage.app.tail(stage.topic, after=began) as tail:
        assert numbers(await take(tail, 1)) == [10]


async def test_a_topic_that_does_not_exist_yet_is_followed_from_its_first_message(stage: Stage) -> None:
    async with stage.app.tail(stage.topic) as tail:
        waiting = asyncio.create_task(take(tail, 3))
        await blocked(stage.admin)
        await publish(stage, 0, 1, 2)
        assert numbers(await waiting) == [0, 1, 2]
        assert not stage.admin.xinfo_stream(stage.topic)["groups"] > 1


async def test_it_begins_behind_an_entry_a_position_a_message_or_among_the_last(stage: Stage, ten: list[str]) -> None:
    async with stage.app.tail(stage.topic, after="earliest") as tail:
        items = await take(tail, 10)
    third = items[2]
    assert isinstance(third, Tailed)
    assert third.position.endswith(f".{ten[2]}")
    for after in (ten[2], third.position, third.message.id, third.message.id.upper(), Last(7)):
        async with stage.app.tail(stage.topic, after=after) as tail:
            assert numbers(await take(tail, 7)) == list(range(3, 10)), after
    async with stage.app.tail(stage.topic, after=Last(50)) as tail:
        assert numbers(await take(tail, 10)) == list(range(10))


async def test_it_begins_at_a_moment(stage: Stage) -> None:
    for second in range(1, 6):
        stage.admin.xadd(stage.topic, {"payload": f'{{"n": {second}}}'}, id=f"{second}000-0")
    begin = datetime(1970, 1, 1, 0, 0, 3, tzinfo=UTC)
    async with stage.app.tail(stage.topic, after=begin) as tail:
        assert numbers(await take(tail, 3)) == [3, 4, 5]
    async with stage.app.tail(stage.topic, after=begin + timedelta(microseconds=1)) as tail:
        assert numbers(await take(tail, 2)) == [4, 5]
    late = stage.app.tail(stage.topic, after=datetime.now(UTC) - timedelta(seconds=1))
    async with late as tail:
        await publish(stage, 6)
        assert numbers(await take(tail, 1)) == [6]
    with pytest.raises(ConfigurationError, match="still to come"):
        async with stage.app.tail(stage.topic, after=datetime.now(UTC) + timedelta(hours=1)):
            pass


@pytest.mark.parametrize(
    "after", ["now", "", "12-", "x.1-0", 7, None, datetime.now(UTC).replace(tzinfo=None), "18446744073709551616-0"]
)
async def test_a_start_that_is_none_is_refused_where_it_is_written(stage: Stage, after: Any) -> None:
    with pytest.raises(ConfigurationError):
        stage.app.tail(stage.topic, after=after)


async def test_several_topics_come_each_in_order(stage: Stage) -> None:
    names = [f"{stage.topic}:{letter}" for letter in "abc"]
    for number in range(20):
        for name in names:
            await stage.app.bus(name).publish({"n": number})
    async with stage.app.tail(names, after="earliest") as tail:
        items = await take(tail, 60)
        for name in names:
            await stage.app.bus(name).publish({"n": 20})
        items += await take(tail, 3)
    for name in names:
        assert numbers([item for item in items if item.topic == name]) == list(range(21))
    starts = {names[0]: "latest", names[1]: Last(1), names[2]: "earliest"}
    async with stage.app.tail(names, after=starts) as tail:
        found = await take(tail, 22)
    assert sorted((item.topic, n) for item, n in zip(found, numbers(found), strict=True)) == sorted(
        [(names[1], 20), *((names[2], n) for n in range(21))]
    )


async def test_an_entry_that_is_no_message_is_given_as_such_and_stops_nobody(stage: Stage) -> None:
    stage.add_raw({"colour": "blue"})
    await publish(stage, 1)
    stage.add_raw({"payload": "{"})
    async with stage.app.tail(stage.topic, after="earliest") as tail:
        items = await take(tail, 3)
    assert [type(item) for item in items] == [Unreadable, Tailed, Unreadable]
    assert isinstance(items[0], Unreadable)
    assert items[0].error.raw == (b"colour", b"blue")


async def test_what_one_follower_does_to_a_body_another_does_not_see(stage: Stage) -> None:
    async with stage.app.tail(stage.topic) as one, stage.app.tail(stage.topic) as other:
        await publish(stage, 1)
        (mine,), (theirs,) = await take(one, 1), await take(other, 1)
        bodies([mine])[0]["n"] = "mine"
        assert numbers([theirs]) == [1]


async def test_pages_go_backwards_to_the_beginning(stage: Stage, ten: list[str]) -> None:
    async with stage.app.tail(stage.topic) as tail:
        await publish(stage, 10)
        page = await tail.page_back(count=4)
        assert numbers(page) == [6, 7, 8, 9]
        seen = []
        while page:
            seen[:0] = numbers(page)
            page = await tail.page_back(before=page[0].position, count=4)
        assert seen == list(range(10))
        first = await tail.page_back(before=ten[1])
        assert numbers(first) == [0]
        message_id = first[0].message.id
        assert await tail.page_back(before=message_id) == []
        assert numbers(await take(tail, 1)) == [10]
        with pytest.raises(ConfigurationError):
            await tail.page_back(before="latest")
        with pytest.raises(CursorNotFoundError, match="another of its name"):
            await tail.page_back(before=f"abc.{ten[5]}")


@BOTH
async def test_a_message_is_found_by_its_uuid_in_whatever_way_it_was_written(stage: Stage) -> None:
    """Published once, with a v7, with a v4, by a program without ids, with an id that is no UUID."""
    bus = stage.app.bus(stage.topic)
    await publish(stage, *range(50))
    marks = [
        (await bus.publish({"n": "once"}, id=str(uuid4()))).id,
        (await bus.publish(Message({"n": "v7"}))).id,
        (await bus.publish(Message({"n": "v4"}, id=str(uuid4())))).id,
    ]
    stage.admin.xadd(stage.topic, {"payload": '{"n": "none"}'})
    stage.admin.xadd(stage.topic, {"payload": '{"n": "foreign"}', "id": "order 66"})
    stage.admin.xadd(stage.topic, {"payload": '{"n": "mentioned"}', "key": marks[1]})
    await publish(stage, 100)
    async with stage.app.tail(stage.topic, after=Last(5)) as tail:
        marks += [item.message.id for item in await take(tail, 5) if isinstance(item, Tailed)]
    names = ["once", "v7", "v4", "v4", "none", "foreign", "mentioned", 100]
    for mark, name in zip(marks, names, strict=True):
        async with stage.app.tail(stage.topic, after=mark) as tail:
            (before,) = await tail.page_back(count=1)
            assert numbers([before]) == [name]
    with pytest.raises(CursorNotFoundError, match="no entry has this id"):
        async with stage.app.tail(stage.topic, after=new_id()):
            pass


async def test_a_durable_cursor_goes_on_where_it_was_committed(stage: Stage, ten: list[str]) -> None:
    async with stage.app.tail(stage.topic, after=Cursor("lake")) as tail:
        items = await take(tail, 5)
        assert await items[3].commit() is True
        assert await items[2].commit() is False  # it never goes back
    async with stage.another() as again, again.app.tail(stage.topic, after=Cursor("lake", every=2)) as tail:
        assert numbers(await take(tail, 6)) == [4, 5, 6, 7, 8, 9]
    async with stage.app.tail(stage.topic, after=Cursor("lake")) as tail:
        assert numbers(await take(tail, 1)) == [9]  # the last one was not done: nobody asked for more
    assert await stage.app.forget_cursor(stage.topic, "lake") is True
    async with stage.app.tail(stage.topic, after=Cursor("lake", start="latest")) as tail:
        await publish(stage, 10)
        (item,) = await take(tail, 1)
        assert numbers([item]) == [10]
        await stage.app.forget_cursor(stage.topic, "lake")
        with pytest.raises(CursorNotFoundError, match="removed"):
            await item.commit()
    async with stage.app.tail(stage.topic, after=Last(1)) as tail:
        (item,) = await take(tail, 1)
        with pytest.raises(ConfigurationError, match="no durable cursor"):
            await item.commit()


async def test_a_durable_cursor_waits_for_a_server_that_is_away(stage: Stage, ten: list[str], proxy: Proxy) -> None:
    """What it could not be told is told later, and the items that are at hand are given meanwhile."""
    troubles: list[events.Trouble] = []
    async with Penstock.connect(proxy.url, logs=None) as app:
        app.listen(lambda event: troubles.append(event) if isinstance(event, events.Trouble) else None)
        async with app.tail(stage.topic, after=Cursor("lake", every=1)) as tail:
            assert numbers(await take(tail, 5)) == [0, 1, 2, 3, 4]
            proxy.refusing = True
            proxy.cut()
            assert numbers(await take(tail, 3)) == [5, 6, 7]
            told = [(one.scope, one.topic, one.group) for one in troubles]
            assert (events.Scope.SETTLE, stage.topic, "lake") in told
            held = stage.admin.hget(keys.cursors(stage.topic), "lake")
            assert held.startswith(f"{ten[3]} ".encode())
            proxy.refusing = False
            assert numbers(await take(tail, 2)) == [8, 9]
    held = stage.admin.hget(keys.cursors(stage.topic), "lake")
    assert held.startswith(f"{ten[8]} ".encode())


async def test_a_durable_cursor_holds_the_horizon(stage: Stage) -> None:
    stage.admin.config_set("stream-node-max-entries", 10)
    try:
        ids = await publish(stage, *range(100))
        async with stage.app.tail(stage.topic, after=Cursor("lake")) as tail:
            items = await take(tail, 60)
            assert (await stage.app.backend.trim(stage.topic, ids[-1])).removed == 0
            await items[49].commit()
            trimmed = await stage.app.backend.trim(stage.topic, ids[-1])
            assert (str(trimmed.pin), trimmed.horizon) == ("cursor lake", ids[49])
            assert trimmed.removed > 0
        async with stage.app.tail(stage.topic, after=Cursor("lake")) as tail:
            assert numbers(await take(tail, 50)) == list(range(50, 100))
    finally:
        stage.admin.config_set("stream-node-max-entries", 100)


async def test_closing_the_app_ends_the_iteration(stage: Stage) -> None:
    async with Penstock.connect(stage.url) as app:
        tail = app.tail(stage.topic)
        await tail.__aenter__()
        waiting = asyncio.create_task(anext(tail, "end"))
        await blocked(stage.admin)
    async with asyncio.timeout(20):
        assert await waiting == "end"


async def test_closing_the_app_ends_the_iteration_of_one_that_is_behind(stage: Stage, ten: list[str]) -> None:
    async with Penstock.connect(stage.url) as app:
        tail = app.tail(stage.topic, after="earliest")
        await tail.__aenter__()
    async with asyncio.timeout(20):
        assert await anext(tail, "end") == "end"


def clients(stage: Stage) -> set[str]:
    """Who is connected, each by its number: those of the test before may still be leaving."""
    return {client["id"] for client in stage.admin.client_list()}


async def test_a_tail_that_cannot_open_leaves_nothing_behind(stage: Stage, ten: list[str]) -> None:
    before, other = clients(stage), f"{stage.topic}:other"
    with pytest.raises(CursorNotFoundError):
        async with stage.app.tail([stage.topic, other], after={stage.topic: ten[0], other: new_id()}):
            pass
    await stage.until(lambda: clients(stage) <= before)


async def test_followers_share_one_connection_and_the_last_one_frees_it(stage: Stage) -> None:
    def connections() -> int:
        return len(clients(stage) - before)

    before = clients(stage)
    tails = [stage.app.tail(stage.topic) for _ in range(100)]
    for tail in tails:
        await tail.__aenter__()
    waiting = [asyncio.create_task(take(tail, 2)) for tail in tails]
    await blocked(stage.admin)
    assert connections() == 1
    await publish(stage, 1, 2)
    assert all(numbers(items) == [1, 2] for items in await asyncio.gather(*waiting))
    for tail in tails:
        tail.close()
    await stage.until(lambda: connections() == 0)


async def test_a_topic_that_becomes_something_else_fails_alone(stage: Stage) -> None:
    other = f"{stage.topic}:other"
    await publish(stage, 0)
    async with stage.app.tail(stage.topic) as broken, stage.app.tail(other) as whole:
        failing, going = asyncio.create_task(take(broken, 1)), asyncio.create_task(take(whole, 1))
        await blocked(stage.admin)
        stage.admin.set(stage.topic, "no stream")
        await stage.app.bus(other).publish({"n": 1})
        assert numbers(await going) == [1]
        with pytest.raises(WrongKeyTypeError, match=stage.topic):
            await failing
        await stage.app.bus(other).publish({"n": 2})
        assert numbers(await take(whole, 1)) == [2]


async def test_the_prefix_of_the_app_counts(stage: Stage) -> None:
    async with Penstock.connect(stage.url, prefix="dev:") as app, app.tail(stage.topic) as tail:
        await app.bus(stage.topic).publish({"n": 1})
        (item,) = await take(tail, 1)
        assert item.topic == f"dev:{stage.topic}"
        assert stage.admin.exists(keys.cursors(item.topic)) == 0


async def test_a_tail_that_is_not_open_says_so(stage: Stage) -> None:
    tail = stage.app.tail(stage.topic)
    with pytest.raises(ConfigurationError, match="async with"):
        await anext(tail)
    async with tail:
        with pytest.raises(ConfigurationError, match="open already"):
            await tail.__aenter__()
