"""What a follower could not be given is told where it would have been: exactly, once, and then it goes on."""

import asyncio
import random
import shutil
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import redis

from penstock import Cursor, Gap, Last, Penstock, Tail, Tailed, events
from penstock.backend import keys
from penstock.backend.facts import position as order
from penstock.errors import CursorNotFoundError
from tests.support.proxy import Proxy
from tests.support.servers import Server, redis_binary, valkey_binary
from tests.support.stage import Stage
from tests.support.tailing import next_gap, numbers, publish, take
from tests.support.waiting import blocked, healed

BOTH = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)


async def position_of(stage: Stage, number: int) -> str:
    """Of the message with this number, which must be there, as a follower keeps it."""
    async with stage.app.tail(stage.topic, after="earliest") as tail:
        while True:
            (item,) = await take(tail, 1)
            if isinstance(item, Tailed) and item.message.body["n"] == number:
                return item.position


def trim(admin: "redis.Redis", topic: str, keep: int) -> int:
    removed: int = admin.xtrim(topic, maxlen=keep, approximate=False)
    return removed


@BOTH
async def test_a_position_older_than_what_is_kept_gives_a_gap_and_then_what_is_there(stage: Stage) -> None:
    ids = await publish(stage, *range(10))
    position = await position_of(stage, 2)
    trim(stage.admin, stage.topic, 4)
    for after in (position, ids[2]):
        async with stage.app.tail(stage.topic, after=after) as tail:
            gap = await next_gap(tail)
            assert (gap.after, gap.count, gap.reason) == (ids[2], None, "trimmed")
            assert order(ids[5]) <= order(str(gap.upto)) < order(ids[6])
            assert numbers(await take(tail, 4)) == [6, 7, 8, 9]
    told = stage.told(events.Gapped)
    assert [(one.after, one.reason) for one in told] == [(ids[2], "trimmed")] * 2


async def test_nothing_is_missing_where_nothing_was_ever_removed_or_all_was_read(stage: Stage) -> None:
    await publish(stage, *range(5))
    last = await position_of(stage, 4)
    async with stage.app.tail(stage.topic, after="1-0") as tail:
        assert numbers(await take(tail, 5)) == list(range(5))
    trim(stage.admin, stage.topic, 0)
    async with stage.app.tail(stage.topic, after=last) as tail:
        await publish(stage, 5)
        assert numbers(await take(tail, 1)) == [5]


async def test_who_began_before_the_topic_did_is_told_what_it_missed(stage: Stage) -> None:
    """Its position is `0-0`: all that was ever added lies behind that."""
    async with stage.app.tail(stage.topic) as tail:
        began = tail.began_at()
    ids = await publish(stage, *range(5))
    async with stage.app.tail(stage.topic, after=began) as tail:
        assert numbers(await take(tail, 5)) == list(range(5))
    trim(stage.admin, stage.topic, 2)
    async with stage.app.tail(stage.topic, after=began) as tail:
        gap = await next_gap(tail)
        assert (gap.after, gap.reason) == ("0-0", "trimmed")
        assert order(ids[2]) <= order(str(gap.upto)) < order(ids[3])
        assert numbers(await take(tail, 2)) == [3, 4]
    async with stage.app.tail(stage.topic, after="earliest") as tail:
        assert numbers(await take(tail, 2)) == [3, 4]


@pytest.mark.parametrize("after", ["earliest", Last(5)])
async def test_who_began_where_all_was_removed_has_missed_nothing_of_it(stage: Stage, after: Any) -> None:
    await publish(stage, *range(3))
    trim(stage.admin, stage.topic, 0)
    async with stage.app.tail(stage.topic, after=after) as tail:
        began = tail.began_at()
    async with stage.app.tail(stage.topic, after=began) as tail:
        await publish(stage, 3)
        assert numbers(await take(tail, 1)) == [3]


async def test_an_id_of_a_topic_that_does_not_exist_is_one_of_a_stream_that_is_gone(stage: Stage) -> None:
    """Also one that is still to come: nothing that is published is passed by until then."""
    async with stage.app.tail(stage.topic, after="99999999999999-0") as tail:
        assert await next_gap(tail) == Gap(stage.topic, "99999999999999-0", None, None, "gone")
        await publish(stage, 1)
        assert numbers(await take(tail, 1)) == [1]


@BOTH
async def test_a_position_of_an_earlier_stream_gives_a_gap_and_then_all_of_the_new_one(stage: Stage) -> None:
    ids = await publish(stage, *range(5))
    position = await position_of(stage, 2)
    stage.admin.delete(stage.topic)
    await publish(stage, 100, 101)
    async with stage.app.tail(stage.topic, after=position) as tail:
        assert await next_gap(tail) == Gap(stage.topic, ids[2], None, None, "recreated")
        assert numbers(await take(tail, 2)) == [100, 101]


@BOTH
async def test_a_message_that_is_only_remembered_gives_a_gap(stage: Stage) -> None:
    """What `once` remembers outlives the entry, and the whole stream: nothing behind it may be passed by in silence."""
    bus = stage.app.bus(stage.topic)
    first = await bus.publish({"n": 1}, once=True)
    ids = await publish(stage, 2, 3)
    async with stage.app.tail(stage.topic, after=first.id) as tail:
        assert numbers(await take(tail, 2)) == [2, 3]
    stage.admin.xtrim(stage.topic, minid=ids[1], approximate=False)
    async with stage.app.tail(stage.topic, after=first.id) as tail:
        assert (await next_gap(tail)).reason == "trimmed"
        assert numbers(await take(tail, 1)) == [3]
    stage.admin.delete(stage.topic)
    async with stage.app.tail(stage.topic, after=first.id) as tail:
        assert (await next_gap(tail)).reason == "gone"
    await publish(stage, 4)
    async with stage.app.tail(stage.topic, after=first.id) as tail:
        assert await next_gap(tail) == Gap(stage.topic, first.entry_id, None, None, "recreated")
        assert numbers(await take(tail, 1)) == [4]
        began = tail.began_at()
        with pytest.raises(CursorNotFoundError, match="this is another of its name"):
            await tail.page_back(before=first.id)
    async with stage.app.tail(stage.topic, after=began) as tail:
        assert (await next_gap(tail)).reason == "recreated"


async def test_who_began_behind_a_message_comes_back_to_its_stream_and_no_other(stage: Stage) -> None:
    """It was given nothing yet: where it began is all that it has."""
    receipt = await stage.app.bus(stage.topic).publish({"n": 0})
    await publish(stage, 1, 2)
    async with stage.app.tail(stage.topic, after=receipt.id) as tail:
        began = tail.began_at()
    async with stage.app.tail(stage.topic, after=began) as tail:
        assert numbers(await take(tail, 2)) == [1, 2]
    stage.admin.delete(stage.topic)
    await publish(stage, 3)
    async with stage.app.tail(stage.topic, after=began) as tail:
        assert await next_gap(tail) == Gap(stage.topic, receipt.entry_id, None, None, "recreated")
        assert numbers(await take(tail, 1)) == [3]


async def test_a_stream_that_is_replaced_while_it_is_followed(stage: Stage) -> None:
    ids = await publish(stage, 0)
    async with stage.app.tail(stage.topic, after="earliest") as tail, stage.app.tail(stage.topic) as other:
        assert numbers(await take(tail, 1)) == [0]
        following = [asyncio.create_task(take(one, 3)) for one in (tail, other)]
        await blocked(stage.admin)
        with stage.admin.pipeline(transaction=True) as at_once:
            at_once.delete(stage.topic)
            for number in (1, 2):
                at_once.xadd(stage.topic, {"payload": f'{{"n": {number}}}'})
            at_once.execute()
        for gap, *items in await asyncio.gather(*following):
            assert gap == Gap(stage.topic, ids[0], None, None, "recreated")
            assert numbers(items) == [1, 2]


@BOTH
async def test_a_stream_that_goes_away_is_told_and_its_successor_followed(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the successor's ids are smaller, so that nothing would ever ring."""
    monkeypatch.setattr("penstock.tail.reader._LOOK_AGAIN", timedelta(milliseconds=50))
    (id,) = await publish(stage, 0)
    async with stage.app.tail(stage.topic) as tail:
        waiting = asyncio.create_task(next_gap(tail))
        await blocked(stage.admin)
        stage.admin.delete(stage.topic)
        assert await waiting == Gap(stage.topic, id, None, None, "gone")
        stage.admin.xadd(stage.topic, {"payload": '{"n": 1}'}, id="5-0")
        assert numbers(await take(tail, 1)) == [1]
        with stage.admin.pipeline(transaction=True) as at_once:
            at_once.delete(stage.topic)
            at_once.xadd(stage.topic, {"payload": '{"n": 2}'}, id="4-0")
            at_once.execute()
        assert (await next_gap(tail)).reason == "recreated"
        assert numbers(await take(tail, 1)) == [2]


@BOTH
async def test_what_is_trimmed_or_deleted_before_it_could_be_read_is_counted(stage: Stage) -> None:
    async with stage.app.tail(stage.topic) as tail:
        (first,) = await publish(stage, 0)
        assert numbers(await take(tail, 1)) == [0]
        await blocked(stage.admin)
        with stage.admin.pipeline(transaction=True) as at_once:
            for number in range(1, 9):
                at_once.xadd(stage.topic, {"payload": f'{{"n": {number}}}'}, maxlen=3, approximate=False)
            *ids, _ = at_once.execute()
        gap = await next_gap(tail)
        assert (gap.after, gap.count, gap.reason) == (first, 5, "trimmed")
        assert numbers(await take(tail, 3)) == [6, 7, 8]
        await blocked(stage.admin)
        with stage.admin.pipeline(transaction=True) as at_once:
            at_once.xadd(stage.topic, {"payload": '{"n": 9}'}, id="9999999999999-1")
            at_once.xadd(stage.topic, {"payload": '{"n": 10}'}, id="9999999999999-2")
            at_once.xadd(stage.topic, {"payload": '{"n": 11}'}, id="9999999999999-3")
            at_once.xdel(stage.topic, "9999999999999-2")
            at_once.execute()
        gap = await next_gap(tail)
        assert (gap.count, gap.upto, gap.reason) == (1, "9999999999999-2", "deleted")
        assert numbers(await take(tail, 2)) == [9, 11]
    assert ids


@BOTH
async def test_whatever_is_added_trimmed_and_deleted_is_given_or_counted(stage: Stage) -> None:
    """Random doings of others, at random moments of a reader that is live, behind, or away: the sum is always right."""
    rng, added = random.Random(7), 0
    async with stage.app.tail(stage.topic) as tail:
        given: list[int] = []
        missing = 0
        for _ in range(60):
            with stage.admin.pipeline(transaction=True) as at_once:
                ids = []
                for _ in range(rng.randint(0, 40)):
                    ids.append(f"{added + 1}-1")
                    at_once.xadd(stage.topic, {"payload": f'{{"n": {added}}}'}, id=ids[-1])
                    added += 1
                if ids and rng.random() < 0.4:
                    at_once.xdel(stage.topic, *rng.sample(ids, min(3, len(ids))))
                if ids and rng.random() < 0.3:
                    at_once.xtrim(stage.topic, maxlen=rng.randint(0, 10), approximate=False)
                at_once.execute()
            if given and rng.random() < 0.5:
                await blocked(stage.admin)
            stage.admin.xadd(stage.topic, {"payload": f'{{"n": {added}}}'}, id=f"{added + 1}-1")
            added += 1
            while not given or given[-1] != added - 1:
                (item,) = await take(tail, 1)
                if isinstance(item, Gap):
                    assert item.count is not None
                    missing += item.count
                else:
                    given += numbers([item])
            assert len(given) + missing == added
    assert given == sorted(set(given))
    assert missing > 50


async def test_a_cursor_of_an_earlier_stream_gives_a_gap_and_keeps_the_new_one_from_being_trimmed(
    stage: Stage,
) -> None:
    stage.admin.config_set("stream-node-max-entries", 1)
    try:
        (id,) = await publish(stage, 0)
        async with stage.app.tail(stage.topic, after=Cursor("lake")) as tail:
            await (await take(tail, 1))[0].commit()
        stage.admin.delete(stage.topic)
        for number in range(1, 4):
            stage.admin.xadd(stage.topic, {"payload": f'{{"n": {number}}}'}, id=f"{number}-0")
        assert (await stage.app.backend.trim(stage.topic, "3-0")).removed == 0
        async with stage.app.tail(stage.topic, after=Cursor("lake", every=1)) as tail:
            assert await next_gap(tail) == Gap(stage.topic, id, None, None, "recreated")
            assert numbers(await take(tail, 3)) == [1, 2, 3]
        held = stage.admin.hget(keys.cursors(stage.topic), "lake")
        assert held.startswith(b"2-0 ")
        assert stage.told(events.Gapped)[0].group == "lake"
    finally:
        stage.admin.config_set("stream-node-max-entries", 100)


async def test_a_follower_that_is_too_slow_is_told_how_much_it_missed(stage: Stage) -> None:
    async with stage.app.tail(stage.topic, queue=10) as slow, stage.app.tail(stage.topic) as quick:
        ids = await publish(stage, 0)
        assert numbers(await take(slow, 1)) == numbers(await take(quick, 1)) == [0]
        for number in range(1, 100):
            ids += await publish(stage, number)
            assert numbers(await take(quick, 1)) == [number]
        gap = await next_gap(slow)
        assert (gap.after, gap.count, gap.reason) == (ids[0], 94, "too slow")
        assert order(ids[94]) <= order(str(gap.upto)) < order(ids[95])
        assert numbers(await take(slow, 5)) == [95, 96, 97, 98, 99]
        await publish(stage, 100)
        assert numbers(await take(slow, 1)) == [100]


async def test_a_burst_is_no_reason_to_call_somebody_slow(stage: Stage) -> None:
    async with stage.app.tail(stage.topic, queue=3) as tail:
        taking = asyncio.create_task(take(tail, 500))
        await blocked(stage.admin)
        await stage.app.bus(stage.topic).publish_many([{"n": number} for number in range(500)])
        assert numbers(await taking) == list(range(500))


async def test_a_durable_cursor_is_never_too_slow(stage: Stage) -> None:
    async with stage.app.tail(stage.topic, after=Cursor("lake"), queue=5) as slow, stage.app.tail(stage.topic) as quick:
        await publish(stage, 0)
        assert numbers(await take(slow, 1)) == numbers(await take(quick, 1)) == [0]
        for number in range(1, 60):
            await publish(stage, number)
            await take(quick, 1)
        assert numbers(await take(slow, 59)) == list(range(1, 60))
        await publish(stage, 60)
        assert numbers(await take(slow, 1)) == [60]


async def test_broken_connections_lose_and_repeat_nothing(stage: Stage, proxy: Proxy) -> None:
    """Wherever the break comes: while it waits, while it reads, with the answer on its way."""
    wanted = list(range(120))
    async with Penstock.connect(proxy.url, logs=None) as app, app.tail(stage.topic) as tail:
        taking = asyncio.create_task(take(tail, len(wanted), within=30))
        for number in wanted:
            dropped = proxy.dropped
            if number % 10 == 3:
                proxy.drop_reply_to("EXEC")
            elif number % 10 == 6:
                proxy.drop_reply_to("XREAD")
            elif number % 10 == 9:
                proxy.cut()
            await publish(stage, number)
            await asyncio.sleep(0.005)
            if number % 10 == 3:
                await stage.until(lambda dropped=dropped: proxy.dropped > dropped)  # type: ignore[misc]
        assert numbers(await taking) == wanted
    assert proxy.dropped > 5


@pytest.fixture(params=["valkey", "redis"])
def own_server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """One that keeps what it said it has, and that a test may kill."""
    binary = {"valkey": valkey_binary, "redis": redis_binary}[request.param]()
    if binary is None:
        pytest.skip(f"{request.param}-server is missing")
    directory = Path(tempfile.mkdtemp(prefix="ps-"))
    server = Server(binary, directory, "--appendonly", "yes", "--appendfsync", "always")
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(directory)


async def test_a_tail_that_is_closed_while_its_server_is_away_gives_its_page_back(own_server: Server) -> None:
    with own_server.client() as admin:
        for number in range(2000):
            admin.xadd("t", {"payload": str(number)})
    async with Penstock.connect(own_server.url) as app:
        in_trouble = asyncio.Event()
        app.listen(lambda event: in_trouble.set() if isinstance(event, events.Trouble) else None)
        async with app.tail("t", after="earliest") as tail:
            await anext(tail)
            own_server.kill()
            rest = asyncio.create_task(exhaust(tail))
            await in_trouble.wait()
            tail.close()
            await rest
        assert app._hub is not None
        assert not app._hub.pages._holders


async def exhaust(tail: Tail) -> None:
    async for _ in tail:
        pass


async def test_a_server_that_is_killed_and_comes_back_loses_and_repeats_nothing(own_server: Server) -> None:
    async with Penstock.connect(own_server.url, logs=None) as app:
        bus = app.bus("orders")

        async def send(number: int) -> None:
            message_id = f"00000000-0000-4000-8000-{number:012}"
            await healed(lambda: bus.publish({"n": number}, id=message_id), within=20)

        async with app.tail("orders") as tail, app.tail("orders", after="earliest") as other:
            taking = [asyncio.create_task(take(one, 60, within=40)) for one in (tail, other)]
            for number in range(60):
                if number in (20, 40):
                    own_server.kill()
                    own_server.start()
                await send(number)
            for items in await asyncio.gather(*taking):
                assert numbers(items) == list(range(60))


async def test_a_server_that_comes_back_older_is_told(own_server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """It lost what followers have seen: they learn of it, and see what comes, though its ids are not larger."""
    monkeypatch.setattr("penstock.tail.reader._LOOK_AGAIN", timedelta(milliseconds=50))
    async with Penstock.connect(own_server.url, logs=None) as app:
        with own_server.client() as admin:
            admin.xadd("orders", {"payload": '{"n": 0}'}, id="5-0")
            async with app.tail("orders", after="earliest") as tail:
                assert numbers(await take(tail, 1)) == [0]
                old = admin.dump("orders")
                admin.xadd("orders", {"payload": '{"n": 1}'}, id="9-0")
                assert numbers(await take(tail, 1)) == [1]
                admin.restore("orders", 0, old, replace=True)
                admin.xadd("orders", {"payload": '{"n": 2}'}, id="7-0")
                assert await next_gap(tail) == Gap("orders", "0-0", "9-0", None, "rolled back")
                admin.xadd("orders", {"payload": '{"n": 3}'}, id="8-0")
                assert numbers(await take(tail, 1)) == [3]
