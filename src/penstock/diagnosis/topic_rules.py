"""Rules on a topic as a whole: who is gone for good, and what is never trimmed."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec import structs

from penstock.backend.entry import Malformed
from penstock.backend.facts import GroupFacts, can_be_named, position
from penstock.diagnosis import recovery
from penstock.diagnosis.case import TopicCase
from penstock.diagnosis.finding import Finding, amount, command, escaped, place
from penstock.diagnosis.group_rules import (
    RUN,
    failing,
    ghosts,
    nobody_reads,
    owner_dead,
    paused,
    poison,
    start,
    trimmed,
)
from penstock.diagnosis.waiting_rules import awaits, later, no_groups, reader
from penstock.message.times import span_text
from penstock.overview import age_of, view

Rule = Callable[[TopicCase], Iterator[Finding]]

_LEFT = 200
"""Entries that may stay though they are old: they go in blocks of a hundred, and only when all of a block may go."""


def needed_from(group: GroupFacts) -> str | None:
    """The oldest entry that a group has not settled, be it held or unread: one that was moved back may stand before
    what it holds."""
    return min(filter(None, (group.oldest_pending, group.next_id)), key=position, default=None)


def dead_groups(case: TopicCase) -> Iterator[Finding]:
    """A group that nobody reads with any more holds back trimming until the server is full."""
    for group in case.groups:
        silence = group.waited if group.silence is None else group.silence
        needs = group.facts.next_id or group.facts.pending
        if needs and not group.is_at_work and silence is not None and silence > case.patience.abandoned:
            name = group.facts.name
            remove = command("group", "rm", case.facts.topic, name)
            resume = command("group", "resume", case.facts.topic, name)
            yield Finding.of(
                group.subject,
                "dead-group",
                f"nobody has read with this group for {span_text(silence)}, and it keeps the topic from being trimmed",
                f"it needs everything from {needed_from(group.facts)} on;"
                f" {amount(len(group.facts.consumers), 'consumer')}, {group.facts.pending:,} pending",
                remedy=resume if group.facts.paused else start(group),
                besides=f"{'and then' if group.facts.paused else 'or'}, if it is not needed any more, with --yes:"
                f" {remove}",
            )


def trimmed_cursors(case: TopicCase) -> Iterator[Finding]:
    """Entries went before a reader with a durable cursor came to them: it noted how many there were up to its place."""
    for name in case.facts.ordinals:
        if lost := case.lost_before(name):
            stands, first = case.facts.cursors[name], case.facts.first_id or "none, the topic is empty"
            yield Finding.of(
                case.facts.topic,
                "cursor-trimmed",
                f"{amount(lost, 'entry was', 'entries were')} removed before cursor {name!r} came to them, by XTRIM,"
                " MAXLEN or a cut: Penstock's retention waits for every cursor",
                f"it stands at {stands}; the oldest entry is {first}",
                remedy=recovery.to_another_topic(case.facts.topic, recovery.missing(case.facts, stands)),
                besides=f"that says what was archived of them; with --yes, {recovery.ASIDE}; on this one the reader is"
                " told of the gap, and goes on behind it; this is told until it commits",
            )


def dead_cursors(case: TopicCase) -> Iterator[Finding]:
    """A cursor holds back trimming, too. The server knows where it stands, not since when: one that is far behind may
    be catching up, so it is a note, and whether anybody still reads with it is for people to know."""
    for name, id in case.before.items():
        waited = age_of(id, case.facts.now)
        if waited is not None and waited > case.patience.abandoned:
            remove = command("cursor", "rm", case.facts.topic, name)
            besides = f"if nobody needs it any more: {remove}" if can_be_named(name, "cursor") else ""
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
                f"for long nothing was held by, or heard of, {amount(len(gone), 'consumer')} of this group",
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
    trim = command("topic", "trim", facts.topic, "--keep", "1d")
    why = "no group and no cursor reads this topic, so all of it is kept" if pin else "nobody trims this topic"
    yield Finding.of(
        facts.topic,
        "untrimmed",
        f"{why}: its oldest entry is {span_text(first)} old",
        f"{amount(facts.length, 'entry', 'entries')}, the oldest {facts.first_id}",
        remedy=RUN,
        besides=f"with {reader(case)}"
        if pin
        else "its workers trim, as their retention says; or now, with --yes and"
        f" the age up to which it is to be kept: {trim}",
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
        unread = nobody_reads(group) if group.neglected > case.patience.quiet else ()
        found = [*paused(group), *(one for one in unread if one.subject not in abandoned)]
        yield from (structs.replace(one, level="note") for one in found)


def unnamed(topic: str, groups: Iterable[GroupFacts]) -> Iterator[Finding]:
    """Groups of other programs whose names no command takes: whether all is well with them, nobody can say."""
    for group in groups:
        needed = needed_from(group)
        kept = "" if needed is None else f"; it keeps everything from {needed} on"
        yield Finding.of(
            place(topic, escaped(group.name)),
            "unnamed",
            "this group cannot be looked at by name: the name has what cannot be printed, or is no text, or too long,"
            " or is the one that Penstock's own group has",
            f"it stands at {group.last_delivered}; {amount(len(group.consumers), 'consumer')},"
            f" {group.pending:,} pending{kept}",
            remedy="have its program, which is another one, use another name",
            level="note",
        )


def strange(case: TopicCase) -> Iterator[Finding]:
    yield from unnamed(case.facts.topic, case.unnamed)


def unattended(case: TopicCase) -> Iterator[Finding]:
    """What `why` says at once, told unasked when it has lasted. That nobody reads a topic may be meant so, as that
    nobody reads with a group; of what has a time, and is past it, nobody means that."""
    facts, quiet = case.facts, case.patience.quiet
    yield from (one for one in later(case) if one.level == "wrong")
    age = age_of(facts.first_id, facts.now) if facts.first_id else None
    if age is not None and age > quiet and not any(untrimmed(case)):
        yield from (structs.replace(one, level="note") for one in no_groups(case))
    for group, waits in case.awaited.items():
        is_late = waits.parked_due is not None and facts.now - waits.parked_due > quiet
        if is_late or waits.ready:
            yield structs.replace(awaits(case, group, waits), level="wrong" if is_late else "note")


RULES: Sequence[Rule] = (
    strange,
    lost_and_left,
    unreadable,
    standing_still,
    unattended,
    dead_groups,
    trimmed_cursors,
    dead_cursors,
    idle_consumers,
    untrimmed,
)

STUCK: Sequence[Rule] = (no_groups, later, trimmed_cursors)
"""For who asks why a topic is stuck."""
