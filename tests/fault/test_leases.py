"""A handler that runs keeps its lease, whatever it does to its process and however slow the way to the server is."""

import pytest

from tests.fault.closing import audit
from tests.fault.rows import row
from tests.fault.scene import Scene
from tests.fault.size import DUPLICATES, MESSAGES

LEASE = 1.0


def outlasted(scene: Scene) -> int:
    """Handlers that took longer than the lease."""
    lease = scene.setups[0].lease
    runs = [run for of_one in scene.history().runs.values() for run in of_one]
    return sum(run.finish is not None and run.finish.at - run.start.at > lease for run in runs)


def begun_once(scene: Scene) -> bool:
    """Nothing that was begun was taken from who had begun it; what only waited may have been.

    But for what the machine itself took, by giving its holder or the server no turn for longer than the lease.
    """
    history = scene.history()
    return all(len(runs) == 1 or history.robbed(runs, 0) for runs in history.runs.values())


@row("F4 event loop blocked")
async def test_a_handler_that_blocks_the_event_loop_keeps_its_lease(scene: Scene) -> None:
    scene.work(2, lease=LEASE)
    await scene.ready()
    scene.produce(fates={"block": 1}, duplicates=DUPLICATES, seconds=2.5 * LEASE)
    await audit(scene, longest_pause=12 * LEASE)
    scene.prove("handlers that outlasted their lease", outlasted(scene))
    assert begun_once(scene)


@pytest.mark.parametrize("do", ["block", "slow"])
@row("F4 read ahead")
async def test_what_was_read_ahead_keeps_its_lease_until_its_turn_comes(scene: Scene, do: str) -> None:
    """After many that were quick, a worker reads ahead; then something takes long, and what was read has to wait."""
    many = max(MESSAGES, 1000)
    slow = 1 if do == "block" else 8
    scene.produce(many, producers=1, abreast=100, fates={do: slow}, in_order=True, seconds=2.5 * LEASE)
    await scene.published()
    scene.produce(many, producers=1, abreast=100)
    await scene.published()
    scene.work(2, lease=LEASE)
    await audit(scene, longest_pause=12 * LEASE)
    scene.prove("handlers that outlasted their lease", outlasted(scene))
    assert begun_once(scene)


@row("F16 slow network")
async def test_leases_are_kept_over_a_slow_network(scene: Scene) -> None:
    network = await scene.connect_through_network()
    network.slow_down(delay=0.1, jitter=0.08, rate=64 * 1024)
    scene.work(2, lease=3 * LEASE)
    await scene.ready()
    scene.produce(fates={"slow": 2}, duplicates=DUPLICATES, seconds=5 * LEASE)
    await audit(scene, longest_pause=15 * LEASE)
    scene.prove("pieces that were slowed down", network.hit["slowed"])
    scene.prove("handlers that outlasted their lease", outlasted(scene))
    assert begun_once(scene)
