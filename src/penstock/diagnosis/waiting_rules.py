"""Rules on what waits on a topic, or beside it, for somebody who is not there."""

from collections.abc import Iterator
from datetime import datetime

from penstock.backend import keys
from penstock.backend.facts import Awaited
from penstock.diagnosis.case import TopicCase
from penstock.diagnosis.finding import Finding, amount, place
from penstock.diagnosis.group_rules import RUN
from penstock.message.times import moment_text, span_text


def no_groups(case: TopicCase) -> Iterator[Finding]:
    """Nobody is there who could read the topic."""
    facts = case.facts
    whom, readers = "group", len(case.groups) + len(case.unnamed) + len(facts.cursors)
    if keys.is_lane(facts.topic):  # who copies jobs elsewhere does none of them
        whom, readers = "group of workers", sum(group.facts.read_by == "workers" for group in case.groups)
    if facts.length and not readers:
        yield Finding.of(
            facts.topic,
            "no-groups",
            f"nobody reads this topic: it has no {whom}, and {amount(facts.length, 'entry', 'entries')}",
            f"from {facts.first_id} to {facts.last_id}",
            remedy=RUN,
            besides=f"with {reader(case)} and a handler",
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


def awaited(case: TopicCase) -> Iterator[Finding]:
    """Deliveries wait for a group that is not there: jobs for their first worker, retries for one that was removed."""
    for group, waits in case.awaited.items():
        yield awaits(case, group, waits)


def awaits(case: TopicCase, group: str, waits: Awaited) -> Finding:
    """The same, of one group."""
    due = waits.parked_due
    is_due = bool(waits.ready) or due is None or due < case.facts.now
    next_due = f", the next {_due(case, due)}" if due else ""
    return Finding.of(
        place(case.facts.topic, group),
        "no-groups" if is_due else "later",
        f"{amount(waits.ready + waits.parked, 'delivery waits', 'deliveries wait')} for this group, which is not there:"
        " no worker of it has run yet, or none since it was removed",
        f"{waits.ready:,} ready",
        f"{waits.parked:,} for later{next_due}",
        remedy=RUN if is_due else "wait until they are due",
        besides="" if is_due else f"then: {RUN}",
        level="wrong" if is_due else "note",
    )


def reader(case: TopicCase) -> str:
    """What a program is to have for its workers to read a topic. A bus on a lane would do its jobs beside the queue,
    one on a partition would handle messages beside whoever has its turn."""
    topic = case.facts.topic
    if keys.is_lane(topic):
        return f"app.jobs({keys.queue_name(topic)!r})"
    if case.partitions:
        whole = topic.rpartition(":")[0]
        return f'app.bus({whole!r}, partitions={case.partitions}, ordering="key", group=...)'
    return f"app.bus({topic!r}, group=...)"


def _due(case: TopicCase, due: datetime) -> str:
    overdue = case.facts.now - due
    if overdue > case.patience.quiet:
        return f"overdue for {span_text(overdue)}"
    return f"due at {moment_text(due)}"
