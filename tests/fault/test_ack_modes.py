"""Settling by hand is at least once as well; settling on receipt is at most once, and says what that cost."""

from penstock.options import AckMode
from tests.fault.closing import audit
from tests.fault.evidence import events, handled, taken_over
from tests.fault.rows import row
from tests.fault.scene import Scene
from tests.fault.size import DUPLICATES, MESSAGES, MIX, PRODUCERS

TIMEOUT = 1.5


@row("P1 settled by hand")
async def test_what_is_settled_by_hand_survives_a_killed_worker_and_a_handler_that_forgets(scene: Scene) -> None:
    """What is taken over runs one by one, and all of it together takes longer than one of them may."""
    terms = {"ack": AckMode.MANUAL.value, "timeout": TIMEOUT, "lease": 1.0}
    (victim,) = scene.work(1, **terms)
    scene.produce(8, producers=1, fates={"slow": 8}, seconds=TIMEOUT / 3)
    await scene.first(8, "start")
    victim.kill()
    scene.work(1, **terms)
    scene.produce(fates={"forget": 2, **MIX}, duplicates=DUPLICATES)
    verdict = await audit(scene, longest_pause=12.0)
    scene.prove("entries taken over", taken_over(scene))
    scene.prove("messages nobody settled at first", forgotten(scene))
    assert verdict.handled + verdict.dead == verdict.intended


def forgotten(scene: Scene) -> int:
    return len([line for line in scene.lines("raised") if line.error == "Forgotten"])


@row("P1 settled on receipt")
async def test_what_is_settled_on_receipt_runs_once_at_most_and_what_that_costs_is_told(scene: Scene) -> None:
    # With so short a lease, what comes to workers that have waited for it must be looked at before it is run.
    scene.work(ack=AckMode.ON_RECEIVE.value, drain=0.5, lease=0.6)
    await scene.ready()
    scene.produce(fates={"hold": 1, **MIX}, duplicates=DUPLICATES, seconds=600)
    await scene.published()
    fail = 2 * MIX["raise"] * PRODUCERS
    held = await scene.first(PRODUCERS, "start", where=lambda line: line.do == "hold")
    # Only what a handler has begun dies with its worker: all the others are done by then.
    await scene.until(lambda: handled(scene) == MESSAGES - fail - PRODUCERS, "that all the others are handled")
    (victim,) = [worker for worker in scene.workers() if worker.pid == held[0].pid]
    victim.kill()
    scene.produce(producers=1, fates={"hold": 2}, seconds=600)
    await scene.published()
    await scene.first(PRODUCERS + 2, "start", where=lambda line: line.do == "hold")
    verdict = await audit(scene, at_most_once=True)
    scene.prove("messages that died with their worker", sum(line.pid == victim.pid for line in held))
    scene.prove("failures that were told", len(events(scene, "Failed")))
    scene.prove("handlers cut short that were told", interrupted(scene))
    assert verdict.dead == 0


def interrupted(scene: Scene) -> int:
    drops = [line for line in events(scene, "Trouble") if line.facts["scope"] == "drop"]
    return sum("interrupted" in line.facts["error"] for line in drops)
