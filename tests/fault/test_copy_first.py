"""The copy is written before the original is released: a full server, or a lost reply, loses no message between."""

from penstock.backend.redis.scripts import load
from tests.fault.closing import audit
from tests.fault.evidence import events, refused
from tests.fault.rows import row
from tests.fault.scene import Scene
from tests.fault.size import DUPLICATES, MESSAGES, POISON


@row("F14 replies to a dead-lettering lost")
async def test_the_reply_to_a_dead_lettering_is_lost(scene: Scene) -> None:
    network = await scene.connect_through_network()
    scene.work(attempts=1)
    await scene.ready()
    network.lose_replies(load("dead_letter").sha, every=2, most=20)
    scene.produce(fates={"raise": 4 * POISON}, duplicates=DUPLICATES)
    await scene.until(lambda: network.hit["dropped"] > 1, "that replies are lost")
    await scene.published()
    network.heal()
    verdict = await audit(scene)
    scene.prove("replies dropped", network.hit["dropped"])
    scene.prove("dead letters", verdict.dead)


@row("F17 out of memory", redis=True)
async def test_a_server_that_is_full_still_takes_acks_and_loses_no_dead_letter(scene: Scene) -> None:
    scene.serve("--maxmemory-policy", "noeviction")
    scene.work(2, attempts=2, concurrency=4)
    await scene.ready()
    scene.produce()
    acked = lambda: sum(line.facts["count"] for line in events(scene, "Handled"))  # noqa: E731
    await scene.until(lambda: acked() >= MESSAGES, "that those without a gate are acked")
    # Not before: they take every runner, and what comes behind them waits until the gate is opened.
    gated = {"gated_raise": 2 * POISON, "gated": 10}
    scene.produce(sum(gated.values()), producers=1, fates=gated, in_order=True)
    await scene.published()
    await scene.first(1, "start", where=lambda line: line.do == "gated_raise")
    scene.admin.config_set("maxmemory", 1)
    scene.let_in()
    scene.let_in(again=True)
    scene.produce(8, producers=1, persist=False)
    await scene.until(lambda: refused(scene, "ServerOutOfMemoryError") >= 8, "that publishes are refused")
    troubles = lambda: [line for line in events(scene, "Trouble") if "OOM" in line.facts["error"]]  # noqa: E731
    await scene.until(lambda: bool(troubles()) and acked() > MESSAGES, "that acks go on and dead letters wait")
    acks = acked() - MESSAGES
    scene.admin.config_set("maxmemory", 0)
    scene.prove("publishes refused", refused(scene, "ServerOutOfMemoryError"))
    scene.prove("moves refused", len(troubles()))
    scene.prove("acks while it was full", acks)
    verdict = await audit(scene)
    scene.prove("dead letters", verdict.dead)
