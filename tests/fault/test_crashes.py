"""A crash is blamed on the message that caused it; the innocent beside it lose nothing."""

from tests.fault.behaviour import AT_ONCE, KILLING
from tests.fault.closing import audit
from tests.fault.evidence import events
from tests.fault.rows import row
from tests.fault.scene import Scene
from tests.fault.size import DUPLICATES

BUDGET = 2


@row("F25 poison of every kind")
async def test_poison_of_every_kind_ends_in_the_dead_letters_and_the_innocent_are_handled(scene: Scene) -> None:
    scene.work(attempts=BUDGET, lease=1.0, timeout=1.0)
    poison = dict.fromkeys([*AT_ONCE, *KILLING], 1)
    scene.produce(producers=1, fates={**poison, "slow": 20, "flaky": 5}, duplicates=DUPLICATES, seconds=0.1)
    await scene.published()
    verdict = await audit(scene)
    for kind in ("os_exit", "segfault", "spin"):
        scene.prove(f"processes that died of {kind}", deaths_of(scene, kind))
    scene.prove("handlers that were stuck", len(events(scene, "HandlerStuck")))
    assert verdict.dead == len(poison)


@row("F25 a thread that never ends")
async def test_a_handler_that_never_ends_in_its_thread_stops_nobody_and_is_given_up(scene: Scene) -> None:
    """Nothing can end it, so each worker that tries it loses a thread, and goes on with everything else."""
    scene.work(BUDGET + 2, attempts=BUDGET, lease=0.5, timeout=0.5, drain=1.0, in_thread=True)
    await scene.ready()
    scene.produce(producers=1, fates={"never": 1, "flaky": 5, "slow": 40}, duplicates=DUPLICATES, seconds=0.05)
    await scene.published()
    await scene.first(1, "event", where=lambda line: line.name == "DeadLettered")
    scene.produce(producers=1, duplicates=DUPLICATES)
    verdict = await audit(scene)
    scene.prove("handlers that were stuck", len(events(scene, "HandlerStuck")))
    assert verdict.dead == 1
    assert not scene.lines("died"), "each worker leaves in order, whatever its threads do"


@row("F25 fresh poison beside the innocent")
async def test_the_innocent_survive_fresh_poison_beside_them(scene: Scene) -> None:
    """What was taken over from a dead worker is watched, and must not be blamed for what kills the next one."""
    scene.work(1, attempts=BUDGET, lease=1.0)
    scene.produce(2, producers=1, fates={"slow": 2}, seconds=1.0)
    await scene.first(2, "start")
    scene.produce(3, producers=1, fates={"os_exit": 3}, abreast=1, pause=0.8)
    verdict = await audit(scene, longest_pause=15.0)
    scene.prove("processes that died", deaths_of(scene, "os_exit"))
    assert (verdict.handled, verdict.dead) == (2, 3)


def deaths_of(scene: Scene, kind: str) -> int:
    history = scene.history()
    return sum(history.deadly(run) for runs in history.runs.values() for run in runs if run.start.do == kind)
