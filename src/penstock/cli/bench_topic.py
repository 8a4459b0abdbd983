"""A topic for measurements: nobody else's, and gone afterwards."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.backend import keys
from penstock.errors import TopicError
from penstock.message.ids import new_id

if TYPE_CHECKING:
    from penstock.backend.address import Address

GROUP = "bench"


@contextmanager
def bench_topic(address: "Address", name: str = "") -> Iterator[str]:
    """Its name, until the block ends; then everything of it is removed. `TopicError` if any of its keys exists."""
    from penstock.backend.redis.blocking import BlockingLink

    topic = name or f"penstock-bench:{new_id()}"
    own = (topic, *_keys_of(topic))
    with BlockingLink.open(address) as link:
        if link.command(f"cannot look for {topic!r}", "EXISTS", *own):
            raise TopicError(f"{topic!r} exists, or keys of it do: nothing is measured where data is")
    try:
        yield topic
    finally:
        # On a connection of its own: whoever was interrupted in the middle of an answer cannot use his any more.
        with BlockingLink.open(address) as link:
            link.command(f"cannot remove {topic!r}", "UNLINK", *own)
            link.command(f"cannot remove {topic!r} from {keys.TOPICS}", "SREM", keys.TOPICS, topic)


def _keys_of(topic: str) -> list[str]:
    """What Penstock may write beside it, for a group that only reads and settles."""
    beside = (keys.dead, keys.groups, keys.cursors, keys.later, keys.paused, keys.obeyed)
    of_group = (keys.retry, keys.parked, keys.steals, keys.starts)
    return [*(key(topic) for key in beside), *(key(topic, GROUP) for key in of_group)]
