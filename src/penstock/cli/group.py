"""`penstock group`: the groups of a topic, and what each holds."""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from penstock.backend import keys
from penstock.cli.given import Count
from penstock.cli.looking import group_there, topic_there
from penstock.cli.printing import Form, chosen, print_one, print_rows, print_some
from penstock.cli.servers import HERE, At, ask
from penstock.cli.standing import CONSUMER_COLUMNS, GROUP_COLUMNS, consumer_rows, group_row
from penstock.errors import GroupMissingError

if TYPE_CHECKING:
    from penstock.app import Penstock
    from penstock.backend.entry import Held

_PAGE = 1000
_PENDING_COLUMNS = ("entry_id", "consumer", "idle", "deliveries", "retry", "free")


def ls(topic: str, /, *, output: Form = None, server: At = HERE) -> None:
    """List the groups of a topic, with how far each is behind. A lag with ≤ is at most so many, ? is unknown.

    Parameters
    ----------
    topic
        Its whole name.
    """
    found = ask(server, lambda app: topic_there(app, topic))
    is_table = chosen(output) == "table"
    print_rows((group_row(group, for_people=is_table) for group in found.groups), output, GROUP_COLUMNS)


def info(topic: str, group: str, /, *, output: Form = None, server: At = HERE) -> None:
    """Say how a group and its consumers stand.

    Parameters
    ----------
    topic
        Its whole name.
    group
        The group's.
    """
    found = ask(server, lambda app: group_there(app, topic, group))
    if chosen(output) == "table":
        print_one(group_row(found, for_people=True), output)
        print_rows(consumer_rows(found), output, CONSUMER_COLUMNS)
    else:
        print_one({**group_row(found, for_people=False), "consumers": consumer_rows(found)}, output)


def pending(
    topic: str,
    group: str,
    /,
    *,
    consumer: str | None = None,
    limit: Count = 100,
    output: Form = None,
    server: At = HERE,
) -> None:
    """List entries that consumers of a group hold, oldest first: on the topic, then those that are retried.

    Of one that is free the lease has ended, or it was handed back: the next worker that reads takes it over at once.

    Parameters
    ----------
    topic
        Its whole name.
    group
        The group's.
    consumer
        Only what this one holds.
    limit
        How many at most.
    """

    async def rows(app: "Penstock") -> list[dict[str, Any]]:
        await group_there(app, topic, group)
        found: list[dict[str, Any]] = []
        async for stream, held in all_held(app, topic, group, consumer):
            found.append(_held_row(stream, held))
            if len(found) > limit:
                break
        return found

    print_some(ask(server, rows), limit, output, _PENDING_COLUMNS)


async def all_held(
    app: "Penstock", topic: str, group: str, consumer: str | None = None
) -> "AsyncIterator[tuple[str, Held]]":
    """Every entry that consumers of a group hold, with the stream where it is: the topic, or the retry stream."""
    for stream in (topic, keys.retry(topic, group)):
        after: str | None = None
        while True:
            try:
                page = await app.backend.held(stream, group, after, _PAGE, consumer=consumer)
            except GroupMissingError:  # nothing was ever retried
                break
            for held in page:
                yield stream, held
            if len(page) < _PAGE:
                break
            after = page[-1].id


def _held_row(stream: str, held: "Held") -> dict[str, Any]:
    return {
        "entry_id": held.id,
        "consumer": held.consumer,
        "idle": None if held.is_free else held.idle,
        "deliveries": held.deliveries,
        "retry": keys.is_retry(stream),
        "handed_back": held.is_handed_back,
        "free": held.is_free,
    }
