"""A server at its limit refuses to be given more. Whoever starts then handles and settles what waits all the same."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
import redis

from penstock import Cursor, Delivery, JobDelivery
from penstock.backend import keys
from penstock.events import GroupRestored, Handled
from penstock.manager import ConsumerGroupConfig, RedisStreamManager
from tests.support.managing import GROUP, Managing, numbers
from tests.support.servers import Server
from tests.support.stage import Stage

pytestmark = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)


@contextmanager
def full(admin: "redis.Redis") -> Iterator[None]:
    admin.config_set("maxmemory", 1)
    try:
        with pytest.raises(redis.exceptions.OutOfMemoryError):
            admin.set("more", "x")
        yield
    finally:
        admin.config_set("maxmemory", 0)


async def handle_all(stage: Stage, count: int) -> None:
    """Start a worker of the group as a process would, and see it settle so many."""
    async with stage.another() as other:
        bus, seen = other.bus(), list[int]()

        @bus.on(dict)
        async def handle(delivery: Delivery[dict[str, int]]) -> None:
            seen.append(delivery.body["n"])

        async with other.running(bus):
            await other.settled()
        assert sorted(seen) == list(range(count))
        assert sum(one.count for one in other.told(Handled)) == count


async def test_a_worker_that_starts_again_settles_what_waits(stage: Stage) -> None:
    await stage.bus().publish_many([{"n": 0}])
    await handle_all(stage, 1)
    await stage.bus().publish_many([{"n": n} for n in range(20)])
    with full(stage.admin):
        await handle_all(stage, 20)


async def test_a_worker_of_a_group_that_nobody_had_settles_what_waits(stage: Stage) -> None:
    """On a topic that other programs fill, too, which nobody has listed."""
    for n in range(20):
        stage.add_raw({"payload": f'{{"n": {n}}}'})
    with full(stage.admin):
        await handle_all(stage, 20)
    assert stage.admin.sismember(keys.TOPICS, stage.topic)


async def test_a_group_that_is_destroyed_is_made_again(stage: Stage) -> None:
    await stage.bus().publish_many([{"n": n} for n in range(20)])
    bus, seen = stage.bus(), list[int]()

    @bus.on(dict)
    async def handle(delivery: Delivery[dict[str, int]]) -> None:
        seen.append(delivery.body["n"])

    async with stage.running(bus):
        await stage.settled()
        with full(stage.admin):
            stage.admin.xgroup_destroy(stage.topic, "g")
            await stage.until(lambda: stage.told(GroupRestored))
            await stage.settled()
    assert set(seen) == set(range(20))


async def test_workers_of_a_queue_that_start_again_do_what_waits(stage: Stage) -> None:
    queue, done = stage.jobs(), list[int]()

    @queue.on(dict)
    async def do(job: JobDelivery[dict[str, int]]) -> None:
        done.append(job.body["n"])

    queue.cron("0 0 1 1 *", {"n": -1}, name="yearly")
    await queue.enqueue_many([{"n": n} for n in range(20)])
    with full(stage.admin):
        async with stage.running(queue):
            await stage.all_done(queue)
            home = keys.crons(keys.queue_home(queue.name, queue.topics[0]))
            await stage.until(lambda: stage.admin.hexists(home, "times/yearly"))  # it counts from now on
    assert sorted(done) == list(range(20))


async def test_what_fills_it_can_be_paused(stage: Stage) -> None:
    """A group whose retries fill it, a queue, and a schedule."""
    queue = stage.jobs()

    @queue.on(dict)
    async def do(job: JobDelivery[dict[str, int]]) -> None: ...

    queue.cron("0 0 1 1 *", {"n": -1}, name="yearly")
    home = keys.crons(keys.queue_home(queue.name, queue.topics[0]))
    async with stage.running(queue):
        await stage.until(lambda: stage.admin.hexists(home, "times/yearly"))
    with full(stage.admin):
        await stage.app.backend.pause(stage.topic, "g")
        await queue.pause()
        await queue.schedules.pause("yearly")
    for topic, group in ((stage.topic, "g"), (queue.topics[0], keys.JOB_GROUP)):
        assert (await stage.app.backend.watch(topic, group)).paused
    assert [(one.name, one.is_paused) for one in await queue.schedules.list()] == [("yearly", True)]


async def test_jobs_are_pulled_by_who_comes_anew(stage: Stage) -> None:
    queue = stage.jobs()
    await queue.enqueue({"n": 1})
    with full(stage.admin):
        async with stage.another() as other, other.jobs().take(timedelta(seconds=5)) as job:
            assert job is not None
        await stage.all_done(queue)


async def test_a_manager_that_comes_anew_reads_and_settles(server: Server, admin: "redis.Redis", topic: str) -> None:
    async with Managing(server, admin, topic) as managing:
        first = await managing.manager()
        for n in range(5):
            await first.send_message(managing.first, {"n": n})
        with full(admin):
            manager = RedisStreamManager(await managing.client())
            try:
                await manager.create_consumer_group(ConsumerGroupConfig(GROUP, [managing.first, managing.second]))
                found = await manager.read_messages(GROUP, count=5)
                assert numbers(found) == list(range(5))
                for message in found:
                    assert await manager.acknowledge(message)
            finally:
                await manager.close()
        assert managing.pending() == 0


async def test_a_follower_goes_on_behind_its_cursor_and_moves_it(stage: Stage) -> None:
    await stage.bus().publish_many([{"n": n} for n in range(4)])

    async def two() -> list[int]:
        bodies = list[int]()
        async with (
            stage.another() as other,
            other.app.tail(stage.topic, after=Cursor("copy", start="earliest")) as tail,
        ):
            async for item in tail:
                bodies.append(item.message.body["n"])  # type: ignore[union-attr] - it is no gap
                assert await item.commit()  # type: ignore[union-attr]
                if len(bodies) == 2:
                    break
        return bodies

    assert await two() == [0, 1]
    with full(stage.admin):
        assert await two() == [2, 3]
