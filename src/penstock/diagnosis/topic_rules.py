"""Rules on a topic as a whole: who is gone for good, and what is never trimmed."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime

from msgspec import structs

from penstock.backend import keys
from penstock.backend.entry import Malformed
from penstock.backend.facts import GroupFacts, can_be_named, position
from penstock.diagnosis.case import TopicCase
from penstock.diagnosis.finding import Finding, amount, command, escaped, place
from penstock.diagnosis.group_rules import RUN, again, failing, ghosts, nobody_reads, owner_dead, paused, poison, trimmed
from penstock.message.times import moment_text, span_text
from penstock.overview import age_of, view

Rule = Callable[[TopicCase], Iterator[Finding]]

_LEFT = 200
"""Entries that may stay though they are old: they go in blocks of a hundred, and only when all of a block may go."""


def dead_groups(case: TopicCase) -> Iterator[Finding]:
    """A group that nobody reads with any more holds back trimming until the server is full."""
    for group in case.groups:
        silence = group.waited if group.silence is None else group.silence
        needs = group.facts.next_id or group.facts.pending
        if needs and not group.is_at_work and silence is not None and silence > case.patience.abandoned:
            name = group.facts.name
            remove = command("group", "rm", case.facts.topic, name, "--yes")
            resume = command("group", "resume", case.facts.topic, name)
            yield Finding.of(
                group.subject,
                "dead-group",
                f"nobody has read with this group for {span_text(silence)}, and it keeps the topic from being trimmed",
                f"it needs everything from {group.facts.oldest_pending or group.facts.next_id} on;"
                f" {amount(len(group.facts.consumers), 'consumer')}, {group.facts.pending:,} pending",
                remedy=resume if group.facts.paused else RUN,
                besides=f"or, if it is not needed any more: {remove}",
            )


def trimmed_cursors(case: TopicCase) -> Iterator[Finding]:
    """Entries went before a reader with a durable cursor came to them: it noted how many there were up to its place."""
    for name in case.facts.ordinals:
        if lost := case.lost_before(name):
            topic, first = case.facts.topic, case.facts.first_id or "none, the topic is empty"
            yield Finding.of(
                topic,
                "cursor-trimmed",
                f"{amount(lost, 'entry', 'entries')} were removed before cursor {name!r} came to them, by XTRIM, MAXLEN"
                " or a cut: Penstock's retention waits for every cursor",
                f"it stands at {case.facts.cursors[name]}; the oldest entry is {first}",
                remedy=again(topic),
                besides="that brings back what was archived; its reader is told of the gap, and goes on behind it",
            )


def dead_cursors(case: TopicCase) -> Iterator[Finding]:
    """A cursor holds back trimming, too. The server knows where it stands, not since when: one that is far behind may
    be catching up, so it is a note, and whether anybody still reads with it is for people to know."""
    for name, id in case.before.items():
        waited = age_of(id, case.facts.now)
        if waited is not None and waited > case.patience.abandoned:
            remove = command("cursor", "rm", case.facts.topic, name)
            besides = f"if nobody needs it any more: {remove}" if can_be_named(name) else ""
            yield Finding.of(
                case.facts.topic,
                "dead-cursor",
                f"cursor {name!r} keeps the topic from being trimmed: the next entry for it is {span_text(waited)} old",
                f"it stands at {case.facts.cursors[name]}; the next entry is {id}",
                remedy="start its reader, unless it is catching up",
                besides=besides,
                level="note",
            )


def idle_consumers(case: TopicCase) -> Iterator[Finding]:
    """Names of readers that are gone and hold nothing: harmless, until there are thousands."""
    for group in case.groups:
        gone = [one for one in group.facts.consumers if not one.pending and one.idle > case.patience.abandoned]
        if gone:
            yield Finding.of(
                group.subject,
                "idle-consumers",
                f"{amount(len(gone), 'consumer')} of this group hold nothing and were not heard of for long",
                f"{gone[0].name}: {span_text(gone[0].idle)} ago",
                remedy=RUN,
                besides="its workers remove them",
                level="note",
            )


def untrimmed(case: TopicCase) -> Iterator[Finding]:
    """What all have settled is still there, long after it should have gone, or nobody reads at all."""
    facts = case.facts
    pin = view(facts).pin
    first = age_of(facts.first_id, facts.now) if facts.first_id else None
    if first is None or first <= case.patience.kept or (pin is not None and pin.kind != "nobody"):
        return
    if pin is None and facts.length <= _LEFT:
        return
    trim = command("topic", "trim", facts.topic, "--keep", "1d", "--yes")
    why = "no group and no cursor reads this topic, so all of it is kept" if pin else "nobody trims this topic"
    yield Finding.of(
        facts.topic,
        "untrimmed",
        f"{why}: its oldest entry is {span_text(first)} old",
        f"{amount(facts.length, 'entry', 'entries')}, the oldest {facts.first_id}",
        remedy=RUN,
        besides=f"with {_reader(facts.topic)}" if pin else f"its workers trim; or now: {trim}",
    )


def lost_and_left(case: TopicCase) -> Iterator[Finding]:
    """What is wrong with a group at any time, whether or not anybody waits for it."""
    for group in case.groups:
        for rule in (owner_dead, ghosts, poison, failing, trimmed):
            yield from rule(group)


def unreadable(case: TopicCase) -> Iterator[Finding]:
    """A sequence stands before an entry that cannot be read as the topic was looked at.

    How topics are written, nobody has told: it may be a good message in another wire format. So nobody is advised to
    give it up, and one that is not old yet is not spoken of: its reader may be about to take it.
    """
    for group in case.groups:
        if isinstance(group.head, Malformed) and group.waited > case.patience.quiet and not group.failures:
            yield Finding.of(
                group.subject,
                "unreadable",
                "the next entry in sequence is no message in the native wire format: the topic may have another, or"
                " the entry is broken, and all others wait behind it",
                f"entry {group.head.id}: {group.head.error.reason}",
                remedy=command("why", group.subject, "--dialect", "DIALECT"),
                besides="with the dialect of the topic: that says whether anything keeps it",
                level="note",
            )


def standing_still(case: TopicCase) -> Iterator[Finding]:
    """Groups that get nowhere, which may be meant so: somebody paused them, or runs their workers at night alone."""
    abandoned = {one.subject for one in dead_groups(case)}
    for group in case.groups:
        unread = nobody_reads(group) if group.waited > case.patience.quiet else ()
        found = [*paused(group), *(one for one in unread if one.subject not in abandoned)]
        yield from (structs.replace(one, level="note") for one in found)


def unnamed(topic: str, groups: Iterable[GroupFacts]) -> Iterator[Finding]:
    """Groups of other programs whose names no command takes: whether all is well with them, nobody can say."""
    for group in groups:
        needed = min(filter(None, (group.oldest_pending, group.next_id)), key=position, default=None)
        kept = "" if needed is None else f"; it keeps everything from {needed} on"
        yield Finding.of(
            place(topic, escaped(group.name)),
            "unnamed",
            "this group cannot be looked at by name: the name has what cannot be printed, or is no text, or too long",
            f"it stands at {group.last_delivered}; {amount(len(group.consumers), 'consumer')},"
            f" {group.pending:,} pending{kept}",
            remedy="have its program use a name that can be printed",
            besides="it is another program's: Penstock makes no such names",
            level="note",
        )


def strange(case: TopicCase) -> Iterator[Finding]:
    yield from unnamed(case.facts.topic, case.unnamed)


RULES: Sequence[Rule] = (
    strange,
    lost_and_left,
    unreadable,
    standing_still,
    dead_groups,
    trimmed_cursors,
    dead_cursors,
    idle_consumers,
    untrimmed,
)


def no_groups(case: TopicCase) -> Iterator[Finding]:
    """For who asks why a topic is stuck: nobody is there who could read it."""
    facts = case.facts
    whom, readers = "group", len(case.groups) + len(facts.cursors)
    if keys.is_lane(facts.topic):  # who copies jobs elsewhere does none of them
        whom, readers = "group of workers", sum(group.facts.read_by == "workers" for group in case.groups)
    if facts.length and not readers:
        yield Finding.of(
            facts.topic,
            "no-groups",
            f"nobody reads this topic: it has no {whom}, and {amount(facts.length, 'entry', 'entries')}",
            f"from {facts.first_id} to {facts.last_id}",
            remedy=RUN,
            besides=f"with {_reader(facts.topic)} and a handler",
        )


def later(case: TopicCase) -> Iterator[Finding]:
    """Messages that are not on the topic yet."""
    facts = case.facts
    if not facts.later or facts.later_due is None:
        return
    late = facts.now - facts.later_due > case.patience.quiet
    yield Finding.of(
        facts.topic,
        "later",
        f"{amount(facts.later, 'message of this topic is', 'messages of this topic are')} for later"
        + (", and nobody puts them on it though they are due" if late else ""),
        f"the next is {_due(case, facts.later_due)}",
        remedy=RUN if late else "wait until they are due",
        level="wrong" if late else "note",
    )


STUCK: Sequence[Rule] = (no_groups, later, trimmed_cursors)


def awaited(case: TopicCase) -> Iterator[Finding]:
    """Deliveries wait for a group that is not there: jobs for their first worker, retries for one that was removed."""
    for group, waits in case.awaited.items():
        due = waits.parked_due
        is_due = bool(waits.ready) or due is None or due < case.facts.now
        next_due = f", the next {_due(case, due)}" if due else ""
        yield Finding.of(
            place(case.facts.topic, group),
            "no-groups" if is_due else "later",
            f"{amount(waits.ready + waits.parked, 'delivery', 'deliveries')} wait for this group, which is not there:"
            " no worker of it has run yet, or none since it was removed",
            f"{waits.ready:,} ready",
            f"{waits.parked:,} for later{next_due}",
            remedy=RUN if is_due else "wait until they are due",
            besides="" if is_due else f"then: {RUN}",
            level="wrong" if is_due else "note",
        )


def _reader(topic: str) -> str:
    """What a program is to have for its workers to read a topic. A bus on a lane would do its jobs beside the queue."""
    if keys.is_lane(topic):
        return f"app.jobs({keys.queue_name(topic)!r})"
    return f"app.bus({topic!r}, group=...)"


def _due(case: TopicCase, due: datetime) -> str:
    overdue = case.facts.now - due
    if overdue > case.patience.quiet:
        return f"overdue for {span_text(overdue)}"
    return f"due at {moment_text(due)}"
