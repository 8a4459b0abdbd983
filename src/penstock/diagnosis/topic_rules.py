"""Rules on a topic as a whole: who is gone for good, and what is never trimmed."""

from collections.abc import Callable, Iterator, Sequence

from penstock.diagnosis.case import TopicCase
from penstock.diagnosis.finding import Finding, Level, amount, command, place
from penstock.diagnosis.group_rules import RUN, ghosts, owner_dead, trimmed
from penstock.message.times import moment_text, span_text
from penstock.overview import age_of, view

Rule = Callable[[TopicCase], Iterator[Finding]]


def dead_groups(case: TopicCase) -> Iterator[Finding]:
    """A group that nobody reads with any more holds back trimming until the server is full."""
    for group in case.groups:
        silence = group.waited if group.silence is None else group.silence
        needs = group.facts.next_id or group.facts.pending
        if needs and not group.is_at_work and silence is not None and silence > case.patience.abandoned:
            name = group.facts.name
            remove = command("group", "rm", case.facts.topic, name, "--yes")
            yield _finding(
                place(case.facts.topic, name),
                "dead-group",
                f"nobody has read with this group for {span_text(silence)}, and it keeps the topic from being trimmed",
                f"it needs everything from {group.facts.oldest_pending or group.facts.next_id} on;"
                f" {amount(len(group.facts.consumers), 'consumer')}, {group.facts.pending:,} pending",
                remedy=f"{RUN}; or, if it is not needed any more: {remove}",
            )


def idle_consumers(case: TopicCase) -> Iterator[Finding]:
    """Names of readers that are gone and hold nothing: harmless, until there are thousands."""
    for group in case.groups:
        gone = [one for one in group.facts.consumers if not one.pending and one.idle > case.patience.abandoned]
        if gone:
            yield _finding(
                place(case.facts.topic, group.facts.name),
                "idle-consumers",
                f"{amount(len(gone), 'consumer')} of this group hold nothing and were not heard of for long",
                f"{gone[0].name}: {span_text(gone[0].idle)} ago",
                remedy=f"none is needed while workers run, who remove them: {RUN}",
                level="note",
            )


def untrimmed(case: TopicCase) -> Iterator[Finding]:
    """What all have settled is still there, long after it should have gone, or nobody reads at all."""
    facts = case.facts
    pin = view(facts).pin
    first = age_of(facts.first_id, facts.now) if facts.first_id else None
    if first is None or first <= case.patience.kept or (pin is not None and pin.kind != "nobody"):
        return
    trim = command("topic", "trim", facts.topic, "--keep", "1d", "--yes")
    why = "no group and no cursor reads this topic, so all of it is kept" if pin else "nobody trims this topic"
    yield _finding(
        facts.topic,
        "untrimmed",
        f"{why}: its oldest entry is {span_text(first)} old",
        f"{amount(facts.length, 'entry', 'entries')}, the oldest {facts.first_id}",
        remedy=f"{RUN} with a bus of this topic" if pin else f"{RUN}, whose workers trim; or now: {trim}",
    )


def lost_and_left(case: TopicCase) -> Iterator[Finding]:
    """What is wrong with a group at any time, whether or not anybody waits for it."""
    for group in case.groups:
        for rule in (owner_dead, ghosts, trimmed):
            yield from rule(group)


RULES: Sequence[Rule] = (lost_and_left, dead_groups, idle_consumers, untrimmed)


def no_groups(case: TopicCase) -> Iterator[Finding]:
    """For who asks why a topic is stuck: nobody is there who could read it."""
    facts = case.facts
    if facts.length and not case.groups:
        yield _finding(
            facts.topic,
            "no-groups",
            f"nobody reads this topic: it has no group, and {amount(facts.length, 'entry', 'entries')}",
            f"from {facts.first_id} to {facts.last_id}",
            remedy=f"{RUN} with a bus of this topic that has a group and a handler",
        )


def later(case: TopicCase) -> Iterator[Finding]:
    """Messages that are not on the topic yet."""
    facts = case.facts
    if not facts.later or facts.later_due is None:
        return
    overdue = facts.now - facts.later_due
    late = overdue > case.patience.quiet
    due = f"overdue for {span_text(overdue)}" if late else f"due at {moment_text(facts.later_due)}"
    yield _finding(
        facts.topic,
        "later",
        f"{amount(facts.later, 'message')} of this topic are for later"
        + (", and nobody puts them on it though they are due" if late else ""),
        f"the next is {due}",
        remedy=RUN if late else "wait until they are due",
        level="wrong" if late else "note",
    )


STUCK: Sequence[Rule] = (no_groups, later)


def _finding(subject: str, rule: str, what: str, *evidence: str, remedy: str, level: Level = "wrong") -> Finding:
    return Finding(rule=rule, subject=subject, what=what, evidence=evidence, remedy=remedy, level=level)
