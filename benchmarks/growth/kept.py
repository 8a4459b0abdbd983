"""Cases on what is kept for long: dead letters, messages for later, and the ids of what was published or handled."""

from datetime import UTC, datetime, timedelta

from benchmarks.growth.cases import Case
from benchmarks.growth.fill import GROUP
from benchmarks.growth.scene import ME, Scene
from benchmarks.load import payload
from penstock.backend.entry import DeadLetter
from penstock.message.ids import new_id
from penstock.message.message import Message

_BATCH = 100
_FEW = 5 * _BATCH
_NOW, _DAY = timedelta(0), timedelta(days=1)


async def bury(scene: Scene) -> int:
    """Move deliveries to the dead letters."""
    letters = [DeadLetter(entry, "no") for entry in await scene.claimed(_FEW)]
    with scene.measured():
        assert (await scene.backend.settle(scene.topic, GROUP, ME, dead=letters)).ok == len(letters)
    return len(letters)


async def look_at_dead(scene: Scene) -> int:
    """The newest hundred, and the oldest hundred."""
    with scene.measured():
        newest = await scene.backend.read_dead(scene.topic, count=_BATCH, backwards=True)
        oldest = await scene.backend.read_dead(scene.topic, count=_BATCH)
        await scene.backend.count_dead(scene.topic)
    return len(newest) + len(oldest)


async def replay(scene: Scene) -> int:
    """Give letters back to their group, as many as were buried before."""
    letters = [DeadLetter(entry, "no") for entry in await scene.claimed(_FEW)]
    await scene.backend.settle(scene.topic, GROUP, ME, dead=letters)
    newest = await scene.backend.read_dead(scene.topic, count=_FEW, backwards=True)
    with scene.measured():
        replayed = await scene.backend.replay_dead(scene.topic, GROUP, newest, new_id())
    assert len(replayed.ok) == _FEW, replayed
    return _FEW


async def bound(scene: Scene) -> int:
    """Let the oldest letters fall off, in one step of the janitor's; they are replaced."""
    letters = [DeadLetter(entry, "no") for entry in await scene.claimed(1000)]
    await scene.backend.settle(scene.topic, GROUP, ME, dead=letters)
    length = await scene.backend.count_dead(scene.topic)
    with scene.measured():
        return await scene.backend.bound_dead(scene.topic, "1-0", length - 1000)


async def publish_later(scene: Scene) -> int:
    """Put messages aside that are due at once; they stay there until `promote_later`."""
    with scene.measured():
        await scene.backend.publish_later(scene.topic, _messages(), delay=_NOW)
    await _append_due(scene)
    return _FEW


async def promote_later(scene: Scene) -> int:
    """Append messages that are due to their topic."""
    await scene.backend.publish_later(scene.topic, _messages(), delay=_NOW)
    with scene.measured():
        assert await _append_due(scene) == _FEW
    return _FEW


async def publish_once(scene: Scene) -> int:
    """Append messages whose ids are looked up and remembered."""
    with scene.measured():
        published = await scene.backend.publish_once(scene.topic, _messages())
    assert not any(one.duplicate for one in published)
    return _FEW


async def handle_once(scene: Scene) -> int:
    """Claim messages before they are handled, and note afterwards that they are."""
    entries = await scene.claimed(_FEW)
    claims = [(entry.message.id, "", entry.id) for entry in entries]
    with scene.measured():
        await scene.backend.claim_handling(scene.topic, GROUP, claims, _DAY)
        settled = await scene.backend.complete_handling(scene.topic, GROUP, ME, entries, _DAY)
    assert settled.ok == _FEW, settled
    return _FEW


async def _append_due(scene: Scene) -> int:
    moved = 0
    while (found := (await scene.backend.promote_later(scene.topic))[0]) > 0:
        moved += found
    return moved


def _messages() -> list[Message[object]]:
    now = datetime.now(UTC).microsecond
    return [Message(payload(now + number)) for number in range(_FEW)]


DEAD_LETTERS = [
    Case("dead letter", bury),
    Case("look at dead letters", look_at_dead),
    Case("replay", replay),
    Case("bound dead letters", bound),
]
LATER = [Case("publish for later", publish_later), Case("append what is due", promote_later)]
ONCE = [Case("publish once", publish_once), Case("handle once", handle_once)]
