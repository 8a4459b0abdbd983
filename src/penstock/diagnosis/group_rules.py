"""Rules on one group: why it does not get on. Each is a pure function from what was seen to what is wrong."""

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta

from penstock.backend import keys
from penstock.backend.entry import Held, Malformed
from penstock.backend.facts import TopicFacts, can_be_named
from penstock.backend.sighting import Consumer
from penstock.diagnosis import recovery
from penstock.diagnosis.case import GroupCase
from penstock.diagnosis.finding import Finding, amount, command, escaped
from penstock.message.times import moment_text, span_text
from penstock.overview import age_of, lag_of

Rule = Callable[[GroupCase], Iterator[Finding]]

_BEGUN_TOO_OFTEN = 2
"""The first time proves nothing: an entry is suspected only because its reader died. The second time that reader's heir
has died too, or hangs."""

_NAMED = 5
_CLAIMED = timedelta(seconds=30)
"""What `penstock group claim` minds unless it is told: whatever was not touched for so long."""

RUN = "penstock run MODULE:APP"


def paused(case: GroupCase) -> Iterator[Finding]:
    if case.facts.paused:
        what = "the group is paused: its workers read nothing"
        yield Finding.of(case.subject, "paused", what, _unread(case), remedy=_group(case, "resume"))


def nobody_reads(case: GroupCase) -> Iterator[Finding]:
    """There is work, and nobody was heard of lately. Of a paused group nobody can tell: it is silent on purpose.

    That there is nobody at the moment is a note: workers may be about to start, or to be replaced by others. Not where
    somebody has ended leases: whoever there is would have taken over what was held.
    """
    facts = case.facts
    if facts.paused or not case.is_due or case.is_at_work:
        return
    if case.turn is not None:
        what = "nobody has the turn of this reader in sequence"
        seen = ["its last holder gave it up"]  # when, nobody has noted
        if case.turn.holder is not None and case.silence is not None:
            seen = [f"the last holder was {case.turn.holder}, {span_text(case.silence)} ago"]
    elif facts.read_by == "cursor":
        what = (
            "no worker ever read with this group: it is a cursor, such as a Spark query keeps, that stands still, or"
            " its readers never came"
        )
        seen = [f"it stands at {facts.last_delivered}, and has no consumers"]
    else:
        what = "nobody reads"
        named = case.heard_of[:_NAMED]
        seen = [f"consumer {escaped(one.name)} was last heard of {span_text(one.idle)} ago" for one in named]
        seen += _left(case)
        seen = seen or ["the group has no consumers"]
    is_brief = case.neglected <= case.patience.quiet and not case.relieved
    brief = f"unless that has just begun: it is called wrong after {span_text(case.patience.quiet)}, or as --quiet says"
    yield Finding.of(
        case.subject,
        "nobody-reads",
        what,
        *seen,
        _unread(case),
        remedy=start(case),
        besides=brief if is_brief else "",
        level="note" if is_brief else "wrong",
    )


def _left(case: GroupCase) -> list[str]:
    """Of each consumer, how many entries nobody holds any more, as far as they were looked at."""
    looked = (*case.held, *case.retried)
    found = [_left_by(one, [held for held in looked if held.consumer == one.name]) for one in case.facts.consumers]
    told = [one for one in found if one]
    more = [f"so it is with {amount(len(told) - _NAMED, 'more consumer')}"] if len(told) > _NAMED else []
    return told[:_NAMED] + more


def _left_by(consumer: Consumer, looked: Sequence[Held]) -> str:
    free = [held for held in looked if held.is_free]
    if not free:
        return ""
    name, waits, part = escaped(consumer.name), len(free), ""
    if len(looked) < consumer.pending:
        part = f", of {len(looked):,} that were looked at"
        if len(free) == len(looked):
            waits, part = consumer.pending, f", to judge by the oldest {len(looked):,} of them"
    was_left = all(held.is_handed_back for held in free)
    how = f"consumer {name} handed back what it held" if was_left else f"the leases of consumer {name} were ended"
    return f"{how}: {amount(waits, 'entry waits', 'entries wait')} to be taken over{part}"


def start(case: GroupCase) -> str:
    """What brings readers to the group. A query says how much it has read; a group that was just made does not."""
    if case.facts.read_by != "cursor":
        return RUN
    if case.facts.entries_read is None:
        return "start whoever reads with this group: its workers, or its Spark query"
    return "start the Spark query of this group again"


def owner_dead(case: GroupCase) -> Iterator[Finding]:
    """Entries are held by somebody who is silent, and whom nobody has relieved."""
    silent = {one.name: one.idle for one in case.facts.consumers if one.idle > case.patience.quiet}
    held = [one for one in (*case.held, *case.retried) if not one.is_free]
    left = [one for one in held if one.consumer in silent and one.idle > case.patience.quiet]
    for name in sorted({one.consumer for one in left}):
        ids = [one.id for one in left if one.consumer == name]
        # Who calls a shorter silence death means what was touched since, too.
        least = ("--idle", span_text(case.patience.quiet)) if case.patience.quiet < _CLAIMED else ()
        claim = _group(case, "claim", "--consumer", name, *least, "--yes")
        at_once = f"; at once: {claim}" if can_be_named(name, "consumer") else ""
        yield Finding.of(
            case.subject,
            "owner-dead",
            f"consumer {escaped(name)} holds {amount(len(ids), 'entry', 'entries')} at least, and is dead or stuck",
            f"it was last heard of {span_text(silent[name])} ago",
            f"the oldest it holds is {ids[0]}",
            remedy=RUN,
            besides=f"it takes them over after its lease{at_once}",
        )


def ghosts(case: GroupCase) -> Iterator[Finding]:
    """Entries that are pending and were deleted or trimmed: no reader can ever be given them."""
    gone = case.ghosts
    if gone:
        yield Finding.of(
            case.subject,
            "ghosts",
            f"of those looked at, {amount(len(gone), 'pending entry is', 'pending entries are')} not in the"
            " stream any more: somebody trimmed or deleted them before they were settled",
            _ids(gone),
            remedy=RUN,
            besides="it makes dead letters of them; to forget them: "
            + _group(case, "ack", *(one.id for one in gone), "--yes"),
        )


def poison(case: GroupCase) -> Iterator[Finding]:
    """One message that its readers cannot get past."""
    for one in [one for one in case.suspects if one.begun >= _BEGUN_TOO_OFTEN][:_NAMED]:
        id, held = one.held.id, one.held
        failed = (f"{amount(one.failures, 'attempt')} before that failed",) if one.failures else ()
        yield Finding.of(
            case.subject,
            "poison",
            f"entry {id} was begun {amount(one.begun, 'time')} after its reader had died, and never settled: it may"
            " kill or stop whoever handles it",
            f"consumer {escaped(held.consumer)} holds it now, for {span_text(held.idle)}",
            *failed,
            remedy=command("get", id, one.stream),
            besides=f"that shows it; to have it handled by nobody: {_group(case, 'ack', id, '--yes')}",
        )


def failing(case: GroupCase) -> Iterator[Finding]:
    """In sequence, all others wait behind the message that fails."""
    if case.failures and case.turn is not None:
        what = f"the next message in sequence failed {amount(case.failures, 'time')}, and all others wait behind it"
        yield _stopped(case, case.turn.failed_id, what, then="then mend its handler, or")


def unreadable(case: GroupCase) -> Iterator[Finding]:
    """In sequence, all others wait behind the entry that cannot be read; for who said how the topic is written."""
    if isinstance(case.head, Malformed) and not case.failures:
        what = "the next entry in sequence cannot be read, and all others wait behind it"
        then = "if the topic has another wire format, ask again with --dialect; else"
        yield _stopped(case, case.head.id, what, f": {case.head.error.reason}", then=then)


def _stopped(case: GroupCase, id: str, what: str, reason: str = "", *, then: str) -> Finding:
    give_up = f"give it up with changes.dead_letter({id!r}, reason)"
    return Finding.of(
        case.subject,
        "poison",
        what,
        f"entry {id}{reason}",
        remedy=command("get", id, case.topic.topic),
        besides=f"that shows it; {then} {give_up}",
    )


def trimmed(case: GroupCase) -> Iterator[Finding]:
    """Entries went before the group was given them."""
    if not case.lost:
        return
    reader, first = case.facts.read_by, case.topic.first_id or "none, the topic is empty"
    whose = "while Spark was stopped" if reader == "cursor" else "before the group was given them"
    remedy, besides = _recovered(case)
    yield Finding.of(
        case.subject,
        "spark-trimmed" if reader == "cursor" else "trimmed",
        f"{amount(case.lost, 'entry was', 'entries were')} trimmed {whose}, by XTRIM, MAXLEN or a cut: Penstock's"
        " retention waits for every group",
        f"it stands at {case.facts.last_delivered}; the oldest entry is {first}",
        remedy=remedy,
        besides=f"{besides}; this is told until the group is given its next entry, whatever was brought back",
    )


def _recovered(case: GroupCase) -> tuple[str, str]:
    """What brings back what the group lost, to it alone, and what is to be known about that."""
    topic, reader = case.topic, case.facts.read_by
    gone = recovery.missing(topic, case.facts.last_delivered)
    aside, archived = recovery.to_another_topic(topic.topic, gone), "that says what was archived of them; with --yes"
    if reader == "workers":
        given = recovery.to_group(topic.topic, case.facts.name, gone)
        besides = f"{archived}, it is given to this group alone, which goes on as ever"
        return given, besides + (_still_to_be_done(topic.topic) if keys.is_lane(topic.topic) else "")
    if reader == "sequence":
        on = "which goes on behind the gap after changes.accept_loss(), of a partition by itself"
        return aside, f"{archived}, {recovery.ASIDE}, {on}"
    start = "start the query again with failOnDataLoss=false to go on behind the gap"
    return start, f"what another archive has of them is said, and with --yes put on topic OTHER, by: {aside}"


def _still_to_be_done(lane: str) -> str:
    show = command("job", "show", keys.queue_name(lane), "ID")
    return (
        "; jobs that were cancelled or put in another lane are among them, and would be done all the same: to leave"
        f" these out, name the others, each with --ids; this still knows these, and not the others: {show}"
    )


def future(case: GroupCase) -> Iterator[Finding]:
    """Everything that is left waits for its next attempt."""
    facts, due = case.facts, case.facts.parked_due
    busy = facts.next_id or facts.pending or facts.ready or facts.retrying
    if facts.parked and due is not None and due > case.now and not busy:
        topic, retry = case.topic.topic, _group(case, "retry", "--yes")
        has_failed = case.parked is not None and case.parked.failed and case.parked.deliveries
        kinds = "it failed, was snoozed, or is scheduled" if keys.is_lane(topic) else "it failed, or was snoozed"
        yield Finding.of(
            case.subject,
            "retries-later",
            f"all that is left, {amount(facts.parked, 'delivery', 'deliveries')}, waits until it is due: {kinds}",
            f"the next is due at {moment_text(due)}, in {span_text(due - case.now)}",
            remedy=retry if has_failed else "wait until it is due",
            besides="once what makes them fail is mended: the reasons are in the log and, of those given up, in"
            f" {command('dead', 'ls', topic)}; or wait"
            if has_failed
            else f"if any of them have failed, to try those at once: {retry}",
            level="note",
        )


def starved(case: GroupCase) -> Iterator[Finding]:
    """A lane waits while workers are busy with those that come first."""
    urgent = [(lane.topic, backlog) for lane in case.above if (backlog := _backlog(case.facts.name, lane))]
    if not urgent or not case.facts.next_id or case.facts.paused:
        return
    age = _age(case.facts.next_id, case)
    if age > case.patience.quiet:
        yield Finding.of(
            case.subject,
            "starved",
            f"this lane's oldest job has waited for {span_text(age)}, behind more urgent ones: lower lanes get one job"
            " in 16, no more",
            *(f"{name} has {amount(backlog, 'entry', 'entries')} that nobody has begun" for name, backlog in urgent),
            remedy=f"{RUN} --concurrency N",
            besides="more workers, that is; or make a job urgent:"
            f" {command('job', 'priority', keys.queue_name(case.topic.topic), 'ID', 'high')}",
        )


def behind(case: GroupCase) -> Iterator[Finding]:
    """Nothing is broken: there is more to do than is being done."""
    lag = lag_of(case.facts)
    late = lag.seconds is not None and timedelta(seconds=lag.seconds) > case.patience.quiet
    if case.is_at_work and not case.facts.paused and late and not case.above:
        yield Finding.of(
            case.subject,
            "behind",
            "workers are at work, and do not keep up",
            _unread(case),
            f"{amount(len(case.facts.consumers), 'consumer holds', 'consumers hold')}"
            f" {case.facts.pending + case.facts.retrying:,}",
            remedy=f"{RUN} --concurrency N",
            besides="more of them, that is; or in more processes, with --workers",
            level="note",
        )


STUCK: Sequence[Rule] = (
    paused, nobody_reads, owner_dead, ghosts, poison, failing, unreadable, trimmed, future, starved, behind,
)  # fmt: skip


def _group(case: GroupCase, verb: str, *words: str) -> str:
    return command("group", verb, case.topic.topic, case.facts.name, *words)


def _unread(case: GroupCase) -> str:
    facts = case.facts
    waits = f"{facts.ready:,} ready to be tried again, {facts.parked:,} parked"
    if facts.next_id is None:
        return f"nothing unread; {waits}"
    age = span_text(_age(facts.next_id, case))
    return f"the oldest unread entry, {facts.next_id}, has waited for {age}; {waits}"


def _age(id: str, case: GroupCase) -> timedelta:
    return age_of(id, case.now) or timedelta(0)


def _backlog(group: str, lane: TopicFacts) -> int:
    for facts in lane.groups:
        if facts.name == group and (facts.next_id or facts.ready):
            return max(1, (lag_of(facts).messages or 0) + facts.ready)
    return 0


def _ids(held: Sequence[Held]) -> str:
    named = ", ".join(f"{one.id} (held by {escaped(one.consumer)})" for one in held[:_NAMED])
    return named + (f" and {len(held) - _NAMED:,} more" if len(held) > _NAMED else "")
