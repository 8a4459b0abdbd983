"""A queue in a sorted set is taken over: each job once, with all that it says, whatever else happens there."""

import asyncio
import json
import threading
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis

from penstock import JobDelivery, JobQueue, JobStatus, Priority
from penstock.backend import keys
from penstock.backend.redis.scripts import load
from penstock.errors import ConfigurationError, WrongKeyTypeError
from penstock.jobs.old_jobs import Bands
from tests.support.old_queue import OldPrograms
from tests.support.proxy import Proxy
from tests.support.servers import Server
from tests.support.stage import Stage

BOTH = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)
HIGH, NORMAL, LOW = Priority


@pytest.fixture
def old(admin: "redis.Redis", topic: str) -> OldPrograms:
    return OldPrograms(admin, f"{topic}:")


def lane_ids(admin: "redis.Redis", queue: JobQueue) -> dict[Priority, list[str]]:
    return {
        priority: [fields[b"id"].decode() for _, fields in admin.xrange(lane)] for priority, lane in queue.lanes.items()
    }


@BOTH
async def test_what_waits_goes_to_its_lane_in_order_with_all_that_it_says(stage: Stage, old: OldPrograms) -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    wanted: dict[Priority, list[str]] = {HIGH: [], NORMAL: [], LOW: []}
    for priority, lane in (("critical", HIGH), ("high", HIGH), ("medium", NORMAL), ("low", LOW)):
        for number in range(3):
            created = (at + timedelta(milliseconds=10 * number)).isoformat()
            facts = {"payload": {"n": number}, "metadata": {"of": "me"}, "kind": f"k{number}", "retry_count": number}
            wanted[lane].append(old.enqueue(priority=priority, created_at=created, **facts))
    queue = stage.jobs()
    done = await queue.migration(old.keys).run()
    assert lane_ids(stage.admin, queue) == wanted
    assert done.lanes == {queue.lanes[HIGH]: 6, queue.lanes[NORMAL]: 3, queue.lanes[LOW]: 3}
    assert (done.moved, done.others, done.damaged_count) == (12, 0, 0)
    assert old.waiting() == []
    assert stage.admin.keys(old.keys.records + "*") == []
    seen: list[JobDelivery[Any]] = []

    async def note(job: JobDelivery[Any]) -> None:
        seen.append(job)

    queue.default(note)
    async with stage.running(queue):
        await stage.until(lambda: len(seen) == 12)
    low = [job for job in seen if job.priority is LOW]
    assert [(job.id, job.type, job.body, job.message.time) for job in low] == [
        (wanted[LOW][number], f"k{number}", {"n": number}, at + timedelta(milliseconds=10 * number))
        for number in range(3)
    ]
    assert low[2].metadata == {"of": "me", "job-retry_count": "2", "job-priority": "low"}


async def test_a_job_is_found_by_the_id_it_had(stage: Stage, old: OldPrograms) -> None:
    waits, later = old.enqueue(priority="high"), old.enqueue(scheduled_for="2099-01-01T00:00:00Z")
    dead = old.bury()
    queue = stage.jobs()
    await queue.migration(old.keys).run()
    statuses = [await (await queue.job(id)).status() for id in (waits, later, dead)]
    assert statuses == [JobStatus.QUEUED, JobStatus.SCHEDULED, JobStatus.DEAD]
    assert (await (await queue.job(later)).info()).due == datetime(2099, 1, 1, tzinfo=UTC)


@BOTH
async def test_what_has_a_time_waits_for_it_and_what_is_late_does_not(stage: Stage, old: OldPrograms) -> None:
    soon = datetime.now(UTC) + timedelta(seconds=2)
    ids = [old.enqueue(scheduled_for=when) for when in (soon.isoformat(), "2020-01-01T00:00:00Z")]
    queue, seen = stage.jobs(), list[str]()

    async def note(job: JobDelivery[Any]) -> None:
        seen.append(job.id)
        assert job.id != ids[0] or datetime.now(UTC) >= soon - timedelta(milliseconds=50)

    queue.default(note)
    done = await queue.migration(old.keys).run()
    assert (done.scheduled, done.lanes) == (1, {queue.lanes[NORMAL]: 1})
    async with stage.running(queue):
        await stage.until(lambda: len(seen) == 2)
    assert seen == [ids[1], ids[0]]


@BOTH
async def test_the_dead_become_dead_letters_that_can_be_tried_again(stage: Stage, old: OldPrograms) -> None:
    first, second = old.bury(payload={"n": 1}, priority="critical"), old.bury(payload={"n": 2}, priority="low")
    queue, seen = stage.jobs(), list[Any]()

    async def note(job: JobDelivery[Any]) -> None:
        seen.append((job.id, job.body, job.priority, job.attempt))

    queue.default(note)
    done = await queue.migration(old.keys).run()
    assert (done.dead, done.stale, old.dead()) == (2, 0, [])
    letters = [letter async for letter in queue.dead]
    assert {letter.id for letter in letters} == {first, second}
    assert {letter.attempts for letter in letters} == {3}
    async with stage.running(queue):
        await queue.dead.replay()
        await stage.until(lambda: len(seen) == 2)
    assert sorted(seen, key=str) == sorted([(first, {"n": 1}, HIGH, 1), (second, {"n": 2}, LOW, 1)], key=str)


async def test_ids_of_the_dead_that_live_again_only_leave_the_list(
    stage: Stage, old: OldPrograms, admin: "redis.Redis"
) -> None:
    again = old.enqueue()  # was dead, was asked for once more: the list keeps it
    running = old.bury(status="running")
    twice = old.bury()
    admin.lpush(old.keys.dead, again, twice)
    queue = stage.jobs()
    trial = await queue.migration(old.keys).run(trial=True)
    done = await queue.migration(old.keys).run()
    for found in (trial, done):
        assert (found.dead, found.stale, found.damaged_count) == (1, 3, 0)
    assert old.dead() == []
    assert old.record(running) is not None
    assert [letter.id async for letter in queue.dead] == [twice]
    assert lane_ids(admin, queue)[NORMAL] == [again]


DAMAGED = {
    "no record": None,
    "no JSON": b"{",
    "no object": b"[]",
    "no payload": b'{"id": "%s"}',
    "another's": b'{"id": "00000000-0000-4000-8000-000000000000", "kind": "k", "payload": 1}',
    "no UTF-8": b'{"id": "%s", "kind": "k", "payload": "\xff"}',
    "no time": b'{"id": "%s", "kind": "k", "payload": 1, "scheduled_for": "soon"}',
    "too large": b'{"id": "%s", "kind": "k", "payload": "' + b"x" * (1 << 20) + b'"}',
    "metadata": b'{"id": "%s", "kind": "k", "payload": 1, "metadata": 5}',
}


@BOTH
async def test_what_is_damaged_is_told_and_kept_and_its_neighbours_are_moved(
    stage: Stage, old: OldPrograms, admin: "redis.Redis"
) -> None:
    fine = [old.enqueue() for _ in range(150)]
    damaged = {name: old.enqueue() for name in DAMAGED}
    for name, record in DAMAGED.items():
        if record is None:
            admin.delete(old.keys.records + damaged[name])
        else:
            admin.set(old.keys.records + damaged[name], record.replace(b"%s", damaged[name].encode()))
    odd = old.enqueue()
    admin.delete(old.keys.records + odd)
    admin.hset(old.keys.records + odd, "a", "b")
    admin.zadd(old.keys.waiting, {b"\xff": 1})
    lost = old.bury()
    admin.delete(old.keys.records + lost)
    kept = {key: admin.dump(key) for key in admin.keys(old.keys.records + "*") if key[-36:].decode() not in fine}
    queue = stage.jobs()
    for _ in range(2):
        done = await queue.migration(old.keys).run()
        told = {member.decode(errors="backslashreplace"): reason for member, reason in done.damaged.items()}
        assert told.keys() == {*damaged.values(), odd, lost, "\\xff"}
        assert told[damaged["no record"]] == told[odd] == told[lost] == "it has no record"
        assert "scheduled_for" in told[damaged["no time"]]
        assert (done.damaged_waiting, done.damaged_dead) == (len(DAMAGED) + 2, 1)
        assert {key: admin.dump(key) for key in kept} == kept
        assert admin.zcard(old.keys.waiting) == len(DAMAGED) + 2
        assert old.dead() == [lost]
        assert sorted(lane_ids(admin, queue)[NORMAL]) == sorted(fine)
        assert done.others == 0
    mended = old.document(id=damaged["no record"])
    admin.set(old.keys.records + mended["id"], json.dumps(mended))
    assert (await queue.migration(old.keys).run()).moved == 1


async def test_a_trial_changes_nothing_and_says_what_would_be(
    stage: Stage, old: OldPrograms, admin: "redis.Redis", topic: str
) -> None:
    for number in range(120):
        old.enqueue(priority=("high", "low")[number % 2])
    old.enqueue(scheduled_for="2099-01-01T00:00:00Z")
    old.bury()
    admin.zadd(old.keys.waiting, {"lost": 1})
    admin.lpush(old.keys.dead, "10000000-0000-4000-8000-000000000000")

    def everything() -> dict[bytes, bytes]:
        return {key: admin.dump(key) for key in admin.keys(f"*{topic}*")}

    before, queue = everything(), stage.jobs()
    trial = await queue.migration(old.keys).run(trial=True)
    assert everything() == before
    done = await queue.migration(old.keys).run()
    for found in (trial, done):
        assert found.lanes == {queue.lanes[HIGH]: 60, queue.lanes[LOW]: 60}
        assert (found.scheduled, found.dead, found.damaged_count) == (1, 1, 2)
        assert found.damaged.keys() == {b"lost", b"10000000-0000-4000-8000-000000000000"}


@BOTH
async def test_others_add_and_take_jobs_meanwhile_and_each_is_in_one_place(
    stage: Stage, server: Server, old: OldPrograms
) -> None:
    added, taken, stop = [old.enqueue() for _ in range(300)], list[str](), threading.Event()

    def produce() -> None:
        with server.client() as client:
            programs = OldPrograms(client, old.keys.waiting.removesuffix("queue:main"))
            while not stop.is_set():
                added.append(programs.enqueue(priority=("critical", "medium", "low")[len(added) % 3]))

    def work() -> None:
        with server.client() as client:
            programs = OldPrograms(client, old.keys.waiting.removesuffix("queue:main"))
            while not stop.is_set():
                if (id := programs.take()) is not None:
                    taken.append(id)

    threads = [threading.Thread(target=one) for one in (produce, work, produce)]
    for thread in threads:
        thread.start()
    async with stage.another() as second:
        queue, other = stage.jobs(), second.jobs()
        first = queue.migration(old.keys)
        both = asyncio.gather(first.run(follow=True), other.migration(old.keys).run())
        moved_so_far = lambda: sum(map(stage.admin.xlen, queue.lanes.values()))  # noqa: E731
        await stage.until(lambda: len(added) > 600 and len(taken) > 10 and moved_so_far() > 300)
        stop.set()
        for thread in threads:
            thread.join()
        await stage.until(lambda: not old.waiting())
        first.stop()
        done, _ = await both
    moved = [id for ids in lane_ids(stage.admin, queue).values() for id in ids]
    counted = Counter(moved + taken)
    assert counted == Counter(added)
    assert len(moved) > 300
    # What others did is what the set held less of, or more, than we can say; both runs count what was moved.
    assert done.taken_after["lane"] == len(moved)
    assert stage.admin.keys(old.keys.records + "*") != []  # of those that old workers took
    assert len(stage.admin.keys(old.keys.records + "*")) == len(taken)


async def test_a_job_whose_record_changes_at_the_last_moment_is_looked_at_again(
    stage: Stage, old: OldPrograms, admin: "redis.Redis"
) -> None:
    id = old.enqueue(payload={"n": 1})
    queue = stage.jobs()
    migration = queue.migration(old.keys)
    backend = migration._backend
    read = backend.read_old

    async def changed_behind(*args: Any, **how: Any) -> Any:
        page = await read(*args, **how)
        if page and not how["dead"]:
            admin.set(old.keys.records + id, json.dumps(old.document(id=id, payload={"n": 2})))
            backend.read_old = read  # type: ignore[method-assign]
        return page

    backend.read_old = changed_behind  # type: ignore[method-assign]
    try:
        done = await migration.run()
    finally:
        backend.read_old = read  # type: ignore[method-assign]
    assert done.moved == 1
    assert old.waiting() == []
    ((_, fields),) = admin.xrange(queue.lanes[NORMAL])
    assert json.loads(fields[b"payload"]) == {"n": 2}


async def test_an_answer_that_is_lost_moves_nothing_twice(
    proxy: Proxy, old: OldPrograms, admin: "redis.Redis", topic: str
) -> None:
    ids = [old.enqueue() for _ in range(250)]
    async with Stage(proxy.url, admin, topic) as stage:
        queue = stage.jobs()
        await queue.migration(old.keys._replace(waiting="nothing:here")).run()
        lost = old.enqueue()
        await queue.migration(old.keys).run()  # the script is known now
        again = [old.enqueue() for _ in range(50)]
        proxy.drop_reply_to(load("take_over").sha)
        done = await queue.migration(old.keys).run()
        assert proxy.dropped == 1
    assert sorted(lane_ids(admin, queue)[NORMAL]) == sorted([*ids, lost, *again])
    assert (done.others, done.taken_after["lane"] - done.taken_before["lane"]) == (0, 50)


@BOTH
async def test_keys_of_another_type_are_refused_before_anything_is_moved(
    stage: Stage, old: OldPrograms, admin: "redis.Redis"
) -> None:
    old.enqueue()
    queue = stage.jobs()
    admin.set(keys.dead(queue.lanes[LOW]), "x")
    with pytest.raises(WrongKeyTypeError, match="dead"):
        await queue.migration(old.keys).run()
    assert len(old.waiting()) == 1
    admin.delete(keys.dead(queue.lanes[LOW]), old.keys.waiting)
    admin.set(old.keys.waiting, "x")
    with pytest.raises(WrongKeyTypeError):
        await queue.migration(old.keys).run()


async def test_bands_are_where_one_says_they_are(stage: Stage, old: OldPrograms, admin: "redis.Redis") -> None:
    ids = [old.enqueue() for _ in range(3)]
    admin.zadd(old.keys.waiting, dict(zip(ids, (9, 10, 20), strict=True)))
    queue = stage.jobs()
    await queue.migration(old.keys, Bands(10, 20)).run()
    assert list(lane_ids(admin, queue).values()) == [[id] for id in ids]
    with pytest.raises(ConfigurationError, match="greater"):
        Bands(10, 10)


@BOTH
async def test_the_dead_without_a_record_are_not_looked_for_in_the_list_one_by_one(
    stage: Stage, old: OldPrograms, admin: "redis.Redis"
) -> None:
    lost = [old.bury() for _ in range(300)]
    admin.delete(*[old.keys.records + id for id in lost])
    kept = old.bury()
    admin.config_resetstat()
    done = await stage.jobs().migration(old.keys).run()
    assert (done.dead, done.damaged_dead, old.dead()) == (1, 300, lost[::-1])
    assert admin.info("commandstats")["cmdstat_lpos"]["calls"] == 1
    assert await (await stage.jobs().job(kept)).status() is JobStatus.DEAD
