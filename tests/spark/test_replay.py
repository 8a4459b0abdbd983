"""Replay from a lake: exactly what was asked, in order, once per replay id. No JVM is needed."""

import json
import shlex
import time
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import redis

from penstock import Delivery, Reject, Subscription
from penstock.backend import keys
from penstock.backend.address import parse
from penstock.backend.redis.blocking import BlockingLink
from penstock.cli.main import main
from penstock.errors import ConfigurationError, GroupMissingError, LakeError
from penstock.lake import Lake
from penstock.lake.dead_letters import copy_dead_letters
from penstock.lake.failures import failures
from penstock.lake.selection import Selection
from penstock.message.ids import new_id
from penstock.spark.pipelines.replay import Replay, Replayed
from penstock.spark.sink.outflow import Outflow
from tests.lake.pouring import START, Row, pour
from tests.support.servers import Server
from tests.support.stage import QUICK, Stage

FIRSTS = [number for number in range(2500) if number != 1700]
BOTH = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)


@pytest.fixture
def lake(tmp_path: Path, topic: str) -> Lake:
    """Three days of one topic, in files of 100; another topic; one message twice."""
    found = Lake.create(tmp_path / "lake")
    rows = [Row(topic, number, new_id()) for number in range(2500)]
    rows[1700] = rows[1700]._replace(id=rows[20].id)
    for start in range(0, 2500, 100):
        pour(found, rows[start : start + 100])
    pour(found, [Row(f"{topic}:b", number, new_id()) for number in range(50)])
    return found


def replay(server: Server, lake: Lake, **settings: Any) -> Replay:
    return Replay(lake=lake.path, url=server.url, **{"id": "r1", **settings})


def numbers(admin: "redis.Redis", topic: str) -> list[int]:
    return [json.loads(fields[b"payload"]) for _, fields in admin.xrange(topic)]


@BOTH
def test_everything_comes_back_in_order_and_a_second_run_brings_nothing(
    server: Server, admin: "redis.Redis", topic: str, lake: Lake
) -> None:
    job = replay(server, lake)
    plan = job.plan()
    assert [(day.topic, day.messages) for day in plan] == [
        (topic, 1000), (topic, 999), (topic, 500), (f"{topic}:b", 50),
    ]  # fmt: skip
    assert job.run() == Replayed(written=2549)
    assert job.run() == Replayed(before=2549)
    assert numbers(admin, topic) == FIRSTS
    assert numbers(admin, f"{topic}:b") == list(range(50))
    replay(server, lake, id="r2", selection=Selection(topics=[f"{topic}:b"])).run()
    assert len(numbers(admin, f"{topic}:b")) == 100


def test_files_that_are_swept_while_it_runs_are_told_with_what_to_do(
    server: Server, admin: "redis.Redis", topic: str, lake: Lake
) -> None:
    job = replay(server, lake, to=f"{topic}:again", selection=Selection(topics=[topic]))
    day = sorted(file.path for file in lake.snapshot().of("raw", topic=topic, date="2026-03-03"))
    places = {lake.path / path: (lake.path / path).read_bytes() for path in day}
    with job.choose() as chosen:
        for place in places:
            place.unlink()
        with pytest.raises(LakeError, match=r"cannot be read any more.*run it again with the same id"):
            job.bring(chosen)
    for place, content in places.items():
        place.write_bytes(content)
    assert job.run() == Replayed(written=2499)
    assert numbers(admin, f"{topic}:again") == FIRSTS


def test_a_condition_may_ask_a_topic_by_its_name(server: Server, lake: Lake, topic: str) -> None:
    pour(lake, [Row("customers", 7, new_id())], payload='{"number": 7, "vip": true}')
    vips = Selection(topics=[topic], where="seq IN (SELECT number FROM customers WHERE vip)")
    assert [day.messages for day in replay(server, lake, selection=vips).plan()] == [1]


def test_the_command_looks_for_the_messages_once(
    server: Server, topic: str, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []
    real = Replay._chosen

    def looking(self: Replay, *found: Any) -> Any:
        looks.append(self.id)
        return real(self, *found)

    monkeypatch.setattr(Replay, "_chosen", looking)
    place = ["--lake", str(lake.path), "--url", server.url]
    main(["lake", "replay", *place, "--id", "once", "--topic", f"{topic}:b", "--yes"])
    assert looks == ["once"]


def test_an_id_stands_for_one_selection(server: Server, admin: "redis.Redis", topic: str, lake: Lake) -> None:
    some = Selection(topics=[topic], where="payload::int < 10")
    assert replay(server, lake, selection=some).run() == Replayed(written=10)
    with pytest.raises(ConfigurationError, match=r"replay 'r1' to .* was begun with another selection"):
        replay(server, lake, selection=Selection(topics=[topic], where="payload::int < 20")).run()
    assert numbers(admin, topic) == list(range(10))


def test_what_came_to_a_day_after_it_was_replayed_is_told(
    server: Server, admin: "redis.Redis", topic: str, lake: Lake
) -> None:
    job = replay(server, lake, selection=Selection(topics=[f"{topic}:b"]))
    assert job.run() == Replayed(written=50)
    pour(lake, [Row(f"{topic}:b", number, new_id()) for number in range(50, 53)])
    assert job.run() == Replayed(before=50, left=3)
    assert len(numbers(admin, f"{topic}:b")) == 50


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        (Selection(since=START + timedelta(days=1)), range(1000, 2500)),
        (Selection(until=START + timedelta(days=0.5)), range(500)),
        (Selection(since=START + timedelta(days=0.999), until=START + timedelta(days=1.001)), [999, 1000]),
        (Selection(where="payload::int % 1000 = 7 -- every thousandth"), [7, 1007, 2007]),
        (Selection(where="seq = 3", types=["order"]), []),
    ],
)
def test_exactly_what_was_chosen_comes_back(
    server: Server, admin: "redis.Redis", topic: str, lake: Lake, selection: Selection, expected: "range | list[int]"
) -> None:
    job = replay(server, lake, to=f"{topic}:again", selection=Selection(
        topics=[topic], since=selection.since, until=selection.until, where=selection.where, types=selection.types,
    ))  # fmt: skip
    assert sum(day.messages for day in job.plan()) == len(expected)
    assert not admin.exists(f"{topic}:again")
    assert job.run().written == len(expected)
    assert numbers(admin, f"{topic}:again") == list(expected)


def test_messages_are_found_by_their_ids(server: Server, admin: "redis.Redis", topic: str, lake: Lake) -> None:
    everything = replay(server, lake, to=f"{topic}:all", selection=Selection(topics=[topic]))
    everything.run()
    ids = [fields[b"id"].decode() for _, fields in admin.xrange(f"{topic}:all")]
    chosen = [ids[5], ids[1005], ids[2005]]
    job = replay(server, lake, to=f"{topic}:some", selection=Selection(ids=chosen))
    assert job.run().written == 3
    assert [fields[b"id"].decode() for _, fields in admin.xrange(f"{topic}:some")] == chosen


def test_one_that_was_cut_short_goes_on(
    server: Server, admin: "redis.Redis", topic: str, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, real, calls = replay(server, lake, selection=Selection(topics=[topic])), Outflow.write, []

    def dying(self: Outflow, rows: Any) -> None:
        calls.append(len(rows))
        if sum(calls) > 1300:
            raise KeyboardInterrupt
        real(self, rows)

    with monkeypatch.context() as patched:
        patched.setattr(Outflow, "write", dying)
        with pytest.raises(KeyboardInterrupt):
            job.run()
    cut = len(numbers(admin, topic))
    assert 1000 <= cut < 2500

    assert job.run() == Replayed(written=1499, before=1000)

    assert sorted(numbers(admin, topic)) == FIRSTS


def test_a_rate_is_kept(server: Server, admin: "redis.Redis", topic: str, lake: Lake) -> None:
    seen: list[tuple[float, int]] = []
    began = time.monotonic()
    job = replay(server, lake, rate=500, selection=Selection(topics=[topic], until=START + timedelta(days=0.5)))
    job.run(lambda done: seen.append((time.monotonic() - began, done)))
    assert seen[-1][1] == 500
    assert all(done <= 500 * after + 60 for after, done in seen)


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: Selection(ids=["nonsense"]), "no id of a message"),
        (lambda: Selection(topics="orders"), "topics must be a list"),
        (lambda: Selection(since=datetime(2026, 1, 1)), "in no time zone"),  # noqa: DTZ001 - that is the case
        (lambda: Selection(since=START, until=START), "is not before until"),
        (lambda: Replay(lake="l", id=""), "option id must be a text"),
        (lambda: Replay(lake="l", id="r", rate=0), "option rate is 0"),
        (lambda: Replay(lake="l", id="r", group=""), "group"),
        (lambda: Replay(lake="l", id="r", group="penstock"), "Penstock's own"),
        (lambda: Replay(lake="l", id="r" * 300, group="g"), "replay"),
    ],
)
def test_what_cannot_work_is_refused(make: Any, complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        make()


def test_a_condition_that_makes_no_sense_is_told(server: Server, lake: Lake) -> None:
    with pytest.raises(LakeError, match="nonsense"):
        replay(server, lake, selection=Selection(where="nonsense = 1")).plan()


DEDUPE = Subscription(dedupe=timedelta(hours=1))


@BOTH
@pytest.mark.parametrize("options", [Subscription(), DEDUPE], ids=["plain", "dedupe"])
async def test_one_group_handles_them_again_and_no_other(
    server: Server, admin: "redis.Redis", topic: str, tmp_path: Path, options: Subscription
) -> None:
    seen: Counter[tuple[str, int]] = Counter()
    states: list[Any] = []
    async with Stage(server.url, admin, topic) as stage:
        buses = [stage.bus(group, options=options) for group in ("billing", "mail")]
        for bus in buses:

            @bus.on(dict)
            async def handle(event: Delivery[Any]) -> None:
                seen[event.group, event.body["n"]] += 1
                states.append((event.group, event.entry.state))

        receipts = await buses[0].publish_many([{"n": number} for number in range(30)])
        async with stage.running(*buses):
            await stage.settled("billing", "mail")
            assert set(seen.values()) == {1}
            states.clear()
            lake = Lake.create(tmp_path / "lake")
            pour_published(lake, admin, topic)
            chosen = [receipts[number].id for number in (3, 4, 20)]
            job = replay(server, lake, id="ticket 17", group="billing", selection=Selection(ids=chosen))
            assert [day.messages for day in job.plan()] == [3]
            assert (job.run(), job.run()) == (Replayed(written=3), Replayed(before=3))
            await stage.settled("billing", "mail")
            other = replay(server, lake, id="ticket 18", group="billing", selection=Selection(ids=chosen[:1]))
            assert other.run().written == 1
            await stage.settled("billing", "mail")
    again = {key: count for key, count in seen.items() if count > 1}
    assert again == {("billing", 3): 3, ("billing", 4): 2, ("billing", 20): 2}
    assert [(group, state.replay, state.replays, state.attempt) for group, state in states] == [
        *[("billing", "ticket 17", 1, 1)] * 3, ("billing", "ticket 18", 1, 1),
    ]  # fmt: skip
    assert admin.xlen(topic) == 30
    assert set(admin.smembers(keys.TOPICS)) >= {topic.encode()}
    assert not [name for name in admin.smembers(keys.TOPICS) if keys.is_retry(name.decode())]


def pour_published(lake: Lake, admin: "redis.Redis", topic: str) -> None:
    """What is on the topic, as an archive would have it but for its times."""
    rows = admin.xrange(topic)
    for number, (_, fields) in enumerate(rows):
        pour(lake, [Row(topic, number, fields[b"id"].decode())], payload=fields[b"payload"].decode())


async def test_what_fails_again_becomes_a_dead_letter_of_that_replay(
    server: Server, admin: "redis.Redis", topic: str, tmp_path: Path
) -> None:
    async with Stage(server.url, admin, topic) as stage:
        bus = stage.bus("billing", retry=QUICK)

        @bus.on(dict)
        async def handle(event: Delivery[Any]) -> None:
            if event.entry.state.replay:
                raise Reject("still no such customer")

        receipt = await bus.publish({"n": 1})
        async with stage.running(bus):
            await stage.settled("billing")
            lake = Lake.create(tmp_path / "lake")
            pour_published(lake, admin, topic)
            replay(server, lake, id="r7", group="billing").run()
            await stage.settled("billing")
            (letter,) = [letter async for letter in bus.dead]
    assert (letter.id, letter.replay, letter.reason) == (receipt.id, "r7", "still no such customer")


async def test_the_messages_of_a_failure_go_back_to_the_group_that_failed(
    server: Server, admin: "redis.Redis", topic: str, tmp_path: Path
) -> None:
    """From a real dead letter to its cluster, and by the command of that back to the handler, which is mended."""
    seen: list[tuple[str, int]] = []
    is_mended = False
    async with Stage(server.url, admin, topic) as stage:
        buses = [stage.bus(group) for group in ("billing", "mail")]
        for bus in buses:

            @bus.on(dict)
            async def handle(event: Delivery[Any]) -> None:
                if event.group == "billing" and event.body["n"] % 5 == 0 and not is_mended:
                    raise Reject(f"no such customer: {event.body['n']}" if event.body["n"] else "no customer at all")
                seen.append((event.group, event.body["n"]))

        await buses[0].publish_many([{"n": number} for number in range(21)])
        async with stage.running(*buses):
            await stage.settled("billing", "mail")
            lake = Lake.create(tmp_path / "lake")
            pour_published(lake, admin, topic)
            with BlockingLink.open(parse(server.url)) as link:
                assert copy_dead_letters(lake, link, [topic]) == 5
            largest, other = failures(lake)
            assert (largest.group, largest.letters, largest.pattern) == ("billing", 4, "no such customer: <n>")
            assert (other.letters, other.error) == (1, "penstock.Reject")
            seen.clear()
            is_mended = True
            words = shlex.split(largest.replay_command(lake.path))
            options = dict(zip(words[3::2], words[4::2], strict=True))
            chosen = Selection(topics=[options["--topics"]], where=options["--where"])
            job = replay(server, lake, id=options["--id"], group=options["--group"], selection=chosen)
            assert job.run() == Replayed(written=4)
            await stage.settled("billing", "mail")
    assert sorted(seen) == [("billing", 5), ("billing", 10), ("billing", 15), ("billing", 20)]


def test_the_order_is_kept_for_a_group_and_a_cut_goes_on(
    server: Server, admin: "redis.Redis", topic: str, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin.xgroup_create(f"{topic}:again", "g", mkstream=True)
    job = replay(server, lake, to=f"{topic}:again", group="g", selection=Selection(topics=[topic]))
    real, calls = Outflow.write, []

    def dying(self: Outflow, rows: Any) -> None:
        calls.append(len(rows))
        if sum(calls) > 1300:
            raise KeyboardInterrupt
        real(self, rows)

    with monkeypatch.context() as patched:
        patched.setattr(Outflow, "write", dying)
        with pytest.raises(KeyboardInterrupt):
            job.run()
    retry = keys.retry(f"{topic}:again", "g")
    assert 1000 <= len(numbers(admin, retry)) < 2499

    assert job.run() == Replayed(written=1499, before=1000)

    found = numbers(admin, retry)
    assert sorted(found) == FIRSTS
    assert found[:1000] == list(range(1000))
    assert admin.xlen(f"{topic}:again") == 0
    last = admin.xrange(retry, count=1)[0][1]
    assert list(last)[-1] == b"penstock-delivery"


@pytest.mark.parametrize("exists", [True, False])
def test_a_group_that_is_not_there_is_told_before_anything_is_written(
    server: Server, admin: "redis.Redis", topic: str, lake: Lake, exists: bool
) -> None:
    admin.xgroup_create(f"{topic}:b", "billing", mkstream=True)
    if exists:
        admin.xgroup_create(topic, "mail", mkstream=True)
    complaint = r"no such group \(it has: mail\)" if exists else "no such topic"
    with pytest.raises(GroupMissingError, match=complaint):
        replay(server, lake, group="billing").run()
    assert not admin.exists(keys.retry(topic, "billing"))
    assert numbers(admin, keys.retry(f"{topic}:b", "billing")) == []


def test_files_in_which_nothing_can_be_chosen_are_not_opened(server: Server, topic: str, lake: Lake) -> None:
    """What is not needed may as well be gone."""
    state = lake.snapshot()
    chosen = Selection(topics=[topic], since=START + timedelta(days=1), until=START + timedelta(days=1.5))
    days = replay(server, lake, selection=chosen).plan()
    for path, file in state.files.items():
        if file.partition != {"topic": topic, "date": days[0].date}:
            (lake.path / path).unlink()
    assert replay(server, lake, selection=chosen).plan() == days
