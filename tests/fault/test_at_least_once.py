"""What publish acknowledged is handled or dead-lettered, whatever dies."""

import asyncio
import signal

import pytest
import redis

from penstock.backend.redis.scripts import load
from penstock.options import LEASE, Retry
from tests.fault.closing import audit, look
from tests.fault.evidence import acknowledged, events, handled, refused, taken_over
from tests.fault.journal import Line
from tests.fault.rows import row
from tests.fault.scene import Scene
from tests.fault.servers import ALWAYS, EVERY_SECOND
from tests.fault.size import DUPLICATES, FULL, MESSAGES, MIX


@row("F1 worker killed", redis=True)
async def test_what_a_killed_worker_had_begun_is_handled_by_another(scene: Scene) -> None:
    scene.work()
    scene.produce(fates={"hold": 2, **MIX}, duplicates=DUPLICATES, seconds=600)
    await scene.published()
    killed = await kill_whoever_holds_one(scene)
    await audit(scene)
    scene.prove("workers killed in a handler", killed)
    scene.prove("entries taken over", taken_over(scene))


@pytest.mark.parametrize("batch", [0, 1000], ids=["one by one", "batches of 1000"])
@row("F1 worker killed, configured as for the benchmark")
async def test_what_a_killed_worker_had_begun_is_handled_also_in_the_fastest_configuration(
    scene: Scene, batch: int
) -> None:
    """As benchmarks/sides/bus.py declares it, on a backlog; in the small size without waiting for the default lease."""
    lease = LEASE.total_seconds() if FULL else 2.0
    scene.produce(fates={"hold": 2, **(MIX if FULL else {})}, duplicates=DUPLICATES, seconds=600)
    await scene.published()
    # By default retries come after any time up to their delay: none is too early.
    waits = {"attempts": Retry().attempts, "initial": 0.0, "maximum": 30.0}
    scene.work(as_shipped=True, batch=batch, concurrency=100, lease=lease, **waits)
    killed = await kill_whoever_holds_one(scene)
    await audit(scene)
    scene.prove("workers killed in a handler", killed)
    scene.prove("entries taken over", taken_over(scene))


async def kill_whoever_holds_one(scene: Scene) -> int:
    """Kill every worker that begins a message it would hold for ever, until there is nothing left to do."""
    killed = 0

    def nothing_left_to_kill_or_do() -> bool:
        nonlocal killed
        holders = {line.pid for line in scene.lines("start") if line.do == "hold" and not line.redelivered}
        for worker in scene.workers():
            if worker.pid in holders:
                worker.kill()
                killed += 1
        return scene.left() == 0

    await scene.until(nothing_left_to_kill_or_do, "that everything is settled")
    return killed


@pytest.mark.parametrize("request_lost", ["reclaim", "mark_start"])
@row("F14 replies to a take-over lost")
async def test_the_reply_to_a_take_over_is_lost(scene: Scene, request_lost: str) -> None:
    network = await scene.connect_through_network()
    scene.work()
    await scene.ready()
    # Every scan asks, also when there is nothing to take; a mark is made only for what was taken.
    often = {"every": 3, "most": 30} if request_lost == "reclaim" else {"every": 1, "most": 3}
    network.lose_replies(load(request_lost).sha, **often)
    scene.produce(fates={"hold": 2}, duplicates=DUPLICATES, seconds=600)
    await scene.published()
    killed = await kill_whoever_holds_one(scene)
    network.heal()
    await audit(scene)
    scene.proofs["of"] = request_lost
    scene.prove("workers killed in a handler", killed)
    scene.prove("replies dropped", network.hit["dropped"])


@row("F5 server killed, synced every second", redis=True)
async def test_a_server_that_syncs_every_second_is_killed(scene: Scene) -> None:
    await kill_the_server(scene, EVERY_SECOND)


@row("F6 server killed, synced always")
async def test_a_server_that_syncs_always_is_killed(scene: Scene) -> None:
    await kill_the_server(scene, ALWAYS)


async def kill_the_server(scene: Scene, persistence: tuple[str, ...]) -> None:
    server = scene.serve(*persistence)
    scene.work()
    scene.produce(MESSAGES // 2, fates=MIX, duplicates=DUPLICATES, pause=0.1)
    plain = {one.pid for one in scene.produce(MESSAGES // 2, fates=MIX, once=False, pause=0.1)}

    def told(kind: str) -> list[Line]:
        """Of those who must not repeat a publish whose answer is missing."""
        return [line for line in scene.lines(kind) if line.pid in plain]

    await scene.ready()
    for share in (0.25, 0.5):
        await scene.until(lambda share=share: len(told("acked")) > share * MESSAGES / 2, "some acknowledgements")
        before = server.pid
        if persistence is EVERY_SECOND:
            await asyncio.to_thread(server.keep_what_it_answered)
        scene.breaks(f"server killed {share}")
        server.process.send_signal(signal.SIGSTOP)
        stopped = len(told("intent"))
        await scene.until(lambda stopped=stopped: len(told("intent")) > stopped, "that one more is published")
        await asyncio.sleep(0.3)  # by now every producer waits for an answer
        server.kill()
        server.start()
        scene.heals(f"server killed {share}")
        scene.prove("the server's process changed", int(server.pid != before))
    verdict = await audit(scene)
    scene.prove("publishes nobody knows about", verdict.unknown)


@row("F8 server loading")
async def test_workers_wait_for_a_server_that_is_loading(scene: Scene) -> None:
    server = scene.serve(*ALWAYS)
    with server.client() as admin, admin.pipeline(transaction=False) as pipe:
        for n in range(12_000):
            pipe.set(f"ballast:{n}", n)
        pipe.execute()
    workers = scene.work()
    scene.produce(fates=MIX, duplicates=DUPLICATES, pause=0.1)
    await scene.until(lambda: acknowledged(scene) > MESSAGES / 4, "some acknowledgements")
    scene.breaks("server loading")
    server.kill()
    server.start_unwatched("--key-load-delay", "150")
    busy = await answers_while_loading(scene)
    scene.heals("server loading")
    scene.prove("answers that said LOADING", busy)
    await audit(scene, most_log_lines=2000)
    assert [worker.code for worker in workers] == [0] * len(workers), "a worker died of a server that was loading"


async def answers_while_loading(scene: Scene) -> int:
    busy, is_up = 0, False
    with scene.server.client() as admin:

        def looked() -> bool:
            nonlocal busy, is_up
            try:
                admin.ping()
                admin.get("ballast:1")
                is_up = True
            except redis.BusyLoadingError:
                busy += 1
            except redis.ConnectionError:
                is_up = False
            return is_up

        await scene.until(looked, "that the server is up")
    return busy


@pytest.mark.parametrize("request_lost", ["XREADGROUP", "settle", "park", "promote"])
@row("F14 replies lost")
async def test_the_reply_to_what_a_worker_asked_is_lost(scene: Scene, request_lost: str) -> None:
    network = await scene.connect_through_network()
    scene.work()
    await scene.ready()
    word = request_lost if request_lost.isupper() else load(request_lost).sha
    network.lose_replies(word, every=2, most=12)
    scene.produce(fates=MIX, duplicates=DUPLICATES)
    await scene.published()
    await scene.until(lambda: network.hit["dropped"] > 0 and handled(scene) > MESSAGES / 2, "that some are handled")
    network.heal()
    scene.proofs["of"] = request_lost
    scene.prove("replies dropped", network.hit["dropped"])
    await audit(scene)


@row("F15 reset in the middle of a reply")
async def test_the_connection_is_reset_in_the_middle_of_a_reply(scene: Scene) -> None:
    network = await scene.connect_through_network()
    scene.work()
    await scene.ready()
    network.lose_replies("XREADGROUP", every=3, most=12, after=40)
    scene.produce(fates=MIX, duplicates=DUPLICATES)
    await scene.published()
    await scene.until(lambda: network.hit["cut short"] > 0 and handled(scene) > MESSAGES / 2, "that some are handled")
    network.heal()
    scene.prove("replies cut short", network.hit["cut short"])
    await audit(scene)


@pytest.mark.parametrize("how", ["blackhole", "half_open"])
@row("F15 silent network")
async def test_the_network_goes_silent_without_a_word(scene: Scene, how: str) -> None:
    network = await scene.connect_through_network()
    scene.work()
    scene.produce(fates=MIX, duplicates=DUPLICATES, pause=0.2)
    await scene.until(lambda: handled(scene) > MESSAGES / 8, "that some are handled")
    scene.prove("wires that went silent", network.blackhole() if how == "blackhole" else network.half_open())
    # A wire that says nothing is given up after its timeout; until then nobody can know.
    await scene.until(lambda: handled(scene) > MESSAGES / 2, "that work goes on over new wires")
    scene.prove("pieces that went nowhere", network.hit["swallowed"] + network.hit["unheard"])
    await audit(scene)


@row("F21 group destroyed")
async def test_a_group_that_is_destroyed_is_made_again_and_skips_nothing(scene: Scene) -> None:
    scene.work()
    scene.produce(fates=MIX, duplicates=DUPLICATES, pause=0.1)
    await scene.until(lambda: handled(scene) > MESSAGES / 4, "that some are handled")
    scene.breaks("group destroyed")
    scene.prove("groups destroyed", scene.admin.xgroup_destroy(scene.topic, "g"))
    await scene.until(lambda: bool(events(scene, "GroupRestored")), "that the group is back")
    buried_before = sum(not letter.lost for letter in look(scene).dead)
    await scene.published()
    scene.heals("group destroyed", group="g", facts={"letters": buried_before})
    await audit(scene)


@row("F21 eight start at once")
async def test_eight_workers_that_start_at_once_make_one_group_and_skip_nothing(scene: Scene) -> None:
    scene.produce(duplicates=DUPLICATES)
    await scene.published()
    scene.work(8)
    await scene.ready()
    groups = [group["name"] for group in scene.admin.xinfo_groups(scene.topic)]
    await audit(scene)
    scene.prove("workers that started", len(scene.lines("ready")))
    assert groups.count(b"g") == 1
    assert refused(scene, "") == 0
