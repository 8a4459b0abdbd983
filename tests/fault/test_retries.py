"""A retry is its group's own affair: durable, delayed, and never seen by another group."""

from tests.fault.closing import audit
from tests.fault.evidence import events
from tests.fault.rows import row
from tests.fault.scene import Scene
from tests.fault.size import DUPLICATES, MIX


@row("P6 two groups retry")
async def test_what_one_group_retries_the_other_never_sees_again(scene: Scene) -> None:
    scene.work(2, group="billing")
    scene.work(2, group="mailing")
    scene.produce(fates=MIX, duplicates=DUPLICATES)
    verdict = await audit(scene)
    history = scene.history()
    for group in scene.groups:
        tried = [runs for (of, _), runs in history.runs.items() if of == group]
        assert len(tried) == verdict.intended, "each group gets every message"
        scene.prove(f"retries of {group}", sum(len(runs) - 1 for runs in tried))
    scene.prove("deliveries that were parked", len(events(scene, "Parked")))
