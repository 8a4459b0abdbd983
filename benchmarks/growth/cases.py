"""The verbs of the delivery engine, each as something that can be done to a small and to a large topic alike.

A case returns for how many messages the server worked; what it prepares before it measures does not count.
"""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import NamedTuple

from msgspec.structs import replace

from benchmarks.growth.fill import GROUP
from benchmarks.growth.scene import ME, Scene
from penstock.backend.entry import Park

_CALLS = 10
_SHORT_CALLS = 100
_BATCH = 100
_LOOKED_AT_MOST = 2000  # by one reclaim_idle
_NOW, _HOUR = timedelta(0), timedelta(hours=1)
_LATEST = "18446744073709551615-18446744073709551615"

Act = Callable[[Scene], Awaitable[int]]


async def deliver(scene: Scene) -> int:
    """Read what nobody had, and ack it behind the fence."""
    with scene.measured():
        for _ in range(_CALLS):
            await scene.settle(await scene.read(_BATCH))
    return _CALLS * _BATCH


async def deliver_large(scene: Scene) -> int:
    """As `deliver`, in the largest batches the engine reads."""
    with scene.measured():
        await scene.settle(await scene.read(1000))
    return 1000


async def settle_suspicious(scene: Scene) -> int:
    """Ack after something was stolen from us: every entry is looked up."""
    entries = [replace(entry, fence=entry.fence + 1) for entry in await scene.claimed(1000)]
    with scene.measured():
        await scene.settle(entries)
    return len(entries)


async def reclaim(scene: Scene) -> int:
    """Take over what another consumer left behind."""
    taken = 0
    with scene.measured():
        for _ in range(5):
            taken += len(await scene.backend.reclaim_idle(scene.topic, GROUP, ME, _NOW, _BATCH))
    return taken


async def reclaim_nothing(scene: Scene) -> int:
    """Look for entries left behind where there are none; counts the entries looked at."""
    # A consumer that does nothing else begins at the front of the pending list, so we know how far it looks.
    with scene.measured():
        for _ in range(_CALLS):  # one takes a millisecond: too short to tell two of them apart
            assert not await scene.backend.reclaim_idle(scene.topic, GROUP, "looker", _HOUR, _BATCH)
    pending = scene.ground.admin.xpending(scene.topic, GROUP)["pending"]
    return _CALLS * min(_LOOKED_AT_MOST, int(pending))


async def renew(scene: Scene) -> int:
    """Keep the leases of 1,000 entries."""
    entries = await scene.read(1000)
    with scene.measured():
        assert not await scene.backend.renew(scene.topic, GROUP, ME, [entry.id for entry in entries])
    await scene.settle(entries)
    return len(entries)


async def trim(scene: Scene) -> int:
    """Drop what everybody is done with, as the janitor does; the topic is as long as before afterwards."""
    with scene.measured():
        trimmed = [await scene.backend.trim(scene.topic, _LATEST) for _ in range(2)]
    removed = sum(one.removed for one in trimmed)
    await scene.append(removed)
    return removed


async def trim_nothing(scene: Scene) -> int:
    """Find the horizon where something pins the topic; per call."""
    with scene.measured():
        for _ in range(_SHORT_CALLS):
            assert not (await scene.backend.trim(scene.topic, _LATEST)).removed
    return _SHORT_CALLS


async def park(scene: Scene) -> int:
    """Put failed deliveries aside; they are due at once and stay there until `promote`."""
    parks = [Park(entry, _NOW, 2, "no") for entry in await scene.claimed(5 * _BATCH)]
    with scene.measured():
        assert (await scene.backend.settle(scene.topic, GROUP, ME, parked=parks)).ok == len(parks)
    await _promote_all(scene)
    return len(parks)


async def promote(scene: Scene) -> int:
    """Make parked deliveries that are due ready again."""
    parks = [Park(entry, _NOW, 2, "no") for entry in await scene.claimed(5 * _BATCH)]
    await scene.backend.settle(scene.topic, GROUP, ME, parked=parks)
    with scene.measured():
        moved = await _promote_all(scene)
    assert moved == len(parks)
    return moved


async def promote_nothing(scene: Scene) -> int:
    """Ask when the next parked delivery is due; per call."""
    with scene.measured():
        for _ in range(_SHORT_CALLS):
            assert not (await scene.backend.promote(scene.topic, GROUP))[0]
    return _SHORT_CALLS


async def redeliver(scene: Scene) -> int:
    """Read promoted deliveries from the retry stream, and settle them."""
    parks = [Park(entry, _NOW, 2, "no") for entry in await scene.claimed(5 * _BATCH)]
    await scene.backend.settle(scene.topic, GROUP, ME, parked=parks)
    moved = await _promote_all(scene)
    with scene.measured():
        for _ in range(moved // _BATCH):
            await scene.settle(await scene.read(_BATCH, scene.retry), scene.retry)
    return moved


async def watch(scene: Scene) -> int:
    """What a worker does every second: lag, losses, whether it is still the same stream; per call."""
    with scene.measured():
        for _ in range(_SHORT_CALLS):
            assert (await scene.backend.watch(scene.topic, GROUP)).group_exists
    return _SHORT_CALLS


async def inspect(scene: Scene) -> int:
    """What an overview asks: lag, ages, pending, parked, dead, consumers, what pins the topic; per call."""
    with scene.measured():
        for _ in range(_SHORT_CALLS):
            assert (await scene.backend.inspect(scene.topic)).groups
    return _SHORT_CALLS


async def _promote_all(scene: Scene) -> int:
    moved = 0
    while (found := (await scene.backend.promote(scene.topic, GROUP))[0]) > 0:
        moved += found
    return moved


class Case(NamedTuple):
    """`unit` is what the returned number counts."""

    name: str
    act: Act
    unit: str = "message"


DELIVERY = [Case("fresh delivery, 100 per read", deliver), Case("fresh delivery, 1,000 per read", deliver_large)]
RECLAIM = [Case("reclaim", reclaim), Case("reclaim finds nothing", reclaim_nothing, "entry looked at")]
RETRY = [
    Case("park", park),
    Case("promote", promote),
    Case("promote finds nothing", promote_nothing, "call"),
    Case("delivery of a retry", redeliver),
]
LEASES = [Case("renew leases", renew), Case("settle after a theft", settle_suspicious)]
LOOKS = [Case("watch, with lag", watch, "call"), Case("overview", inspect, "call")]
TRIM = Case("trim", trim)
PINNED = Case("trim, pinned", trim_nothing, "call")
