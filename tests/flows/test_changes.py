"""A change stream: one message at a time, in order, again until it is acknowledged."""

import asyncio
import contextlib
import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis

from penstock import ChangeOptions, Changes, ChangeStreamError, Message, Penstock
from penstock.backend import keys
from penstock.errors import (
    AckOutOfSequenceError,
    ChangeMessageError,
    ChangesLostError,
    ChangeStreamIOError,
    ConfigurationError,
    LeaseLostError,
    ServerUnreachableError,
)
from penstock.events import GroupRestored, Handled, Lost
from tests.support.proxy import Proxy
from tests.support.stage import Stage
from tests.support.tailing import publish
from tests.support.waiting import blocked

BOTH = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)


@dataclass
class Renamed:
    name: str
    revision: int = 0


async def take(changes: Changes[Any], count: int, within: float = 10) -> list[int]:
    """The numbers of the next so many messages, each acknowledged."""
    numbers = []
    async with asyncio.timeout(within):
        while len(numbers) < count:
            change = await changes.recv()
            assert change is not None
            numbers.append(change.body["n"])
            await change.ack()
    return numbers


def position(stage: Stage, reader: str = "ledger") -> tuple[str, int, int]:
    """Where the server has the reader: id, how many up to there, how many behind."""
    for row in stage.admin.xinfo_groups(stage.topic):
        if row["name"].decode() == reader:
            return row["last-delivered-id"].decode(), row["entries-read"], row["lag"]
    return "", 0, 0


@BOTH
async def test_the_same_message_comes_again_until_it_is_acknowledged(stage: Stage) -> None:
    ids = await publish(stage, 0, 1)
    async with stage.app.changes(stage.topic, reader="ledger") as changes:
        first, again = await changes.recv(), await changes.recv()
        assert first is not None
        assert first is again
        assert (first.entry_id, first.body, first.topic, first.attempt) == (ids[0], {"n": 0}, stage.topic, 1)
        await changes.ack(first.entry_id)
        assert position(stage) == (ids[0], 1, 1)
        second = await changes.recv()
        assert second is not None
        assert second.entry_id == ids[1]
        assert second.token == first.token
        await changes.ack(second.id)  # by its UUID
        assert position(stage) == (ids[1], 2, 0)
        assert stage.admin.xpending(stage.topic, "ledger")["pending"] == 0


async def test_what_comes_is_given_as_it_comes(stage: Stage) -> None:
    async with stage.app.changes(stage.topic, reader="ledger") as changes:
        waiting = asyncio.create_task(take(changes, 30))
        await blocked(stage.admin)
        await publish(stage, *range(30))
        assert await waiting == list(range(30))


async def test_anything_else_than_the_message_in_hand_is_out_of_sequence(stage: Stage) -> None:
    ids = await publish(stage, 0, 1, 2)
    async with stage.app.changes(stage.topic, reader="ledger") as changes:
        with pytest.raises(AckOutOfSequenceError, match="no message"):
            await changes.ack(ids[0])  # nobody was given it yet
        first = await changes.recv()
        assert first is not None
        for wrong in (ids[1], ids[2], "", "x", Message(1).id):
            with pytest.raises(AckOutOfSequenceError) as caught:
                await changes.ack(wrong)
            assert (caught.value.expected, caught.value.actual) == (wrong, ids[0])
            assert isinstance(caught.value, ChangeStreamError)
        assert position(stage) == ("0-0", 0, 3)
        await first.ack()
        with pytest.raises(AckOutOfSequenceError):
            await first.ack()
        assert position(stage)[0] == ids[0]


async def test_iterating_is_receiving_and_ends_when_it_is_closed(stage: Stage) -> None:
    await publish(stage, *range(4))
    seen = []
    async with stage.app.changes(stage.topic, reader="ledger") as changes:
        async for change in changes:
            seen.append(change.body["n"])
            if len(seen) % 2 == 0:  # each comes twice: what is not acknowledged comes again
                await change.ack()
            if len(seen) == 8:
                await changes.aclose()
        assert await changes.recv() is None
    assert seen == [0, 0, 1, 1, 2, 2, 3, 3]


@BOTH
async def test_it_goes_on_where_it_was(stage: Stage) -> None:
    ids = await publish(stage, *range(10))
    async with stage.app.changes(stage.topic, reader="ledger") as changes:
        assert await take(changes, 6) == list(range(6))
        await changes.recv()  # and not acknowledged
    async with stage.app.changes(stage.topic, reader="ledger", start="latest") as changes:
        assert await take(changes, 4) == [6, 7, 8, 9]
    assert position(stage) == (ids[-1], 10, 0)


async def test_readers_are_independent_and_begin_where_they_say(stage: Stage) -> None:
    for second in range(1, 6):
        stage.admin.xadd(stage.topic, {"payload": f'{{"n": {second}}}'}, id=f"{second}000-0")
    begin = datetime(1970, 1, 1, 0, 0, 3, tzinfo=UTC)
    starts = {"a": ("earliest", [1, 2, 3, 4, 5]), "b": ("3000-0", [4, 5]), "c": (begin, [3, 4, 5]), "d": ("latest", [])}
    for reader, (start, expected) in starts.items():
        async with stage.app.changes(stage.topic, reader=reader, start=start) as changes:
            assert await take(changes, len(expected)) == expected
            waiting = asyncio.create_task(take(changes, 1))
            await stage.until(lambda name=reader: any(one["name"] == name.encode() for one in groups(stage)))
            stage.admin.xadd(stage.topic, {"payload": '{"n": 9}'}, id=f"{6000 + ord(reader)}-0")
            assert await waiting == [9]
        stage.admin.xdel(stage.topic, f"{6000 + ord(reader)}-0")


def groups(stage: Stage) -> list[Any]:
    found: list[Any] = stage.admin.xinfo_groups(stage.topic)
    return found


async def test_a_typed_stream_gives_its_type_whether_or_not_the_entry_names_it(stage: Stage) -> None:
    changes = stage.app.changes(stage.topic, of=Renamed, reader="ledger")
    receipt = await changes.publish(Renamed("a", 7), key="k", headers={"h": "1"})
    stage.add_raw({"payload": '{"name": "b"}'})
    async with changes:
        first = await changes.recv()
        assert first is not None
        assert first.body == first.data == Renamed("a", 7)
        assert (first.id, first.entry_id) == (receipt.id, receipt.entry_id)
        assert (first.type, first.key, first.headers) == ("Renamed", "k", {"h": "1"})
        await first.ack()
        second = await changes.recv()
        assert second is not None
        assert second.body == Renamed("b", 0)


async def test_trace_context_and_the_time_of_enqueueing_come_along(stage: Stage) -> None:
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    before = datetime.now(UTC)
    await stage.app.bus(stage.topic).publish(Message({"n": 1}, traceparent=parent, tracestate="a=b"))
    async with stage.app.changes(stage.topic, reader="ledger") as changes:
        change = await changes.recv()
        assert change is not None
        assert (change.trace_parent, change.trace_state) == (parent, "a=b")
        enqueued = datetime.fromtimestamp(change.enqueue_time / 1e9, UTC)
        assert abs(enqueued - before) < timedelta(seconds=10)


async def test_it_reads_ahead_no_further_than_its_buffer(stage: Stage, proxy: Proxy) -> None:
    ids = await publish(stage, *range(50))
    async with Penstock.connect(proxy.url) as app:
        options = ChangeOptions(buffer_size=5, fetch_batch_size=3)
        async with app.changes(stage.topic, reader="ledger", options=options) as changes:
            assert await take(changes, 1) == [0]
            ahead = changes._reading.tenure.ahead
            await stage.until(lambda: len(ahead) >= 3)
            for number in range(1, 20):
                assert await take(changes, 1) == [number]
                assert len(ahead) <= 5
    assert position(stage)[0] == ids[19]
    assert position(stage)[2] == 30


async def test_it_reads_ahead_no_more_bytes_than_it_may_however_large_the_first_entries_are(stage: Stage) -> None:
    payload = json.dumps("x" * 512 * 1024)
    for _ in range(60):
        stage.add_raw({"payload": payload})
    async with stage.app.changes(stage.topic, reader="ledger") as changes:
        await stage.until(lambda: changes._reading.tenure and len(changes._reading.tenure.ahead))
        tenure = changes._reading.tenure
        assert tenure is not None
        await stage.until(lambda: len(tenure.ahead) >= 32)
        assert len(tenure.ahead) <= 34, "16 MiB, and what was read last"


async def test_an_entry_that_cannot_be_read_stops_the_stream_until_it_is_acknowledged(stage: Stage) -> None:
    await publish(stage, 0)
    bad = stage.add_raw({"payload": "{not json"})
    await publish(stage, 1)
    async with stage.app.changes(stage.topic, reader="ledger") as changes:
        assert await take(changes, 1) == [0]
        for _ in range(3):
            with pytest.raises(ChangeMessageError, match=bad) as caught:
                await changes.recv()
            assert caught.value.id == bad
            assert caught.value.error.raw == (b"payload", b"{not json")
        await changes.ack(bad)
        assert await take(changes, 1) == [1]


async def test_a_message_of_another_type_is_not_passed_by(stage: Stage) -> None:
    await stage.app.bus(stage.topic).publish(Message({"n": 1}, type="Other"))
    async with stage.app.changes(stage.topic, of=Renamed, reader="ledger") as changes:
        with pytest.raises(ChangeMessageError, match="of type 'Other'"):
            await changes.recv()


async def test_who_asks_for_the_same_over_and_over_is_made_to_wait(stage: Stage) -> None:
    await publish(stage, 0)
    async with stage.app.changes(stage.topic, reader="ledger") as changes:
        began = asyncio.get_running_loop().time()
        for _ in range(6):  # and longer from one to the next
            assert await changes.recv() is not None
        assert asyncio.get_running_loop().time() - began > 0.15
        assert await take(changes, 1) == [0]


@BOTH
async def test_coalesced_acks_reach_the_server_by_themselves_and_when_it_is_closed(stage: Stage) -> None:
    ids = await publish(stage, *range(30))
    async with stage.app.changes(stage.topic, reader="ledger", coalesce=8) as changes:
        for number in range(25):
            assert await take(changes, 1) == [number]
            known = position(stage)[0]
            confirmed = ids.index(known) + 1 if known in ids else 0
            assert number + 1 - confirmed <= 8
        await stage.until(lambda: position(stage)[0] == ids[24])
        await stage.until(lambda: sum(one.count for one in stage.told(Handled, "ledger")) == 25)
        assert await take(changes, 2) == [25, 26]
    assert position(stage) == (ids[26], 27, 3)
    assert sum(one.count for one in stage.told(Handled, "ledger")) == 27


async def test_what_is_handled_is_told_together_also_when_nothing_more_comes(stage: Stage) -> None:
    await publish(stage, *range(50))
    async with stage.app.changes(stage.topic, reader="ledger") as changes:
        began = asyncio.get_running_loop().time()
        assert await take(changes, 50, within=20) == list(range(50))
        await stage.until(lambda: sum(one.count for one in stage.told(Handled, "ledger")) == 50)
        tenths = (asyncio.get_running_loop().time() - began) / 0.1
        assert len(stage.told(Handled, "ledger")) <= 1 + tenths


async def test_the_last_coalesced_acks_reach_the_server_however_many_there_are(stage: Stage) -> None:
    async with stage.app.changes(stage.topic, reader="ledger", coalesce=8) as changes:
        for count in range(1, 30):
            ids = await publish(stage, *range(count))
            for number in range(count):
                change = await changes.recv()
                assert change is not None
                if number % 3 == 0:
                    await asyncio.sleep(0)  # an earlier flush may be on its way, or not
                await change.ack()
            await stage.until(lambda last=ids[-1]: position(stage)[0] == last)


async def test_a_lost_answer_to_an_ack_is_no_second_ack(stage: Stage, proxy: Proxy) -> None:
    ids = await publish(stage, *range(5))
    async with Penstock.connect(proxy.url) as app, app.changes(stage.topic, reader="ledger") as changes:
        assert await take(changes, 2) == [0, 1]
        change = await changes.recv()
        assert change is not None
        proxy.drop_reply_to("EVALSHA")
        await change.ack()
        assert proxy.dropped == 1
        assert position(stage) == (ids[2], 3, 2)
        assert await take(changes, 2) == [3, 4]


async def test_a_cancelled_ack_can_be_given_again(stage: Stage, proxy: Proxy) -> None:
    ids = await publish(stage, *range(3))
    async with Penstock.connect(proxy.url) as app, app.changes(stage.topic, reader="ledger") as changes:
        change = await changes.recv()
        assert change is not None
        proxy.stall()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await change.ack()
        proxy.flow()
        assert await changes.recv() is change
        await change.ack()
        assert position(stage) == (ids[0], 1, 2)
        assert await take(changes, 2) == [1, 2]


async def test_an_ack_that_cannot_be_sent_says_so_and_can_be_given_again(
    stage: Stage, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = await publish(stage, *range(3))
    async with Penstock.connect(proxy.url) as app, app.changes(stage.topic, reader="ledger") as changes:
        change = await changes.recv()
        assert change is not None
        monkeypatch.setattr("penstock.backend.redis.links._PATIENCE_SECONDS", 0.1)
        proxy.refusing = True
        proxy.cut()
        with pytest.raises(ChangeStreamIOError, match=f"{ids[0]} in topic '{stage.topic}'") as caught:
            await change.ack()
        assert isinstance(caught.value.__cause__, ServerUnreachableError)
        assert position(stage)[1] == 0
        monkeypatch.undo()
        proxy.refusing = False
        assert await changes.recv() is change
        await change.ack()
        assert position(stage) == (ids[0], 1, 2)
        assert await take(changes, 2) == [1, 2]


async def test_a_server_that_is_away_is_waited_for(stage: Stage, proxy: Proxy) -> None:
    await publish(stage, *range(3))
    async with Penstock.connect(proxy.url) as app, app.changes(stage.topic, reader="ledger") as changes:
        assert await take(changes, 3) == [0, 1, 2]
        waiting = asyncio.create_task(take(changes, 2))
        proxy.refusing = True
        proxy.cut()
        await stage.until(lambda: proxy.refused > 1)
        await publish(stage, 3, 4)
        proxy.refusing = False
        assert await waiting == [3, 4]


async def test_what_is_no_stream_is_refused_by_recv_and_never_in_a_hot_loop(stage: Stage) -> None:
    stage.admin.set(stage.topic, "x")
    async with stage.app.changes(stage.topic, reader="ledger") as changes:
        refused, end = 0, asyncio.get_running_loop().time() + 0.6
        while asyncio.get_running_loop().time() < end:
            with pytest.raises(ChangeStreamIOError, match="not a stream"):
                await changes.recv()
            refused += 1
        assert 1 <= refused < 10
        stage.admin.delete(stage.topic)
        await publish(stage, 0)
        async with asyncio.timeout(10):
            while True:
                try:
                    change = await changes.recv()
                except ChangeStreamIOError:
                    continue
                break
        assert change is not None
        assert change.body == {"n": 0}


async def test_a_group_that_consumers_read_with_is_no_reader(stage: Stage) -> None:
    await publish(stage, 0)
    stage.admin.xgroup_create(stage.topic, "ledger", "0")
    stage.admin.xreadgroup("ledger", "c", {stage.topic: ">"}, count=1)
    async with stage.app.changes(stage.topic, reader="ledger") as changes:
        with pytest.raises(ChangeStreamIOError, match="a name of its own"):
            await changes.recv()


@BOTH
async def test_what_was_trimmed_before_it_was_read_is_told_and_must_be_accepted(stage: Stage) -> None:
    ids = await publish(stage, *range(10))
    async with stage.app.changes(stage.topic, reader="ledger") as changes:
        assert await take(changes, 2) == [0, 1]
    stage.admin.xtrim(stage.topic, minid=ids[5], approximate=False)
    async with stage.app.changes(stage.topic, reader="ledger") as changes:
        for _ in range(2):
            with pytest.raises(ChangesLostError) as caught:
                await changes.recv()
        assert (caught.value.after, caught.value.count, caught.value.reason) == (ids[1], 3, "trimmed")
        await changes.accept_loss()
        assert await take(changes, 5) == [5, 6, 7, 8, 9]
    assert position(stage) == (ids[-1], 10, 0)
    assert [one.count for one in stage.told(Lost)] == [3]


@BOTH
async def test_a_stream_that_was_made_anew_is_told_whoever_comes(stage: Stage) -> None:
    await publish(stage, *range(4))
    async with stage.app.changes(stage.topic, reader="ledger") as changes:
        assert await take(changes, 2) == [0, 1]
        stage.admin.delete(stage.topic)
        ids = await publish(stage, 10, 11)
    for _ in range(2):  # it is not forgotten until somebody accepts it
        async with stage.app.changes(stage.topic, reader="ledger") as changes:
            with pytest.raises(ChangesLostError, match="recreated"):
                await changes.recv()
    async with stage.app.changes(stage.topic, reader="ledger") as changes:
        with pytest.raises(ChangesLostError):
            await changes.recv()
        await changes.accept_loss()
        assert await take(changes, 2) == [10, 11]
    assert position(stage) == (ids[-1], 2, 0)


async def test_a_stream_that_goes_away_under_a_reader_is_told(stage: Stage) -> None:
    await publish(stage, *range(4))
    async with stage.app.changes(stage.topic, reader="ledger") as changes:
        assert await take(changes, 4) == [0, 1, 2, 3]
        stage.admin.delete(stage.topic)
        await publish(stage, 10)
        with pytest.raises(ChangesLostError):
            async with asyncio.timeout(10):
                await changes.recv()
        await changes.accept_loss()
        assert await take(changes, 1) == [10]


@BOTH
async def test_a_full_server_is_drained_by_who_comes_anew(stage: Stage) -> None:
    await publish(stage, 0, 1)
    stage.admin.config_set("maxmemory", 1)
    try:
        async with stage.app.changes(stage.topic, reader="ledger") as changes:
            assert await take(changes, 2) == [0, 1]
    finally:
        stage.admin.config_set("maxmemory", 0)


@BOTH
async def test_a_start_that_is_not_reached_yet_is_the_end(stage: Stage) -> None:
    await publish(stage, 0)
    later = datetime.now(UTC) + timedelta(minutes=1)
    async with (
        stage.app.changes(stage.topic, reader="ledger", start=later) as changes,
        stage.app.changes(f"{stage.topic}:empty", reader="ledger", start="99999999999999-0") as empty,
    ):
        await stage.until(lambda: changes._reading.tenure and empty._reading.tenure)
        await publish(stage, 1)
        await empty.publish({"n": 2})
        assert await take(changes, 1) == [1]
        assert await take(empty, 1) == [2]
    assert position(stage)[1:] == (2, 0)


@BOTH
@pytest.mark.parametrize("was_idle", [False, True])
async def test_a_server_that_forgot_everything_is_read_on_from_its_beginning(stage: Stage, was_idle: bool) -> None:
    forgotten = stage.topic, keys.turn(stage.topic, "ledger")
    async with stage.app.changes(stage.topic, reader="ledger") as earlier:
        await earlier.unsubscribe()
    async with stage.app.changes(stage.topic, reader="ledger", start="latest") as changes:
        await stage.until(lambda: changes._reading.tenure)
        if not was_idle:
            await publish(stage, 0)
            assert await take(changes, 1) == [0]
        stage.admin.delete(*forgotten)
        await publish(stage, 10, 11)
        numbers: list[int] = []
        async with asyncio.timeout(15):
            while numbers[-2:] != [10, 11]:
                with contextlib.suppress(LeaseLostError):  # the turn is forgotten, too
                    try:
                        numbers += await take(changes, 1)
                    except ChangesLostError:
                        await changes.accept_loss()
    assert set(numbers) == {10, 11}
    assert {one.reason for one in stage.told(Lost)} == {"recreated"}


async def test_a_group_that_was_destroyed_is_made_again_where_it_was(stage: Stage) -> None:
    ids = await publish(stage, *range(4))
    async with stage.app.changes(stage.topic, reader="ledger") as changes:
        assert await take(changes, 2) == [0, 1]
        change = await changes.recv()
        assert change is not None
        stage.admin.xgroup_destroy(stage.topic, "ledger")
        with pytest.raises(ChangeStreamIOError):
            await change.ack()
        assert await take(changes, 2) == [2, 3]
    assert position(stage) == (ids[-1], 4, 0)
    assert [one.start for one in stage.told(GroupRestored)] == [ids[1]]


async def test_a_position_that_was_moved_by_hand_is_obeyed(stage: Stage) -> None:
    ids = await publish(stage, *range(6))
    async with stage.app.changes(stage.topic, reader="ledger") as changes:
        assert await take(changes, 4) == [0, 1, 2, 3]
        change = await changes.recv()
        assert change is not None
        stage.admin.xgroup_setid(stage.topic, "ledger", ids[0])
        with pytest.raises(AckOutOfSequenceError):
            await change.ack()
        assert await take(changes, 5) == [1, 2, 3, 4, 5]


@BOTH
async def test_unsubscribing_forgets_the_reader_everywhere(stage: Stage) -> None:
    await publish(stage, *range(4))
    async with stage.another() as other:
        standing_by = other.app.changes(stage.topic, reader="ledger")
        async with stage.app.changes(stage.topic, reader="ledger") as changes:
            assert await take(changes, 2) == [0, 1]
            waiting = asyncio.create_task(standing_by.recv())
            await stage.until(lambda: standing_by._reading._unsubscriptions is not None)
            await changes.unsubscribe()
            assert await changes.recv() is None
            async with asyncio.timeout(20):
                assert await waiting is None
        assert not [one for one in groups(stage) if one["name"] == b"ledger"]
        async with stage.app.changes(stage.topic, reader="ledger") as anew:
            assert await take(anew, 4) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "terms",
    [
        {"reader": ""},
        {"reader": "penstock"},
        {"reader": "r", "start": "now"},
        {"reader": "r", "coalesce": 0},
        {"reader": "r", "lease": timedelta(0)},
        {"reader": "r", "of": int},
        {"reader": "r", "options": 3},
    ],
)
async def test_terms_that_cannot_work_are_refused_where_they_are_written(stage: Stage, terms: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        stage.app.changes(stage.topic, **terms)
    with pytest.raises(ConfigurationError):
        ChangeOptions(buffer_size=0)


async def test_a_closed_app_closes_its_streams_and_their_turns(stage: Stage) -> None:
    await publish(stage, 0)
    async with stage.another() as other:
        changes = other.app.changes(stage.topic, reader="ledger")
        assert await changes.recv() is not None
    assert stage.admin.hget(keys.turn(stage.topic, "ledger"), "holder") is None
    assert await changes.recv() is None


async def test_the_old_change_is_worth_nothing_once_the_turn_was_lost(stage: Stage, admin: "redis.Redis") -> None:
    await publish(stage, 0, 1)
    async with stage.app.changes(stage.topic, reader="ledger") as changes:
        old = await changes.recv()
        assert old is not None
        admin.hincrby(keys.turn(stage.topic, "ledger"), "token", 1)
        with pytest.raises(LeaseLostError):
            await old.ack()
        assert position(stage)[0] == "0-0"
        admin.hdel(keys.turn(stage.topic, "ledger"), "holder")
        again = await changes.recv()
        assert again is not None
        assert (again.entry_id, again.token > old.token) == (old.entry_id, True)
        with pytest.raises(LeaseLostError):
            await old.ack()
        await again.ack()
