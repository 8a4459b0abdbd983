"""The same promises for jobs: three lanes, one crew, and nothing of them is lost, whatever dies."""

import asyncio
import signal

import pytest

from penstock.backend.redis.scripts import load
from tests.fault.behaviour import AT_ONCE, KILLING
from tests.fault.closing import audit
from tests.fault.evidence import acknowledged, events, handled, taken_over
from tests.fault.lanes import topics_of
from tests.fault.programs import Program
from tests.fault.rows import row
from tests.fault.scene import Scene
from tests.fault.servers import EVERY_SECOND
from tests.fault.size import DUPLICATES, FULL, MESSAGES, MIX
from tests.fault.test_fencing import awake_beside_its_successor
from tests.fault.test_loss_is_loud import BACKLOG, afterwards

LEASE = 2.0 if FULL else 0.8
SHARE = 16
CONCURRENCY = 4
QUEUED = 80


@pytest.fixture(autouse=True)
def of_jobs(scene: Scene) -> None:
    scene.lanes = True


@row("F1 F2 F4 jobs: worker killed, frozen, blocked", redis=True)
async def test_jobs_of_workers_that_are_killed_frozen_or_blocked_are_done(scene: Scene) -> None:
    scene.work(1, lease=LEASE)
    killed, _ = await holding(scene, "hold")
    killed.kill()
    frozen, tag = await holding(scene, "gated")
    frozen.freeze()
    scene.work(1, lease=LEASE)
    scene.produce(fates={"block": 1, **MIX}, duplicates=DUPLICATES, seconds=1.5 * LEASE)
    gone = {frozen.pid, killed.pid}
    await scene.first(1, "start", where=lambda line: line.tag == tag and line.pid not in gone)
    await awake_beside_its_successor(scene, frozen, tag)
    await audit(scene, longest_pause=15 * LEASE)
    scene.prove("jobs taken over", taken_over(scene))
    scene.prove("settles that were fenced", len([line for line in events(scene, "Fenced") if line.pid == frozen.pid]))


async def holding(scene: Scene, do: str) -> tuple[Program, str]:
    """A worker that has begun a job, and the job's tag."""
    scene.produce(1, producers=1, fates={do: 1}, seconds=600)
    (began,) = await scene.first(1, "start", where=lambda line: line.do == do)
    return next(worker for worker in scene.workers() if worker.pid == began.pid), began.tag


@row("F3 jobs: asked to leave", redis=True)
async def test_a_worker_of_jobs_that_is_asked_to_leave_drains(scene: Scene) -> None:
    scene.produce(QUEUED, producers=1, fates={"slow": QUEUED}, seconds=0.1)
    await scene.published()
    (leaving,) = scene.work(1, lease=600.0, concurrency=CONCURRENCY)
    await scene.first(2 * CONCURRENCY, "start")
    before = scene.journal.write("seen", name="about to ask").at
    leaving.ask_to_leave()
    asked = scene.journal.write("seen", name="asked to leave").at
    await scene.until(lambda: leaving.code is not None, "that the worker leaves")
    assert leaving.code == 0, leaving.printed()[-3000:]
    scene.prove("handlers that were running", len([line for line in scene.lines("end") if line.at > before]))
    assert not scene.lines("raised"), "what is running is not interrupted"
    begun = [line for line in scene.lines("start") if line.at > asked]
    assert len(begun) < QUEUED // 2, "it begins nothing more when it has heard of it"
    scene.work(1, lease=600.0, concurrency=QUEUED)
    await audit(scene)


@row("F5 jobs: server killed, synced every second", redis=True)
async def test_jobs_queued_and_scheduled_survive_a_server_that_is_killed(scene: Scene) -> None:
    server = scene.serve(*EVERY_SECOND)
    scene.work(lease=LEASE)
    scene.produce(MESSAGES // 2, fates=MIX, duplicates=DUPLICATES, pause=0.05)
    scene.produce(20, producers=1, delay=3.0)
    scene.produce(20, producers=1, delay=3.0, once=False)
    await scene.ready()
    await scene.until(lambda: acknowledged(scene) > MESSAGES / 4, "some acknowledgements")
    before = server.pid
    await asyncio.to_thread(server.keep_what_it_answered)
    scene.breaks("server killed")
    server.process.send_signal(signal.SIGSTOP)
    await asyncio.sleep(0.3)  # by now every producer waits for an answer
    server.kill()
    server.start()
    scene.heals("server killed")
    scene.prove("the server's process changed", int(server.pid != before))
    await audit(scene)


@pytest.mark.parametrize("request_lost", ["read_lanes", "settle", "unique"])
@row("F14 jobs: replies lost")
async def test_the_reply_to_what_was_asked_of_a_queue_is_lost(scene: Scene, request_lost: str) -> None:
    network = await scene.connect_through_network()
    scene.work(lease=LEASE)
    await scene.ready()
    network.lose_replies(load(request_lost).sha, every=3, most=9)
    scene.produce(MESSAGES // 2, fates=MIX, duplicates=DUPLICATES)
    await scene.published()
    await scene.until(lambda: network.hit["dropped"] > 0 and handled(scene) > MESSAGES / 6, "that some are done")
    network.heal()
    scene.proofs["of"] = request_lost
    scene.prove("replies dropped", network.hit["dropped"])
    await audit(scene)


@row("F25 jobs: poison of every kind")
async def test_poison_among_jobs_ends_in_the_dead_letters(scene: Scene) -> None:
    scene.work(attempts=2, lease=LEASE, timeout=1.0)
    poison = dict.fromkeys([*AT_ONCE, *KILLING], 1)
    scene.produce(60, producers=1, fates={**poison, "slow": 10, "flaky": 5}, duplicates=DUPLICATES, seconds=0.1)
    await scene.published()
    verdict = await audit(scene)
    scene.prove("handlers that were stuck", len(events(scene, "HandlerStuck")))
    scene.prove("processes that died", len(scene.lines("died")))
    assert verdict.dead == len(poison)


@row("F32 priority starvation")
async def test_a_flood_of_urgent_jobs_leaves_the_others_their_share_also_when_workers_die(scene: Scene) -> None:
    flood = MESSAGES * 4 if FULL else 600
    scene.produce(flood, producers=1, priority="high", abreast=50, fates={"slow": flood}, seconds=0.005)
    scene.produce(60, producers=1, priority="low", abreast=50)
    await scene.published()
    (doomed,) = scene.work(1, lease=LEASE, concurrency=2)
    await scene.first(100, "start")
    doomed.kill()
    await audit(scene)
    starts = sorted(scene.lines("start"), key=lambda line: line.at)
    last_flood = [at for at, line in enumerate(starts) if line.topic.endswith(":high")][-1]
    low = [line for line in starts[:last_flood] if line.topic.endswith(":low")]
    scene.prove("urgent jobs begun meanwhile", last_flood)
    # All sixty, or at least their share of what was begun until the flood was over.
    assert len(low) >= min(60, last_flood / SHARE - 8), (len(low), last_flood)


@row("F22 jobs: trimmed beneath the lanes", redis=True)
async def test_jobs_that_are_trimmed_beneath_the_lanes_are_told_with_their_number(scene: Scene) -> None:
    """Where a job is held, and later ones are done and dropped, servers from 7.2 on lose count of what was read."""
    scene.work(2, concurrency=2, lease=LEASE)
    scene.produce(BACKLOG, producers=2, fates={"gated": 3, "slow": BACKLOG // 2}, seconds=0.02)
    await scene.published()
    await scene.first(3, "start", where=lambda line: line.do == "gated")
    before = handled(scene)
    await scene.until(lambda: handled(scene) > before + 20, "that later ones are done")
    scene.breaks("trimmed")
    gone = [scene.admin.xtrim(lane, maxlen=1, approximate=False) for lane in topics_of(scene.topic, lanes=True)]
    scene.prove("jobs trimmed", sum(gone))
    scene.heals("trimmed")
    await afterwards(scene)
    history = scene.history()
    missing = {tag for tag in history.acks if not any(run.ended for run in history.runs.get(("g", tag), ()))}
    assert sum(line.facts["count"] for line in events(scene, "Lost")) == len(missing), "the alarms count exactly"
