"""Stopping is orderly: in time, with exit code 0, and with everything unfinished in the hands of others at once."""

import pytest

from tests.fault.closing import audit
from tests.fault.evidence import events
from tests.fault.rows import row
from tests.fault.scene import Scene

LEASE = 600.0
"""Far longer than the test may take: what is not handed back would be missing."""


@pytest.mark.parametrize("how", [{}, {"batch": 4}, {"in_thread": True}], ids=["one by one", "in batches", "in threads"])
@row("F3 asked to leave")
async def test_a_worker_that_is_asked_to_leave_drains_and_hands_the_rest_back(
    scene: Scene, how: dict[str, int]
) -> None:
    scene.produce(producers=1, abreast=1, fates={"slow": 80}, in_order=True, seconds=0.2)
    await scene.published()
    (leaving,) = scene.work(1, lease=LEASE, concurrency=2, **how)
    # Those before were so quick that it has learnt to read many at once: it holds far more than it has begun.
    await scene.first(4, "start", where=lambda line: line.do == "slow")
    asked = scene.journal.write("seen", name="asked to leave").at
    leaving.ask_to_leave()
    await scene.until(lambda: leaving.code is not None, "that the worker leaves")
    assert leaving.code == 0, leaving.printed()[-3000:]
    scene.prove("handlers that were running", len([line for line in scene.lines("end") if line.at > asked]))
    stopped = events(scene, "Stopped")
    scene.prove("entries handed back", sum(line.facts["handed_back"] for line in stopped))
    assert sum(line.facts["abandoned"] for line in stopped) == 0
    scene.work(2, lease=LEASE, **how)
    await audit(scene)
