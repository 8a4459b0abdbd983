"""`penstock topic rm`: a topic goes, with all that belongs to it."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, NamedTuple

from cyclopts import Parameter

from penstock.backend import keys
from penstock.backend.facts import Kept
from penstock.cli.confirming import Yes, only_tried
from penstock.cli.looking import absent, refuse_if_read, unread_text
from penstock.cli.servers import HERE, At, ask
from penstock.diagnosis.finding import amount, command
from penstock.errors import ConfigurationError, TopicError
from penstock.overview import Overview, TopicView

if TYPE_CHECKING:
    from penstock.app import Penstock

_REMEMBERED = {
    "once": "forget about {:,} ids of messages that were published once: under these, they would be stored again",
    "handled": "forget about {:,} ids of messages that were handled: under these, they would be handled again",
    "fence": "forget how far {:,} queries of Spark have written",
    "partitions": "forget that it is divided into partitions",
}


def rm(
    topic: str,
    /,
    *,
    former_partitions: Annotated[bool, Parameter(negative=(), show_default=False)] = False,
    yes: Yes = False,
    server: At = HERE,
) -> None:
    """Delete a topic with all that belongs to it: entries, groups, retries, dead letters, cursors, delayed messages.

    With it goes what is remembered of it, such as the ids of messages that were published once; of a topic that is
    divided, its partitions; of a lane of a queue, its scheduled jobs, and what the queue keeps of jobs in that lane.
    Schedules of the queue stay, and so do unique keys, if the lanes were given names. It looks at every key of the
    database, a thousand at a time, and may be repeated. Stop who publishes first: it would bring the topic back.

    Parameters
    ----------
    topic
        Its whole name.
    former_partitions
        Delete also what is called like a partition that the topic had before, when there were more. Nothing but the
        name tells them from other topics, so without this they are named, and stay.
    """
    ask(server, lambda app: _remove(app, topic, with_former=former_partitions, yes=yes))


class _Found(NamedTuple):
    """What there is of one topic."""

    view: TopicView
    kept: Kept
    was_part_of: str | None = None
    """The topic that has fewer partitions now, if this is called like one that it had."""


async def _remove(app: "Penstock", topic: str, *, with_former: bool, yes: bool) -> None:
    keys.check_named(topic)
    overview, (parts, former) = Overview(app.backend), await _parts_of(app, topic)
    kept = await app.backend.kept(topic, *parts, *former)
    there = [name for name in (*parts, *former, topic) if not kept[name].is_nothing]
    left_alone = [] if with_former else [name for name in there if name in former]
    going = [name for name in there if name not in left_alone]
    found = [_Found(await overview.seen(name), kept[name], topic if name in former else None) for name in going]
    if not found:
        raise await absent(app, topic)
    for one in found:
        await _refuse_if_blind(app, one)
        refuse_if_read(one.view.name, one.view.groups, "remove the topic")
    if not yes:
        losses = [loss for one in found for loss in _losses(one, await _unsettled(app, one.view))]
        only_tried(*losses, *(f"leave {_called_like_a_partition(name, topic)}" for name in left_alone))
    await app.backend.remove_topic(topic, *parts, *(name for name in going if name in former))
    after = [await overview.seen(one.view.name) for one in found]
    for one, view in zip(found, after, strict=True):
        print(_done(one.view, view))
    for name in left_alone:
        print(f"Left {_called_like_a_partition(name, topic)}")
    if again := [repr(left.name) for left in after if (left.exists or left.later) and left.problem is None]:
        raise TopicError(f"somebody has published to {', '.join(again)} meanwhile: stop it, and repeat the command")


async def _refuse_if_blind(app: "Penstock", found: _Found) -> None:
    """`TopicError` if it is a stream and nobody can tell who reads it, or what of it is unread."""
    from penstock.diagnosis.diagnosis import Diagnosis

    name = found.view.name
    if found.view.problem is None or not found.kept.is_stream:
        return
    wrong = [f"key {key.name} is a {key.found}" for key in await Diagnosis(app.backend).wrong_keys(name)]
    raise TopicError(
        f"nobody can tell who reads {name!r}, so it stays: {', '.join(wrong) or found.view.problem};"
        f" see {command('check', name)}"
    )


async def _parts_of(app: "Penstock", topic: str) -> tuple[list[str], list[str]]:
    """Its partitions, and what others could be called that it had before: nothing but their names tells of these.

    None if what is noted of them makes no sense: then that goes with the topic, and no more.
    """
    from penstock.keyed.partitions import MOST_PARTITIONS, names_of

    try:
        count = await app.backend.partitions(topic)
        parts = [] if count is None else names_of(topic, count)
    except (TopicError, ConfigurationError):
        parts = []
    return parts, names_of(topic, MOST_PARTITIONS)[len(parts) :] if parts else []


def _called_like_a_partition(name: str, topic: str) -> str:
    remove = command("topic", "rm", name)
    return f"topic {name!r} as it is, which is called like a partition that {topic!r} had before: {remove} is for that"


def _done(view: TopicView, after: TopicView) -> str:
    if after.problem is not None:
        return f"Forgot topic {view.name!r}; what is at the key is no stream, and is as it was"
    if view.problem is not None:
        return f"Deleted topic {view.name!r}, which could not be looked at"
    return f"Deleted topic {view.name!r} with {amount(view.length, 'entry', 'entries')}"


async def _unsettled(app: "Penstock", view: TopicView) -> list[str]:
    return [
        f"lose what group {group.name!r} has not settled: {await unread_text(app, group)} unread,"
        f" {group.pending:,} held, {group.parked + group.ready:,} waiting for a retry"
        for group in view.groups
    ]


def _losses(found: _Found, unsettled: Iterable[str]) -> Iterator[str]:
    view, kept, whole = found
    yield _head(view) + ("" if whole is None else f": by its name, a partition that {whole!r} had before")
    yield from unsettled
    for name in sorted(set(kept.waiting) - {group.name for group in view.groups}):
        yield f"lose {amount(kept.waiting[name], 'message')} waiting for group {name!r}, which the topic does not have"
    if view.dead:
        yield f"lose {amount(view.dead, 'dead letter')}"
    if view.later:
        yield f"lose {amount(view.later, 'message')} not due yet"
    for name, id in view.cursors.items():
        yield f"forget cursor {name!r} at {id}"
    for word, text in _REMEMBERED.items():
        if count := kept.keys.get(word):
            yield text.format(count)
    yield from _losses_of_queues(kept)


def _losses_of_queues(kept: Kept) -> Iterator[str]:
    if kept.jobs:
        yield f"forget where about {amount(kept.jobs, 'job')} of this lane went"
    if kept.unique:
        yield f"forget about {amount(kept.unique, 'unique key')} that jobs of this lane stand for"
    if kept.strange:
        yield (
            f"leave about {kept.strange:,} unique keys as they are: if a job of this topic stands for one, no other job"
            " of that key is enqueued until it expires"
        )


def _head(view: TopicView) -> str:
    if view.problem is not None:
        return f"forget topic {view.name!r}, which cannot be looked at: {view.problem}"
    return f"delete topic {view.name!r} with {amount(view.length, 'entry', 'entries')}"
