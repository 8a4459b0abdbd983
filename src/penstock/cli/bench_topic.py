"""A topic for measurements: nobody else's, and gone afterwards."""

from collections.abc import Iterator
from contextlib import contextmanager

from penstock.backend import keys
from penstock.cli.servers import Server
from penstock.message.ids import new_id

GROUP = "bench"


@contextmanager
def bench_topic(server: Server) -> Iterator[str]:
    """Its name, which nobody else has, until the block ends; then every key of it is removed, and no other is seen."""
    topic = f"penstock-bench:{new_id()}"
    try:
        yield topic
    finally:
        _remove(server, topic)


def _remove(server: Server, topic: str) -> None:
    """By the names of its keys, which are known: to look for them, all keys of the database would have to be seen."""
    from penstock.backend.redis.blocking import BlockingLink

    doing = f"cannot remove topic {topic!r}"
    # Connected anew: whoever was interrupted in the middle of an answer cannot use his connection any more.
    with BlockingLink.open(server.address()) as link:
        link.command(doing, "UNLINK", *keys_of(topic))
        link.command(doing, "SREM", keys.TOPICS, topic)


def keys_of(topic: str) -> list[str]:
    """All that publishing to a topic, and handling what is there as `GROUP`, may leave behind."""
    return [topic, keys.dead(topic), *keys.types_of(topic, [GROUP])]
