"""Only who still holds an entry settles it."""

import asyncio

from tests.fault.closing import audit
from tests.fault.conduct import SETTLING
from tests.fault.evidence import events
from tests.fault.programs import Program
from tests.fault.rows import row
from tests.fault.scene import Scene
from tests.fault.size import DUPLICATES, MIX

LEASE = 2.0


@row("F2 zombie", redis=True)
async def test_a_worker_that_was_frozen_past_its_lease_settles_nothing(scene: Scene) -> None:
    scene.work(1, lease=LEASE)
    await scene.ready()
    scene.produce(1, producers=1, fates={"gated": 1})
    (began,) = await scene.first(1, "start", where=lambda line: line.do == "gated")
    (zombie,) = scene.workers()
    zombie.freeze()
    scene.work(2, lease=LEASE)
    scene.produce(fates=MIX, duplicates=DUPLICATES)
    await scene.first(1, "start", where=lambda line: line.tag == began.tag and line.pid != zombie.pid)
    await awake_beside_its_successor(scene, zombie, began.tag)
    verdict = await audit(scene)
    scene.prove("settles that were fenced", len([line for line in events(scene, "Fenced") if line.pid == zombie.pid]))
    scene.prove("handled twice, as documented", verdict.repeated)


async def awake_beside_its_successor(scene: Scene, zombie: Program, tag: str) -> None:
    """Thaw it, and have it end and settle its message while another, who has begun the same, is still at it."""
    scene.let_in()
    zombie.thaw()
    (ended,) = await scene.first(1, "end", where=lambda line: line.tag == tag and line.pid == zombie.pid)
    settled = {"Fenced", "Handled"}
    await scene.first(
        1, "event", where=lambda line: line.name in settled and line.pid == zombie.pid and line.at > ended.at
    )
    await asyncio.sleep(1.5 * SETTLING)  # sooner, the checker could not tell who was at it when
    scene.let_in(again=True)
