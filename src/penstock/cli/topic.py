"""`penstock topic`: one topic, as an operator sees it."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from penstock.backend.facts import position
from penstock.cli.confirming import Yes, only_tried
from penstock.cli.looking import count_behind, counted_text, refuse_if_read, topic_there
from penstock.cli.moments import Span
from penstock.cli.printing import Form, chosen, print_one, print_rows
from penstock.cli.progress import progress
from penstock.cli.servers import HERE, At, ask
from penstock.cli.standing import GROUP_COLUMNS, group_row, lag_text, pin_text, topic_facts
from penstock.cli.usage import NotThereError, UsageError
from penstock.overview import Overview, TopicView

if TYPE_CHECKING:
    from penstock.app import Penstock

_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00Z")


def info(topic: str, /, *, output: Form = None, server: At = HERE) -> None:
    """Say how a topic and its groups stand.

    Parameters
    ----------
    topic
        Its whole name.
    """
    found = ask(server, lambda app: topic_there(app, topic))
    if chosen(output) == "table":
        print_one(topic_facts(found), output)
        print_rows((group_row(group, for_people=True) for group in found.groups), output, GROUP_COLUMNS)
    else:
        groups = [group_row(group, for_people=False) for group in found.groups]
        print_one({**topic_facts(found), "groups": groups}, output)


def trim(
    topic: str,
    /,
    *,
    keep: Span | None = None,
    most: Annotated[int | None, Parameter(name="--max")] = None,
    yes: Yes = False,
    server: At = HERE,
) -> None:
    """Drop old entries that every group has settled and every cursor has passed. Nothing that anybody needs goes.

    Entries go in blocks of about a hundred, so some that are old enough may stay.

    Parameters
    ----------
    topic
        Its whole name.
    keep
        Keep what is younger than this, like 7d.
    most
        Keep no more than so many entries, however young the others are.
    """
    if keep is None and most is None:
        raise UsageError("say what to keep: --keep 7d, or --max 100000, or both.")
    ask(server, lambda app: _trim(app, topic, keep, most, yes=yes))


async def _trim(app: "Penstock", topic: str, keep: timedelta | None, most: int | None, *, yes: bool) -> None:
    found = await topic_there(app, topic)
    floor = "0-0"
    if keep is not None and found.at is not None:
        floor = f"{max(timedelta(0), found.at - _EPOCH - keep) // timedelta(milliseconds=1)}-0"
    if not yes:
        only_tried(await _would_trim(app, found, floor, most))
    removed, last = 0, None
    with progress("trimming") as show:
        while last is None or last.removed:
            last = await app.backend.trim(topic, floor, max_entries=most)
            removed += last.removed
            show(removed)
    kept = f"; {last.pinned_by} keeps what is left" if last.pinned_by else ""
    print(f"Removed {removed:,} entries of {topic!r}{kept}")


async def _would_trim(app: "Penstock", found: TopicView, floor: str, most: int | None) -> str:
    if found.settled_upto is None:
        return f"remove nothing of {found.name!r}: nobody reads it yet, so all of it is kept for who comes first"
    settled = await count_behind(app, found.name, "0-0", found.settled_upto)
    old = await count_behind(app, found.name, "0-0", min(found.settled_upto, floor, key=position))
    excess = max(0, found.length - most) if most is not None else 0
    pinned = f"; {pin_text(found.pin)} needs the others" if found.pin is not None else ""
    removed = counted_text(min(settled, max(old, excess)))
    return f"remove up to {removed} of {found.length:,} entries of {found.name!r}{pinned}"


def rm(topic: str, /, *, yes: Yes = False, server: At = HERE) -> None:
    """Delete a topic with all that belongs to it: entries, groups, retries, dead letters, cursors, delayed messages.

    Parameters
    ----------
    topic
        Its whole name.
    """
    ask(server, lambda app: _remove(app, topic, yes=yes))


async def _remove(app: "Penstock", topic: str, *, yes: bool) -> None:
    from penstock.keyed.partitions import names_of

    count = await app.backend.partitions(topic)
    parts = [] if count is None else names_of(topic, count)
    found = [one for name in parts if (one := await Overview(app.backend).topic(name)).exists]
    if not found or (await Overview(app.backend).topic(topic)).exists:
        found.append(await topic_there(app, topic))
    for one in found:
        await refuse_if_read(app, one.name, one.groups, "remove the topic")
    if not yes:
        only_tried(*(loss for one in found for loss in _losses(one)))
    # Last the topic itself, which says how many partitions there are: whoever is interrupted can go on.
    for name in dict.fromkeys((*(one.name for one in found), topic)):
        await app.backend.remove_topic(name)
    for one in found:
        print(f"Deleted topic {one.name!r} with {one.length:,} entries")


def _losses(found: TopicView) -> Iterator[str]:
    yield f"delete topic {found.name!r} with {found.length:,} entries"
    for group in found.groups:
        yield (
            f"lose what group {group.name!r} has not settled: {lag_text(group.lag)} unread, {group.pending:,} held,"
            f" {group.parked + group.ready:,} waiting for a retry"
        )
    if found.dead:
        yield f"lose {found.dead:,} dead letters"
    if found.later:
        yield f"lose {found.later:,} messages that are not due yet"
    for name, id in found.cursors.items():
        yield f"forget cursor {name!r} at {id}"


def adopt(
    *topics: str,
    match: str | None = None,
    output: Form = None,
    server: At = HERE,
) -> None:
    """Have streams that others made known as topics, so that they are listed and looked after. They stay as they are.

    Parameters
    ----------
    topics
        The names of their keys.
    match
        Also every stream whose name fits a pattern, like 'chat:*'. This looks at every key of the database.
    """
    if not topics and match is None:
        raise UsageError("name streams to adopt, or give a pattern with --match.")
    print_rows(ask(server, lambda app: _adopted(app, topics, match)), output, ("topic", "length", "groups", "new"))


async def _adopted(app: "Penstock", topics: tuple[str, ...], match: str | None) -> list[dict[str, Any]]:
    overview, rows = Overview(app.backend), []
    known = set(await app.backend.topics())
    matching = [] if match is None else sorted([name async for name in app.backend.streams(match)])
    for name in dict.fromkeys([*topics, *matching]):
        found = await overview.topic(name)
        if not found.exists:
            raise NotThereError(f"there is no stream {name!r} to adopt; penstock publish makes a new topic")
        await app.backend.register(name)
        rows.append({"topic": name, "length": found.length, "groups": len(found.groups), "new": name not in known})
    return rows
