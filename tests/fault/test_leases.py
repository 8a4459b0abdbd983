"""A handler that runs keeps its lease, whatever it does to its process and however slow the way to the server is."""

from tests.fault.closing import audit
from tests.fault.evidence import events
from tests.fault.rows import row
from tests.fault.scene import Scene
from tests.fault.size import DUPLICATES

LEASE = 1.0


def outlasted(scene: Scene) -> int:
    """Handlers that took longer than the lease."""
    runs = [run for of_one in scene.history().runs.values() for run in of_one]
    return sum(run.finish is not None and run.finish.at - run.start.at > LEASE for run in runs)


@row("F4 event loop blocked")
async def test_a_handler_that_blocks_the_event_loop_keeps_its_lease(scene: Scene) -> None:
    scene.work(2, lease=LEASE)
    await scene.ready()
    scene.produce(fates={"block": 1}, duplicates=DUPLICATES, seconds=2.5 * LEASE)
    await audit(scene, longest_pause=12 * LEASE)
    scene.prove("handlers that outlasted their lease", outlasted(scene))
    assert not events(scene, "Reclaimed"), "somebody's lease ran out"


@row("F16 slow network")
async def test_leases_are_kept_over_a_slow_network(scene: Scene) -> None:
    network = await scene.connect_through_network()
    network.slow_down(delay=0.1, jitter=0.08, rate=64 * 1024)
    scene.work(2, lease=2 * LEASE)
    await scene.ready()
    scene.produce(fates={"slow": 3}, duplicates=DUPLICATES, seconds=5 * LEASE)
    await audit(scene, longest_pause=15 * LEASE)
    scene.prove("pieces that were slowed down", network.hit["slowed"])
    scene.prove("handlers that outlasted their lease", outlasted(scene))
    assert not events(scene, "Reclaimed"), "somebody's lease ran out"
