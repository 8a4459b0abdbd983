"""Jobs by the clock: declared in code, enqueued by whoever works, each tick once."""

import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
import redis

from penstock import JobDelivery, JobQueue, Message, Missed, Priority
from penstock.backend import keys
from penstock.errors import ConfigurationError, EncodeError
from penstock.events import TicksDropped, Trouble
from tests.support.stage import Stage

BOTH = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)
EVERY_SECOND = "* * * * * *"
YEARLY = "0 0 1 1 *"
HOUR = timedelta(hours=1)


@dataclass
class Clean:
    what: str


def crons(queue: JobQueue) -> str:
    return keys.crons(keys.queue_home(queue.name, queue.lanes[Priority.HIGH]))


def last(admin: "redis.Redis", queue: JobQueue, name: str = "Clean") -> float | None:
    found = admin.hget(crons(queue), f"last/{name}")
    return None if found is None else float(found) / 1000


def put_back(admin: "redis.Redis", queue: JobQueue, by: timedelta, name: str = "Clean") -> None:
    """As if no worker had been there for so long."""
    admin.hset(crons(queue), f"last/{name}", int((time.time() - by.total_seconds()) * 1000))


async def begun(stage: Stage, queue: JobQueue, name: str = "Clean") -> None:
    await stage.until(lambda: last(stage.admin, queue, name) is not None)


@BOTH
async def test_a_job_comes_at_every_tick_and_knows_which(stage: Stage) -> None:
    queue, done = stage.jobs(), list[JobDelivery[Clean]]()
    queue.on(Clean)(_noting(done))
    queue.cron(EVERY_SECOND, Clean("tmp"), priority=Priority.LOW)
    start = time.time()
    async with stage.running(queue):
        await stage.until(lambda: len(done) >= 3, within=30)
    assert [job.body for job in done] == [Clean("tmp")] * len(done)
    times = [job.message.time for job in done]
    seconds = [times[0] + timedelta(seconds=number) for number in range(len(done))]
    # Who had no time for some of the ticks says so.
    assert times == seconds or (times == sorted(set(times)) and stage.told(TicksDropped))
    assert start <= times[0].timestamp() <= time.time()
    assert len({job.id for job in done}) == len(done)
    assert {job.priority for job in done} == {Priority.LOW}
    assert done[0].metadata["schedule"] == "Clean"


async def test_two_apps_enqueue_each_tick_once(stage: Stage) -> None:
    done: list[JobDelivery[Any]] = []
    async with stage.another() as second, stage.another() as third:
        for one in (stage, second, third):
            queue = one.jobs()
            queue.on(dict)(_noting(done))
            queue.cron(EVERY_SECOND, {}, name="clean")
            one.start(queue)
        await stage.until(lambda: len(done) >= 3, within=30)
        ids = [job.id for job in done]
        assert len(set(ids)) == len(ids)


async def test_what_was_missed_comes_once_when_a_worker_is_there_again(stage: Stage) -> None:
    queue, done = stage.jobs(), list[JobDelivery[Clean]]()
    queue.on(Clean)(_noting(done))
    queue.cron("0 0 1 * *", Clean("tmp"))
    async with stage.running(queue):
        await begun(stage, queue)
        put_back(stage.admin, queue, 100 * 24 * HOUR)
        await stage.until(lambda: stage.told(TicksDropped))
        await stage.until(lambda: done)
    assert len(done) == 1
    assert (datetime.now(UTC) - done[0].message.time) < timedelta(days=31)
    (dropped,) = stage.told(TicksDropped)
    assert (dropped.schedule, dropped.up_to) == ("Clean", done[0].message.time.timestamp())
    assert last(stage.admin, queue) == dropped.up_to


async def test_all_that_was_missed_comes_if_that_is_wanted_and_bounded(stage: Stage) -> None:
    queue, done = stage.jobs(), list[JobDelivery[Clean]]()
    queue.on(Clean)(_noting(done))
    queue.cron("0 0 * * *", Clean("tmp"), missed=Missed.all(150))
    async with stage.running(queue):
        await begun(stage, queue)
        put_back(stage.admin, queue, 400 * 24 * HOUR)
        await stage.until(lambda: len(done) >= 150)
        await queue.drain()
    times = sorted(job.message.time for job in done)
    assert len(times) == len(set(times)) == 150
    assert times[-1] - times[0] == timedelta(days=149)
    assert len(stage.told(TicksDropped)) == 1


async def test_what_was_missed_is_skipped_if_that_is_wanted(stage: Stage) -> None:
    queue, done = stage.jobs(), list[JobDelivery[Clean]]()
    queue.on(Clean)(_noting(done))
    queue.cron(YEARLY, Clean("tmp"), missed=Missed.skip())
    async with stage.running(queue):
        await begun(stage, queue)
        put_back(stage.admin, queue, 1000 * 24 * HOUR)
        await stage.until(lambda: stage.told(TicksDropped))
        await queue.drain()
    assert not done
    new_year = datetime(datetime.now(UTC).year, 1, 1, tzinfo=UTC)
    assert last(stage.admin, queue) == new_year.timestamp()


async def test_a_worker_that_starts_again_goes_on_where_the_schedule_was(stage: Stage) -> None:
    queue, done = stage.jobs(), list[JobDelivery[Clean]]()
    queue.on(Clean)(_noting(done))
    queue.cron(YEARLY, Clean("tmp"))
    async with stage.running(queue):
        await begun(stage, queue)
    assert not done
    put_back(stage.admin, queue, 366 * 24 * HOUR)
    async with stage.running(queue):
        await stage.until(lambda: done)
    assert len(done) == 1


async def test_a_schedule_with_other_times_begins_now_and_owes_nothing(stage: Stage) -> None:
    queue = stage.jobs()
    queue.on(Clean)(_noting([]))
    queue.cron(YEARLY, Clean("tmp"))
    async with stage.running(queue):
        await begun(stage, queue)
    put_back(stage.admin, queue, 1000 * 24 * HOUR)
    done: list[JobDelivery[Clean]] = []
    changed = stage.jobs()
    changed.on(Clean)(_noting(done))
    changed.cron("0 0 2 1 *", Clean("tmp"))
    async with stage.running(changed):
        await stage.until(lambda: time.time() - (last(stage.admin, queue) or 0) < 60)
        await changed.drain()
    assert not done


async def test_who_started_last_has_its_way_and_the_other_stands_by_and_says_so(stage: Stage) -> None:
    old, done = stage.jobs(), list[JobDelivery[Any]]()
    old.on(dict)(_noting(done))
    old.cron(EVERY_SECOND, {"by": "old"}, name="clean")
    stage.start(old)
    await stage.until(lambda: done)
    async with stage.another() as later:
        new = later.jobs()
        new.on(dict)(_noting(done))
        new.cron(EVERY_SECOND, {"by": "new"}, name="clean")
        later.start(new)
        await stage.until(lambda: [job for job in done if job.body["by"] == "new"])
        await stage.until(lambda: stage.told(Trouble))
        first = next(at for at, job in enumerate(done) if job.body["by"] == "new")
        await stage.until(lambda: len(done) >= first + 2)
        assert {job.body["by"] for job in done[first:]} == {"new"}
        assert len({job.message.time for job in done}) == len(done)
        (trouble,) = stage.told(Trouble)
        assert "schedule 'clean'" in str(trouble.error)
        assert "give them different names" in str(trouble.error)


async def test_a_schedule_is_listed_paused_resumed_and_forgotten(stage: Stage) -> None:
    queue, done = stage.jobs(), list[JobDelivery[Clean]]()
    queue.on(Clean)(_noting(done))
    queue.cron(EVERY_SECOND, Clean("tmp"))
    queue.cron(EVERY_SECOND, Clean("all"), name="other")
    queue.cron("0 9 * * MON", Clean("all"), name="weekly", timezone="Europe/Berlin", priority=Priority.HIGH)
    own, other = partial(_of, done, "Clean"), partial(_of, done, "other")
    async with stage.running(queue):
        await stage.until(own)
        await queue.schedules.pause("Clean")
        seen = (await queue.schedules.list())[0]
        assert (seen.name, seen.is_paused, seen.next) == ("Clean", True, None)
        going_on = len(other())
        await stage.until(lambda: len(other()) > going_on + 2)
        assert last(stage.admin, queue) == seen.last.timestamp()
        await queue.schedules.resume("Clean")
        count = len(own())
        await stage.until(lambda: len(own()) > count)
        assert own()[-1].message.time - own()[-2].message.time > timedelta(seconds=1)
    clean, _, weekly = await queue.schedules.list()
    assert (weekly.expression, weekly.timezone) == ("0 9 * * MON", "Europe/Berlin")
    assert (weekly.kind, weekly.priority) == ("Clean", Priority.HIGH)
    assert weekly.next is not None
    assert weekly.next.weekday() == 0
    assert clean.next is not None
    for name in ("Clean", "other", "weekly"):
        await queue.schedules.forget(name)
    assert await queue.schedules.list() == []
    with pytest.raises(ConfigurationError, match="no schedule 'Clean'"):
        await queue.schedules.pause("Clean")


async def test_a_schedule_that_the_server_lost_begins_again(stage: Stage) -> None:
    queue, done = stage.jobs(), list[JobDelivery[Clean]]()
    queue.on(Clean)(_noting(done))
    queue.cron(EVERY_SECOND, Clean("tmp"))
    async with stage.running(queue):
        await stage.until(lambda: done)
        assert stage.admin.delete(crons(queue)) == 1
        count = len(done)
        await stage.until(lambda: len(done) > count + 1)


async def test_a_schedule_whose_clock_was_ahead_says_so_and_can_be_put_right(stage: Stage) -> None:
    queue, done = stage.jobs(), list[JobDelivery[Clean]]()
    queue.on(Clean)(_noting(done))
    queue.cron(EVERY_SECOND, Clean("tmp"))
    async with stage.running(queue):
        await stage.until(lambda: done)
        put_back(stage.admin, queue, -HOUR)
        await stage.until(
            lambda: [one for one in stage.told(Trouble) if "further than the server's clock" in str(one.error)]
        )
        await queue.schedules.pause("Clean")
        await queue.schedules.resume("Clean")
        count = len(done)
        await stage.until(lambda: len(done) > count + 1)
    assert len(stage.told(Trouble)) == 1


async def test_a_lane_that_is_unfit_keeps_no_other_schedule_from_ticking(stage: Stage) -> None:
    queue, done = stage.jobs(), list[JobDelivery[Clean]]()
    queue.on(Clean)(_noting(done))
    queue.cron(EVERY_SECOND, Clean("low"), name="first", priority=Priority.LOW)
    queue.cron(EVERY_SECOND, Clean("high"), name="second", priority=Priority.HIGH)
    async with stage.running(queue):
        await stage.until(lambda: _of(done, "first") and _of(done, "second"))
        stage.admin.delete(queue.lanes[Priority.LOW])
        stage.admin.set(queue.lanes[Priority.LOW], "x")
        count = len(_of(done, "second"))
        await stage.until(lambda: len(_of(done, "second")) > count + 1)
        assert [one for one in stage.told(Trouble) if "'first'" in str(one.error)]
        stage.admin.delete(queue.lanes[Priority.LOW])


async def test_a_zone_that_is_not_known_here_does_not_spoil_the_list(stage: Stage) -> None:
    queue = stage.jobs()
    queue.on(Clean)(_noting([]))
    queue.cron(YEARLY, Clean("tmp"))
    async with stage.running(queue):
        await begun(stage, queue)
    stage.admin.hset(crons(queue), "times/Clean", f"Europe/Atlantis {YEARLY}")
    (seen,) = await queue.schedules.list()
    assert (seen.timezone, seen.next) == ("Europe/Atlantis", None)


async def test_what_cannot_work_is_refused_at_the_call(stage: Stage) -> None:
    queue = stage.jobs()
    for expression, body, how, said in [
        ("61 * * * *", {}, {"name": "n"}, "Bad minute"),
        ("* * * * *", {}, {"name": "n", "timezone": "Europe/Atlantis"}, "Europe/Atlantis"),
        ("* * * * *", {}, {}, r"cron\(name="),
        ("* * * * *", {}, {"name": "\n"}, "printed"),
        ("* * * * *", {}, {"name": "n", "priority": "hihg"}, "priority"),
        ("* * * * *", {}, {"name": "n", "missed": 5}, "missed"),
    ]:
        with pytest.raises(ConfigurationError, match=said):
            queue.cron(expression, body, **how)
    with pytest.raises(EncodeError):
        queue.cron("* * * * *", {"x": object()}, name="n")
    queue.cron("* * * * *", Clean("a"))
    with pytest.raises(ConfigurationError, match="already"):
        queue.cron("* * * * *", Clean("b"))
    queue.cron("* * * * *", Message(Clean("b"), headers={"of": "me"}), name="b")


async def test_nothing_is_declared_while_it_runs(stage: Stage) -> None:
    queue = stage.jobs()
    queue.on(Clean)(_noting([]))
    async with stage.running(queue):
        with pytest.raises(ConfigurationError, match="running"):
            queue.cron("* * * * *", Clean("a"))


def _of(done: "list[JobDelivery[Any]]", schedule: str) -> "list[JobDelivery[Any]]":
    return [job for job in done if job.metadata["schedule"] == schedule]


def _noting(done: "list[JobDelivery[Any]]") -> Any:
    async def note(job: JobDelivery[Any]) -> None:
        done.append(job)

    return note
