"""Jobs wait in lanes: the urgent ones are begun first, the others not never, and none before there is room for it."""

import asyncio
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from penstock import Delivery, JobOptions, Message, Priority, Reject, Retry, events
from penstock.backend import keys
from penstock.backend.entry import Helping
from penstock.backend.redis.lanes import Lanes
from penstock.backend.redis.seat import Wish
from penstock.jobs.queue import JobQueue
from tests.support.stage import Stage

BOTH = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)
HIGH, NORMAL, LOW = Priority
MS = timedelta(milliseconds=1)


def doing(queue: JobQueue, seen: list[Any], wait: Callable[[], Any] | None = None) -> None:
    """Have the queue's jobs noted in the order they are begun."""

    @queue.on(dict)
    async def do(job: Delivery[Any]) -> None:
        seen.append(job.body)
        if wait is not None:
            await wait()


def pending(stage: Stage, queue: JobQueue) -> int:
    found = 0
    for lane in queue.topics:
        for stream in (lane, keys.retry(lane, "workers")):
            found += stage.admin.xpending(stream, "workers")["pending"]
    return found


@BOTH
async def test_jobs_are_done_once_and_leave_nothing_behind(stage: Stage) -> None:
    queue, seen = stage.jobs(), list[Any]()
    doing(queue, seen)
    jobs = [await queue.enqueue({"n": n}, priority=list(Priority)[n % 3]) for n in range(30)]
    jobs += await queue.enqueue_many([{"n": n} for n in range(30, 100)], priority=LOW)
    assert len({job.id for job in jobs}) == 100
    assert jobs[0].lane == f"{{{stage.topic}}}:high"
    async with stage.running(queue):
        await stage.all_done(queue)
        # The last ones are deleted right after they are settled.
        await stage.until(lambda: not sum(stage.admin.xlen(lane) for lane in queue.topics))
    assert sorted(job["n"] for job in seen) == list(range(100))
    assert sum(one.count for one in stage.told(events.Handled)) == 100
    assert [one for one in stage.told(events.Event) if isinstance(one, (events.Lost, events.Trouble))] == []


@BOTH
async def test_the_urgent_ones_are_begun_first(stage: Stage) -> None:
    queue, seen = stage.jobs(), list[Any]()
    doing(queue, seen)
    for priority in (LOW, NORMAL, HIGH):
        await queue.enqueue_many([{"p": priority.value}] * 5, priority=priority)
    async with stage.running(queue, concurrency=1):
        await stage.all_done(queue)
    assert [job["p"] for job in seen] == ["high"] * 5 + ["normal"] * 5 + ["low"] * 5


@BOTH
@pytest.mark.parametrize("concurrency", [1, 8, 100])
async def test_a_full_lane_leaves_the_others_their_share(stage: Stage, concurrency: int) -> None:
    queue, seen = stage.jobs(options=JobOptions(bound=16)), list[Any]()
    doing(queue, seen)
    for priority, count in ((HIGH, 1600), (NORMAL, 300), (LOW, 300)):
        await queue.enqueue_many([{"p": priority.value}] * count, priority=priority)
    async with stage.running(queue, concurrency=concurrency):
        await stage.until(lambda: len(seen) >= 1500)
        await stage.all_done(queue)
    begun = Counter(job["p"] for job in seen[:1500])
    # At least one of 16 each; and not so much more that urgent jobs would not be urgent any more.
    assert 1500 / 16 - concurrency / 8 - 1 <= begun["low"] <= 1500 / 16 * 1.7, begun
    assert 1500 / 16 - concurrency / 8 - 1 <= begun["normal"] <= 1500 / 16 * 1.7, begun
    assert len(seen) == 2200


@BOTH
async def test_an_urgent_job_behind_very_many_others_is_begun_as_soon_as_there_is_room(stage: Stage) -> None:
    queue, seen, gate = stage.jobs(), list[Any](), asyncio.Semaphore(0)
    doing(queue, seen, gate.acquire)
    await queue.enqueue_many(({"p": "low"} for _ in range(100_000)), priority=LOW)
    async with stage.running(queue, concurrency=4):
        await stage.until(lambda: len(seen) == 4)
        await queue.enqueue({"p": "high"}, priority=HIGH)
        await asyncio.sleep(0.1)
        assert (len(seen), pending(stage, queue)) == (4, 4)  # nothing is taken that nobody could begin
        gate.release()
        await stage.until(lambda: len(seen) == 5)
        assert seen[4] == {"p": "high"}
        stage.admin.delete(*queue.topics)
        for _ in range(20):
            gate.release()


@BOTH
@pytest.mark.parametrize("concurrency", [1, 3, 10])
async def test_nothing_is_leased_that_is_not_begun(stage: Stage, concurrency: int) -> None:
    """So another worker can have it: also if jobs come to every lane at the same moment."""
    queue, seen, gate = stage.jobs(), list[Any](), asyncio.Semaphore(0)
    doing(queue, seen, gate.acquire)
    async with stage.running(queue, concurrency=concurrency):
        for _ in range(30):
            with stage.admin.pipeline(transaction=True) as together:
                for lane in queue.topics:
                    together.xadd(lane, {"payload": "{}"})
                together.execute()
        for done in range(90):
            await stage.until(lambda done=done: len(seen) >= min(90, done + concurrency))
            # What came together with more than there was room for is put back, which takes a moment.
            await stage.until(lambda done=done: pending(stage, queue) <= concurrency)
            gate.release()
        await stage.all_done(queue)
    assert len(seen) == 90


async def test_what_comes_together_with_more_than_there_is_room_for_is_put_back(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read that waits has one entry of each lane at most; here none is read in any other way."""

    async def wait_at_once(
        self: Lanes, lanes: Any, group: str, consumer: str, helping: Helping, *_: Any, **how: Any
    ) -> Any:
        seat = self._lane_seat(lanes, group, consumer)
        return self._bound(seat, await self._waited(seat, Wish(1, 0, helping), 100))

    monkeypatch.setattr(Lanes, "read_lanes", wait_at_once)
    queue = stage.jobs()

    @queue.on(dict)
    async def do(job: Delivery[Any]) -> None:
        await stage.until(lambda: pending(stage, queue) == 1)  # putting back takes a moment, while this one runs

    for priority in Priority:
        await queue.enqueue_many([{}] * 5, priority=priority)
    async with stage.running(queue, concurrency=1):
        await stage.all_done(queue)
    assert sum(one.count for one in stage.told(events.Handled)) == 15
    assert {(one.attempt, one.delay) for one in stage.told(events.Parked)} == {(1, 0.0)}


async def test_jobs_that_somebody_else_reads_too_are_kept(stage: Stage) -> None:
    queue, seen = stage.jobs(), list[Any]()
    doing(queue, seen)
    lane = queue.lanes[NORMAL]
    stage.admin.xgroup_create(lane, "archive", "0", mkstream=True)
    await queue.enqueue_many([{}] * 50)
    async with stage.running(queue):
        await stage.all_done(queue)
        await queue.enqueue({}, priority=HIGH)
        await stage.until(lambda: len(seen) == 51 and not stage.admin.xlen(queue.lanes[HIGH]))
    assert stage.admin.xlen(lane) == 50


@BOTH
async def test_a_job_waits_until_it_is_due_and_keeps_its_priority(stage: Stage) -> None:
    queue, seen = stage.jobs(), list[Any]()

    @queue.on(dict)
    async def do(job: Delivery[Any]) -> None:
        seen.append((job.topic, job.attempt, job.redelivered, job.fence, job.body["n"], datetime.now(UTC)))

    async with stage.running(queue):
        at = datetime.now(UTC) + 300 * MS
        later = await queue.enqueue({"n": 1}, priority=LOW, delay=300 * MS)
        (moment,) = await queue.enqueue_many([{"n": 2}], priority=HIGH, at=at)
        await queue.enqueue({"n": 0}, at=datetime.now(UTC) - timedelta(days=1))
        await stage.all_done(queue)
    by_number = {n: rest for *rest, n, _ in seen}
    assert by_number == {n: [queue.lanes[lane], 1, False, 1] for n, lane in ((0, NORMAL), (1, LOW), (2, HIGH))}
    assert (later.entry_id, moment.entry_id) == (None, None)
    for n, job in ((1, later), (2, moment)):
        (done,) = [when for *_, number, when in seen if number == n]
        assert done >= job.due - 2 * MS
    assert abs(moment.due - at) < 2 * MS


async def test_what_fails_comes_again_in_its_lane_and_ends_among_the_dead_letters(stage: Stage) -> None:
    queue, seen = stage.jobs(retry=Retry(attempts=3, initial=10 * MS, jitter=False)), list[Any]()

    @queue.on(dict)
    async def do(job: Delivery[Any]) -> None:
        seen.append((job.topic, job.attempt))
        if job.body.get("hopeless"):
            raise Reject("never")
        raise ValueError("not today")

    async with stage.running(queue):
        low = await queue.enqueue({}, priority=LOW)
        high = await queue.enqueue({"hopeless": True}, priority=HIGH)
        await stage.all_done(queue)
        letters = {letter.id: letter async for letter in queue.dead}
    assert sorted(seen) == [(high.lane, 1), (low.lane, 1), (low.lane, 2), (low.lane, 3)]
    assert (letters[low.id].reason, letters[high.id].reason) == ("ValueError: not today", "never")
    assert not any(stage.admin.xlen(lane) for lane in queue.topics)


@BOTH
async def test_lanes_that_vanish_are_made_again(stage: Stage) -> None:
    queue, seen = stage.jobs(), list[Any]()
    doing(queue, seen)
    async with stage.running(queue):
        await queue.enqueue({"n": 0})
        await stage.until(lambda: len(seen) == 1)
        stage.admin.delete(queue.lanes[HIGH])
        stage.admin.xgroup_destroy(queue.lanes[LOW], "workers")
        stage.admin.delete(keys.retry(queue.lanes[NORMAL], "workers"))
        for n, priority in enumerate(Priority, start=1):
            await queue.enqueue({"n": n}, priority=priority)
        await stage.until(lambda: len(seen) == 4)
        await stage.all_done(queue)
    assert {job["n"] for job in seen} == {0, 1, 2, 3}
    assert stage.told(events.GroupRestored)


async def test_a_paused_queue_begins_nothing(stage: Stage) -> None:
    queue, seen = stage.jobs(), list[Any]()
    doing(queue, seen)
    async with stage.running(queue):
        await queue.pause()
        await stage.until(lambda: len(stage.told(events.PauseChanged)) == 3)
        await queue.enqueue_many([{}] * 10, priority=HIGH)
        await asyncio.sleep(0.1)
        assert seen == []
        await queue.resume()
        await stage.all_done(queue)
    assert len(seen) == 10


async def test_a_stop_hands_back_what_was_not_begun(stage: Stage) -> None:
    queue, seen, gate = stage.jobs(), list[Any](), asyncio.Semaphore(0)
    doing(queue, seen, gate.acquire)
    await queue.enqueue_many([{"n": n} for n in range(50)])
    async with stage.running(queue, concurrency=5):
        await stage.until(lambda: len(seen) == 5)
        stage.app.stop()
        await asyncio.sleep(0.05)
        for _ in range(5):
            gate.release()
    assert len(seen) == 5
    assert pending(stage, queue) == 0
    assert stage.admin.xlen(queue.lanes[NORMAL]) == 45


async def test_two_workers_share_a_queue(stage: Stage) -> None:
    queue, seen = stage.jobs(), list[Any]()
    doing(queue, seen, lambda: asyncio.sleep(0.001))
    async with stage.another() as second:
        other, theirs = second.jobs(), list[Any]()
        doing(other, theirs, lambda: asyncio.sleep(0.001))
        async with stage.running(queue, concurrency=5), second.running(other, concurrency=5):
            await queue.enqueue_many([{"n": n} for n in range(500)])
            await stage.all_done(queue)
    assert sorted(job["n"] for job in seen + theirs) == list(range(500))
    assert len(seen) > 50
    assert len(theirs) > 50


async def test_a_kind_nobody_knows_and_what_cannot_be_read_become_dead_letters(stage: Stage) -> None:
    queue, seen = stage.jobs(), list[Any]()

    class Known(dict[str, Any]):
        pass

    doing(queue, seen)
    await queue.enqueue(Message([1, 2], type="Unknown"))
    stage.admin.xadd(queue.lanes[HIGH], {"payload": "{not json"})
    stage.admin.xadd(queue.lanes[LOW], {"strange": "1"})
    await queue.enqueue({"n": 1}, priority=LOW)
    async with stage.running(queue):
        await stage.all_done(queue)
        reasons = [letter.reason async for letter in queue.dead]
    assert len(reasons) == 3
    assert seen == [{"n": 1}]


@BOTH
async def test_jobs_that_others_trim_beneath_a_worker_are_told_with_their_number(stage: Stage) -> None:
    """The job that was read last is often done and dropped first: servers from 7.2 on do not count on behind that."""
    queue, seen, gates = stage.jobs(), list[int](), {n: asyncio.Event() for n in (0, 10)}

    @queue.on(dict)
    async def do(job: Delivery[Any]) -> None:
        seen.append(job.body["n"])
        if job.body["n"] in gates:
            await gates[job.body["n"]].wait()

    await queue.enqueue_many([{"n": n} for n in range(50)])
    async with stage.running(queue, concurrency=2):
        await stage.until(lambda: 10 in seen)
        stage.admin.xtrim(queue.topics[1], maxlen=2, approximate=False)
        for gate in gates.values():
            gate.set()
        await stage.all_done(queue)
        lost = 50 - len(set(seen))
        assert lost > 30
        await stage.until(lambda: stage.told(events.Lost))
    assert [one.count for one in stage.told(events.Lost)] == [lost]


@BOTH
async def test_no_job_is_called_lost_where_the_group_vanished_among_jobs_that_were_done(stage: Stage) -> None:
    queue, seen = stage.jobs(), list[Any]()
    doing(queue, seen)
    lane = queue.topics[1]
    async with stage.running(queue):
        await queue.enqueue_many([{"n": n} for n in range(20)])
        await stage.all_done(queue)
        stage.admin.xgroup_destroy(lane, "workers")
        await queue.enqueue_many([{"n": n} for n in range(20, 25)])
        await stage.until(lambda: stage.told(events.GroupRestored))
        await stage.all_done(queue)
    async with stage.running(queue):  # the first thing a worker does is to look what is missing
        pass
    assert sorted(job["n"] for job in seen) == list(range(25))
    assert stage.told(events.Lost) == []
