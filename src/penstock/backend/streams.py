"""Which streams a name stands for."""

from penstock.backend import keys
from penstock.backend.base import StreamBackend


async def streams_of(backend: StreamBackend, name: str) -> list[str]:
    """The topic of that name, its partitions if it is divided, and the lanes of a queue of that name; there or not.

    A partition that an earlier division left is one of them, as long as it is registered.
    """
    if keys.is_own(name):  # a retry stream, which nothing is called after
        return [name]
    is_divided = await backend.partitions(name) is not None
    parts = [one for one in await backend.topics() if keys.is_partition(one, name)] if is_divided else []
    lanes = [keys.lane(name, priority) for priority in keys.LANES]
    return [name, *parts, *(lane for lane in lanes if not keys.is_too_long(lane))]
