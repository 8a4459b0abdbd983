"""A topic for measurements: nobody else's, and gone afterwards."""

from collections.abc import Iterator
from contextlib import contextmanager

from penstock.cli.servers import Server, ask
from penstock.errors import TopicError
from penstock.message.ids import new_id

GROUP = "bench"


@contextmanager
def bench_topic(server: Server, name: str = "") -> Iterator[str]:
    """Its name, until the block ends; then everything of it is removed. `TopicError` if there is something of it."""
    topic = name or f"penstock-bench:{new_id()}"
    facts = ask(server, lambda app: app.backend.inspect(topic))
    if facts.exists or facts.dead or facts.later or facts.cursors:
        raise TopicError(f"{topic!r} exists, or something of it does: nothing is measured where data is")
    try:
        yield topic
    finally:
        # Connected anew: whoever was interrupted in the middle of an answer cannot use his connection any more.
        ask(server, lambda app: app.backend.remove_topic(topic))
