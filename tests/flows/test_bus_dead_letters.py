"""Dead letters: seen, chosen, given back to the group that gave them up, or thrown away."""

import asyncio
import json
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from penstock import Bus, Delivery, Letter, Receipt, Reject, Retry, events
from penstock.backend import keys
from penstock.delivery.letters import DeadLetters
from penstock.errors import ConfigurationError, EncodeError
from penstock.events import Listeners
from penstock.message.ids import canonical, foreign_id, new_id
from penstock.message.wire import Wire
from tests.support.stage import Stage

BOTH = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)
ONCE = Retry(attempts=1)


class Morgue:
    """A group whose handler rejects everything until it is told otherwise, and notes what it was given."""

    def __init__(self, stage: Stage, group: str = "g") -> None:
        self.stage = stage
        self.bus: Bus = stage.bus(group, retry=ONCE)
        self.rejects = True
        self.seen: list[Delivery[Any]] = []
        self.bus.on(dict)(self.handle)

    async def handle(self, event: Delivery[Any]) -> None:
        self.seen.append(event)
        if self.rejects:
            raise Reject(f"no. {event.body['n']} is no good")

    async def fill(self, count: int) -> list[Receipt]:
        """That many dead letters of this group, and nothing noted yet."""
        receipts = await self.bus.publish_many([{"n": n} for n in range(count)])
        async with self.stage.running(self.bus):
            await self.stage.settled(str(self.bus.group))
        self.seen.clear()
        self.rejects = False
        return [one for one in receipts if isinstance(one, Receipt)]

    async def letters(self) -> list[Letter]:
        return [letter async for letter in self.bus.dead]

    async def run(self) -> list[tuple[int, int]]:
        """(n, attempt) of everything that is delivered now."""
        async with self.stage.running(self.bus):
            await self.stage.settled(str(self.bus.group))
        return sorted((event.body["n"], event.attempt) for event in self.seen)


@BOTH
async def test_letters_come_oldest_first_and_can_be_looked_up(stage: Stage) -> None:
    morgue = Morgue(stage)
    receipts = await morgue.fill(5)
    letters = await morgue.letters()
    assert [letter.id for letter in letters] == [receipt.id for receipt in receipts]
    assert [letter.entry_id for letter in letters] == [receipt.entry_id for receipt in receipts]
    assert [letter.reason for letter in letters] == [f"no. {n} is no good" for n in range(5)]
    dead = morgue.bus.dead
    assert await dead.count() == 5
    assert await dead.get(str(receipts[3].id)) == letters[3]
    assert await dead.get(letters[2].letter_id) == letters[2]
    assert await dead.get(new_id()) is None
    assert await dead.get("nonsense") is None


async def test_many_letters_of_several_groups_are_all_found_by_their_own_group(stage: Stage) -> None:
    first, second = Morgue(stage, "first"), Morgue(stage, "second")
    await first.bus.publish_many([{"n": n} for n in range(330)])
    async with stage.running(first.bus, second.bus):
        await stage.settled("first", "second")
    assert stage.admin.xlen(keys.dead(stage.topic)) == 660
    for morgue, group in ((first, "first"), (second, "second")):
        letters = await morgue.letters()
        assert {letter.group for letter in letters} == {group}
        numbers = [json.loads(letter.raw[letter.raw.index(b"payload") + 1])["n"] for letter in letters]
        assert sorted(numbers) == list(range(330))
        died = [tuple(map(int, letter.letter_id.split("-"))) for letter in letters]
        assert died == sorted(died), "not oldest first"
        assert await morgue.bus.dead.count() == 330


@BOTH
async def test_a_replayed_letter_is_a_first_attempt_of_the_same_message_for_its_group_alone(stage: Stage) -> None:
    morgue, other = Morgue(stage, "billing"), Morgue(stage, "audit")
    receipts = await morgue.fill(3)
    await other.fill(0)
    other.seen.clear()
    before = stage.admin.xlen(stage.topic)
    report = await morgue.bus.dead.replay(ids=[receipts[1].id])
    assert (report.matched, report.replayed, report.gone, report.refused) == (1, 1, 0, {})
    assert canonical(report.replay_id) == report.replay_id
    async with stage.running(morgue.bus, other.bus):
        await stage.settled("billing", "audit")
    (event,) = morgue.seen
    assert (event.id, event.entry_id, event.attempt, event.body) == (receipts[1].id, receipts[1].entry_id, 1, {"n": 1})
    assert other.seen == []
    assert stage.admin.xlen(stage.topic) == before
    assert [letter.id for letter in await morgue.letters()] == [receipts[0].id, receipts[2].id]
    assert await other.bus.dead.count() == 3
    (told,) = stage.told(events.Replayed)
    assert (told.replay_id, told.count, told.group) == (report.replay_id, 1, "billing")


async def test_letters_are_chosen_by_ids_by_a_filter_or_all(stage: Stage) -> None:
    morgue = Morgue(stage)
    receipts = await morgue.fill(9)
    letters = await morgue.letters()
    dead = morgue.bus.dead
    assert (await dead.replay(ids=[receipts[0].id, letters[1].letter_id, new_id()])).replayed == 2
    assert (await dead.replay(where=lambda letter: "no. 3" in letter.reason)).replayed == 1
    assert await morgue.run() == [(0, 1), (1, 1), (3, 1)]
    assert (await dead.replay()).replayed == 6
    assert await dead.count() == 0
    assert await morgue.run() == [(n, 1) for n in range(9)]


async def test_an_empty_choice_chooses_nothing(stage: Stage) -> None:
    morgue = Morgue(stage)
    await morgue.fill(3)
    dead = morgue.bus.dead
    report = await dead.replay(ids=[])
    assert (report.matched, report.replayed) == (0, 0)
    assert await dead.purge(ids=[]) == 0
    assert await dead.count() == 3
    for act in (dead.replay, dead.purge):
        with pytest.raises(ConfigurationError, match="both"):
            await act(ids=[new_id()], where=lambda _: True)
    with pytest.raises(ConfigurationError, match="which"):
        await dead.purge()
    assert await dead.count() == 3


async def test_one_id_need_not_be_a_list(stage: Stage) -> None:
    morgue = Morgue(stage)
    receipts = await morgue.fill(3)
    assert (await morgue.bus.dead.replay(ids=receipts[0].id)).replayed == 1
    assert await morgue.bus.dead.purge(ids=receipts[1].id) == 1
    assert [letter.id for letter in await morgue.letters()] == [receipts[2].id]


async def test_a_dry_run_changes_nothing(stage: Stage) -> None:
    morgue = Morgue(stage)
    await morgue.fill(4)
    dead = morgue.bus.dead
    letters = await morgue.letters()
    report = await dead.replay(where=lambda letter: letter.reason != "no. 0 is no good", dry_run=True)
    assert (report.matched, report.replayed) == (3, 0)
    assert await dead.purge(where=lambda letter: "no. 1" in letter.reason, dry_run=True) == 1
    assert await morgue.letters() == letters
    assert await morgue.run() == []
    assert stage.told(events.Replayed) == []


async def test_a_replay_is_no_faster_than_its_rate(stage: Stage) -> None:
    morgue = Morgue(stage)
    await morgue.fill(20)
    loop = asyncio.get_running_loop()
    began = loop.time()
    report = await morgue.bus.dead.replay(rate=50)
    assert report.replayed == 20
    # 20 at 50 a second; the last handful may come without a wait after it.
    assert loop.time() - began >= 0.3


async def test_a_replay_does_not_wait_for_nothing(stage: Stage) -> None:
    morgue = Morgue(stage)
    await morgue.fill(2)
    (first, _) = await morgue.letters()
    async with asyncio.timeout(20):
        assert (await morgue.bus.dead.replay(ids=first.letter_id, rate=0.01)).replayed == 1
        assert (await morgue.bus.dead.replay(rate=10**400)).replayed == 1


@pytest.mark.parametrize("rate", [0, -1, float("nan"), float("inf"), "5"])
async def test_a_rate_is_a_number_above_nothing(stage: Stage, rate: Any) -> None:
    morgue = Morgue(stage)
    await morgue.fill(1)
    with pytest.raises(ConfigurationError, match="rate"):
        await morgue.bus.dead.replay(rate=rate)
    assert await morgue.bus.dead.count() == 1


@BOTH
async def test_a_replay_that_is_cancelled_leaves_each_letter_in_one_place(stage: Stage) -> None:
    morgue = Morgue(stage)
    await morgue.fill(12)
    replaying = asyncio.create_task(morgue.bus.dead.replay(rate=10))
    await stage.until(lambda: len(stage.told(events.Replayed)) >= 3)
    replaying.cancel()
    with pytest.raises(asyncio.CancelledError):
        await replaying
    again = await morgue.run()
    left = [json.loads(letter.raw[letter.raw.index(b"payload") + 1])["n"] for letter in await morgue.letters()]
    assert 3 <= len(again) < 12
    assert sorted([*left, *[n for n, _ in again]]) == list(range(12))


async def test_two_who_replay_at_the_same_time_replay_each_letter_once(stage: Stage) -> None:
    morgue = Morgue(stage)
    await morgue.fill(150)
    reports = await asyncio.gather(*[morgue.bus.dead.replay() for _ in range(3)])
    assert sum(report.replayed for report in reports) == 150
    assert await morgue.run() == [(n, 1) for n in range(150)]


@BOTH
async def test_what_dies_again_says_which_replay_it_came_from(stage: Stage) -> None:
    morgue = Morgue(stage)
    (receipt,) = await morgue.fill(1)
    (letter,) = await morgue.letters()
    assert not letter.replay
    ids = []
    for _ in range(2):
        morgue.rejects = True
        report = await morgue.bus.dead.replay(ids=[receipt.id])
        assert await morgue.run()
        (letter,) = await morgue.letters()
        assert (letter.replay, letter.id, letter.entry_id) == (report.replay_id, receipt.id, receipt.entry_id)
        ids.append(report.replay_id)
    assert len(set(ids)) == 2


async def test_a_replay_keeps_its_id_through_retries(stage: Stage) -> None:
    bus, seen = stage.bus(retry=Retry(attempts=2, initial=timedelta(milliseconds=5), jitter=False)), []

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        seen.append(event.attempt)
        raise ValueError

    async with stage.running(bus):
        await bus.publish({})
        await stage.settled()
        report = await bus.dead.replay()
        await stage.settled()
        (letter,) = [letter async for letter in bus.dead]
    assert seen == [1, 2, 1, 2]
    assert (letter.replay, letter.attempts) == (report.replay_id, 2)


async def test_replaying_everything_ends_though_everything_dies_again(stage: Stage) -> None:
    morgue = Morgue(stage)
    await morgue.fill(130)
    morgue.rejects = True
    async with stage.running(morgue.bus):
        async with asyncio.timeout(10):
            report = await morgue.bus.dead.replay()
        await stage.settled()
    assert report.replayed == 130
    assert await morgue.bus.dead.count() == 130


async def test_a_replay_waits_for_a_worker_and_needs_no_entry_in_the_topic(stage: Stage) -> None:
    morgue = Morgue(stage)
    await morgue.fill(2)
    stage.admin.xtrim(stage.topic, maxlen=0)
    assert (await morgue.bus.dead.replay()).replayed == 2
    assert await morgue.bus.dead.count() == 0
    assert await morgue.run() == [(0, 1), (1, 1)]


@BOTH
async def test_purged_letters_are_gone_and_others_are_not(stage: Stage) -> None:
    morgue, other = Morgue(stage), Morgue(stage, "other")
    receipts = await morgue.fill(6)
    await other.fill(0)
    dead = morgue.bus.dead
    assert await dead.purge(ids=[receipts[0].id, receipts[1].id]) == 2
    assert await dead.purge(where=lambda letter: letter.id == receipts[2].id) == 1
    assert [letter.id for letter in await morgue.letters()] == [receipt.id for receipt in receipts[3:]]
    assert await dead.purge(where=lambda _: True) == 3
    assert await dead.count() == 0
    assert await other.bus.dead.count() == 6
    assert (await dead.replay()).replayed == 0


async def test_a_filter_that_fails_changes_nothing(stage: Stage) -> None:
    morgue = Morgue(stage)
    await morgue.fill(3)

    def where(letter: Letter) -> bool:
        raise LookupError("the filter's own")

    for act in (morgue.bus.dead.replay, morgue.bus.dead.purge):
        with pytest.raises(LookupError):
            await act(where=where)
    assert await morgue.bus.dead.count() == 3


class Order(msgspec.Struct):
    n: int


class FixedOrder(msgspec.Struct):
    n: int | str
    message_type = "Order"


@BOTH
async def test_a_malformed_letter_can_be_replayed_to_code_that_understands_it(stage: Stage) -> None:
    bus, seen = stage.bus(retry=ONCE), []
    bus.on(Order)(lambda event: seen.append(event.body))
    id = new_id()
    async with stage.running(bus):
        stage.add_raw({"id": id, "type": "Order", "payload": '{"n":"seven"}'})
        stage.add_raw({"junk": b"\xff"})
        await stage.settled()
        letters = [letter async for letter in bus.dead]
        assert [letter.attempts for letter in letters] == [1, 1]
        report = await bus.dead.replay()
        await stage.settled()
        again = [letter async for letter in bus.dead]
    assert report.replayed + len(report.refused) == 2
    assert sorted(letter.raw for letter in again) == sorted(letter.raw for letter in letters)
    assert seen == []
    async with stage.another() as later:
        fixed = later.bus(retry=ONCE)
        fixed.on(FixedOrder)(lambda event: seen.append((event.id, event.body)))
        async with later.running(fixed):
            await fixed.dead.replay(where=lambda letter: b"Order" in letter.raw)
            await later.settled()
            assert [letter.raw async for letter in fixed.dead] == [[b"junk", b"\xff"]]
    assert seen == [(id, FixedOrder("seven"))]


@pytest.mark.parametrize("payload", ["not json", '{"n":"seven"}'])
async def test_a_letter_tells_its_id_also_when_only_its_payload_is_malformed(stage: Stage, payload: str) -> None:
    bus, id = stage.bus(retry=ONCE), new_id()
    bus.on(Order)(lambda event: None)
    async with stage.running(bus):
        stage.add_raw({"id": id.upper(), "type": "Order", "payload": payload})
        stage.add_raw({"id": "no. 7", "type": "Order", "payload": payload})
        stage.add_raw({"type": "Order", "payload": payload})
        await stage.settled()
        letters = [letter async for letter in bus.dead]
        assert [letter.id for letter in letters] == [id, foreign_id(stage.topic, b"no. 7"), None]
        assert await bus.dead.get(id) == letters[0]
        assert (await bus.dead.replay(ids=[id], dry_run=True)).matched == 1


async def test_where_an_id_is_data_a_malformed_letter_has_none(stage: Stage) -> None:
    stage.app.use_wire(stage.topic, Wire("flat"))
    bus = stage.bus(retry=ONCE)
    bus.on(Order)(lambda event: None)
    async with stage.running(bus):
        stage.add_raw({"_id": new_id(), "_type": "Order", "id": new_id(), "payload": "x", "n": "seven"})
        await stage.settled()
        assert [letter.id async for letter in bus.dead] == [None]


async def test_junk_among_the_dead_letters_disturbs_nobody(stage: Stage) -> None:
    morgue = Morgue(stage)
    stage.admin.xadd(keys.dead(stage.topic), {"written": "by hand"})
    stage.admin.xadd(keys.dead(stage.topic), {b"penstock-dead": b"\xff{", b"payload": b"{}"})
    receipts = await morgue.fill(2)
    stage.admin.xadd(keys.dead(stage.topic), {b"penstock-dead": b"[]"})
    assert [letter.id for letter in await morgue.letters()] == [receipt.id for receipt in receipts]
    assert (await morgue.bus.dead.replay()).replayed == 2
    assert await morgue.run() == [(0, 1), (1, 1)]
    assert stage.admin.xlen(keys.dead(stage.topic)) == 3


async def test_the_letters_of_a_bus_of_several_topics_are_those_of_each(stage: Stage) -> None:
    topics = [f"{stage.topic}:1", f"{stage.topic}:2"]
    bus, seen = stage.app.bus(topics, group="g", retry=ONCE), []

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        seen.append((event.topic, event.attempt))
        if len(seen) <= 2:
            raise ValueError

    async with stage.running(bus):
        for topic in topics:
            await bus.publish_many([{}], topic=topic)
            await stage.settled(topic=topic)
        assert [letter.topic async for letter in bus.dead] == topics
        assert (await bus.dead.replay()).replayed == 2
        for topic in topics:
            await stage.settled(topic=topic)
    assert sorted(seen) == sorted([(topic, 1) for topic in topics] * 2)


def of_all_groups(stage: Stage) -> DeadLetters:
    return DeadLetters(lambda: stage.app.backend, {stage.topic: Wire()}, None, Listeners())


async def test_letters_of_all_groups_are_each_given_back_to_their_own(stage: Stage) -> None:
    first, second = Morgue(stage, "first"), Morgue(stage, "second")
    await first.bus.publish_many([{"n": n} for n in range(3)])
    async with stage.running(first.bus, second.bus):
        await stage.settled("first", "second")
    for morgue in (first, second):
        morgue.seen.clear()
        morgue.rejects = False
    stage.admin.xadd(keys.dead(stage.topic), {"junk": "1"})
    dead = of_all_groups(stage)
    assert await dead.count() == 7
    report = await dead.replay()
    assert (report.matched, report.replayed, report.gone) == (7, 6, 0)
    ((junk, why),) = report.refused.items()
    assert "publish it again" in why
    assert await first.run() == await second.run() == [(0, 1), (1, 1), (2, 1)]
    assert await dead.purge(ids=junk) == 1
    assert await dead.count() == 0


async def test_an_edited_letter_is_a_new_message_for_its_group_alone(stage: Stage) -> None:
    billing, other = Morgue(stage, "billing"), Morgue(stage, "other")
    receipt = await billing.bus.publish({"n": 1}, key="k", headers={"a": "b"})
    async with stage.running(billing.bus, other.bus):
        await stage.settled("billing", "other")
    billing.seen.clear()
    billing.rejects = False
    (letter,) = await billing.letters()
    new = await billing.bus.dead.edit(letter, {"n": 2})
    assert await billing.run() == [(2, 1)]
    (event,) = billing.seen
    assert (event.id, event.key, event.entry_id) == (new, "k", receipt.entry_id)
    assert event.headers == {"a": "b", "edited-from": receipt.id}
    assert new != receipt.id
    assert (await billing.letters(), await other.bus.dead.count()) == ([], 1)
    assert await billing.bus.dead.edit(letter, {"n": 3}) is None
    assert (await billing.run(), stage.admin.xlen(stage.topic)) == ([(2, 1)], 1)


async def test_a_letter_that_nobody_could_read_can_be_edited(stage: Stage) -> None:
    morgue = Morgue(stage)
    id = new_id()
    stage.admin.xadd(stage.topic, {"id": id, "key": "k", "payload": "{not json"})
    stage.admin.xadd(stage.topic, {"junk": "1"})
    await morgue.fill(0)
    for letter in await morgue.letters():
        await morgue.bus.dead.edit(letter, {"n": 1 if letter.id == id else 2})
    assert await morgue.run() == [(1, 1), (2, 1)]
    first, second = sorted(morgue.seen, key=lambda event: event.body["n"])
    assert (first.key, first.headers) == ("k", {"edited-from": id})
    assert set(second.headers) == {"edited-from"}


async def test_what_cannot_be_edited_says_why_and_stays(stage: Stage) -> None:
    stage.admin.xadd(keys.dead(stage.topic), {"junk": "1"})
    dead = of_all_groups(stage)
    (letter,) = [letter async for letter in dead]
    with pytest.raises(
        ConfigurationError, match="cannot be edited: it cannot be opened, so publish it again from its source"
    ):
        await dead.edit(letter, 1)
    with pytest.raises(EncodeError):
        await dead.edit(letter, float("nan"))
    assert await dead.count() == 1
