"""Trimming takes only what nobody needs any more."""

from tests.fault.closing import audit
from tests.fault.evidence import events
from tests.fault.rows import row
from tests.fault.scene import Scene
from tests.fault.size import DUPLICATES, MIX


@row("P10 retention with a slow group")
async def test_retention_takes_nothing_that_a_slow_group_still_needs(scene: Scene) -> None:
    brisk = {"keep": 0.1, "cleans_every": 0.2}
    scene.work(2, group="fast", **brisk)
    scene.work(1, group="slow", concurrency=1, **brisk)
    await scene.ready()  # nothing is kept for a group that does not exist yet
    scene.produce(fates={"slow": 20, **MIX}, duplicates=DUPLICATES, seconds=0.05)
    verdict = await audit(scene)
    removed = sum(line.facts["removed"] for line in events(scene, "Trimmed"))
    scene.prove("entries that were trimmed", removed)
    assert removed <= verdict.intended
    pinned = [line.facts["pinned_by"] for line in events(scene, "Trimmed") if line.facts["pinned_by"]]
    scene.prove("times that a group held the trimming back", len(pinned))
