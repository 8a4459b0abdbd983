"""Whoever destroys messages behind our back is found out: an alarm names the topic and the range, and work goes on."""

from collections.abc import Callable

import pytest

from tests.fault.closing import audit, look
from tests.fault.evidence import events, handled
from tests.fault.rows import row
from tests.fault.scene import Scene
from tests.fault.size import MESSAGES

CONCURRENCY = 2
BACKLOG = 300
"""Far more than the workers below read ahead while all that they can do at once waits at a gate."""


async def with_a_backlog(scene: Scene) -> None:
    scene.work(2, concurrency=CONCURRENCY, lease=1.0)
    scene.produce(20, producers=1)
    await scene.until(lambda: handled(scene) > 10, "that some are handled")
    scene.produce(BACKLOG, producers=2, fates={"gated": BACKLOG // 2})
    await scene.first(2 * CONCURRENCY, "start", where=lambda line: line.do == "gated")
    await scene.published()


async def afterwards(scene: Scene) -> None:
    """The alarm has come, and new messages are handled as if nothing had happened."""
    scene.let_in()
    scene.let_in(again=True)
    await scene.until(lambda: bool(events(scene, "Lost")), "an alarm")
    scene.produce(MESSAGES)
    verdict = await audit(scene, loses=True)
    missing = verdict.acked - verdict.handled - verdict.dead
    scene.prove("messages that were destroyed", missing)
    scene.prove("alarms", len(events(scene, "Lost")))


@row("F7 server restarted empty")
async def test_a_server_that_comes_back_empty_is_noticed(scene: Scene) -> None:
    await with_a_backlog(scene)
    before = scene.server.pid
    scene.breaks("server restarted empty")
    scene.server.kill()
    scene.server.start()
    scene.heals("server restarted empty")
    scene.prove("the server's process changed", int(scene.server.pid != before))
    await afterwards(scene)


def deleted(scene: Scene) -> int:
    return int(scene.admin.delete(scene.topic))


def flushed(scene: Scene) -> int:
    return int(scene.admin.flushall())


def renamed(scene: Scene) -> int:
    return int(scene.admin.rename(scene.topic, "elsewhere"))


def expired(scene: Scene) -> int:
    return int(scene.admin.pexpire(scene.topic, 1))


def replaced(scene: Scene) -> int:
    """By a value of another type, which somebody removes again later."""
    return int(scene.admin.set(scene.topic, "not a stream"))


@pytest.mark.parametrize("how", [deleted, flushed, renamed, expired, replaced], ids=lambda how: how.__name__)
@row("F20 stream destroyed")
async def test_a_stream_that_is_destroyed_is_noticed(scene: Scene, how: Callable[[Scene], int]) -> None:
    await with_a_backlog(scene)
    scene.breaks(how.__name__)
    scene.proofs["how"] = how.__name__
    scene.prove("streams destroyed", how(scene))
    if how is replaced:
        await scene.until(
            lambda: any("WRONGTYPE" in line.facts["error"] for line in events(scene, "Trouble")),
            "that somebody meets the wrong type",
        )
        scene.admin.delete(scene.topic)
    scene.heals(how.__name__)
    await afterwards(scene)


@row("F22 trimmed beneath a group", redis=True)
async def test_what_is_trimmed_beneath_a_group_is_reported_once_each(scene: Scene) -> None:
    scene.supervised = False
    await with_a_backlog(scene)
    # What a dead worker held is pending for nobody alive, so that nobody has a copy of it in memory.
    victim = scene.workers()[0]
    victim.kill()
    held = [row["message_id"] for row in scene.admin.xpending_range(scene.topic, "g", "-", "+", 1000)]
    scene.breaks("trimmed")
    scene.prove("entries trimmed", scene.admin.xtrim(scene.topic, maxlen=3, approximate=False))
    scene.heals("trimmed")
    assert held
    await afterwards(scene)
    lost = [letter.entry for letter in look(scene).dead if letter.lost]
    scene.prove("pending entries reported as lost", len(lost))
    assert len(lost) == len(set(lost))
    history = scene.history()
    missing = {tag for tag in history.acks if not any(run.ended for run in history.runs.get(("g", tag), ()))}
    # What the victim had handled and not yet acked when it was killed is lost for all that the group can know.
    missing |= {history.tag_of_entry[entry] for entry in lost}
    assert sum(line.facts["count"] for line in events(scene, "Lost")) == len(missing), "the alarms count exactly"
