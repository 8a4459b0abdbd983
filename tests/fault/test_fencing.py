"""Only who still holds an entry settles it."""

from tests.fault.closing import audit
from tests.fault.evidence import events
from tests.fault.rows import row
from tests.fault.scene import Scene
from tests.fault.size import DUPLICATES, MIX

LEASE = 2.0


@row("F2 zombie", redis=True)
async def test_a_worker_that_was_frozen_past_its_lease_settles_nothing(scene: Scene) -> None:
    scene.work(1, lease=LEASE)
    await scene.ready()
    scene.produce(1, producers=1, fates={"slow": 1}, seconds=1.5 * LEASE)
    (began,) = await scene.first(1, "start", where=lambda line: line.do == "slow")
    (zombie,) = scene.workers()
    zombie.freeze()
    scene.work(2, lease=LEASE)
    scene.produce(fates=MIX, duplicates=DUPLICATES)
    await scene.first(1, "start", where=lambda line: line.tag == began.tag and line.pid != zombie.pid)
    zombie.thaw()
    await scene.first(1, "end", where=lambda line: line.tag == began.tag and line.pid == zombie.pid)
    verdict = await audit(scene)
    scene.prove("settles that were fenced", len([line for line in events(scene, "Fenced") if line.pid == zombie.pid]))
    scene.prove("handled twice, as documented", verdict.repeated)
