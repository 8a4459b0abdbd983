"""`penstock group retry`: what waits for a retry is tried again now."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.backend.facts import Hastened
from penstock.cli.confirming import Yes, only_tried
from penstock.cli.looking import group_there
from penstock.cli.progress import progress
from penstock.cli.queues import queue_with_lane
from penstock.cli.servers import HERE, At, ask
from penstock.cli.shown import moment_text
from penstock.diagnosis.finding import amount

if TYPE_CHECKING:
    from penstock.app import Penstock


def retry(topic: str, group: str, /, *, yes: Yes = False, server: At = HERE) -> None:
    """Have the failed deliveries of a group that wait for their next attempt tried again now, not when they are due.

    For when the cause is mended. Each keeps its number of attempts: one whose last attempt fails is a dead letter. Each
    that waits when it begins is made ready once, those that are due first before others; what fails again meanwhile
    waits as ever. So does what has not failed: what its handler has snoozed, and scheduled jobs, which penstock job run
    has done now. If a queue's lanes were given names, a job that is made ready cannot be found by its id until a worker
    has settled it.

    Parameters
    ----------
    topic
        Its whole name; of a queue, that of a lane.
    group
        The group's.
    """
    ask(server, lambda app: _retry(app, topic, group, yes=yes))


async def _retry(app: "Penstock", topic: str, group: str, *, yes: bool) -> None:
    await group_there(app, topic, group)
    total = (await app.backend.awaited(topic, group)).parked
    queue = queue_with_lane(app, topic)
    backend = app.backend if queue is None else queue.server  # which notes where each job is
    done = Hastened(0, 0)
    with progress("promoting" if yes else "counting") as show:
        async for step in backend.promote_early(topic, group, only_count=not yes):
            done = done.and_then(step)
            show(done.moved + done.left, total)
    if not done.moved:
        left = f"; left as they are: {done.left:,} snoozed, scheduled or unreadable" if done.left else ""
        print(f"Nothing to do: no failed delivery of {topic!r} waits for a retry of group {group!r}{left}")
        return
    if not yes:
        only_tried(*_would(done, topic, group))
    ready = amount(done.moved, "delivery", "deliveries")
    print(f"{ready} of {topic!r}: ready for the workers of group {group!r}")


def _would(done: Hastened, topic: str, group: str) -> Iterator[str]:
    dues = (done.first_due, done.last_due)
    first, last = ("a time of no calendar" if due is None else moment_text(due) for due in dues)
    yield (
        f"have {amount(done.moved, 'delivery', 'deliveries')} of {topic!r} tried again by group {group!r} now, of which"
        f" the first is due at {first}, the last at {last}"
    )
    if done.left:
        yield f"leave as they are: {done.left:,} snoozed, scheduled or unreadable"
