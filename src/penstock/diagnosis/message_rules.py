"""Rules on one message: where it is for each group, and what would make it get on."""

from collections.abc import Iterator

from penstock.backend import keys
from penstock.backend.facts import can_be_named
from penstock.diagnosis import recovery
from penstock.diagnosis.finding import Finding, amount, command, escaped, place
from penstock.diagnosis.group_rules import RUN
from penstock.whereabouts.sighting import (
    DeadForGood,
    Lost,
    LostInOrder,
    NotDue,
    Overdue,
    Unclear,
    Unread,
    Unsettled,
    Whereabouts,
)


def dead(seen: Whereabouts) -> Iterator[Finding]:
    """A group gave it up: it stays so until somebody replays it, or, where it cannot be, publishes it again."""
    for one in seen.sightings:
        if one.letter_id is not None:
            show = command("dead", "show", one.topic, one.letter_id)
            replay = command("dead", "replay", one.topic, one.letter_id, "--yes")
            is_final = isinstance(one, DeadForGood)
            yield Finding(
                rule="dead",
                subject=place(one.topic, one.group),
                what=f"the group gave the message up after {amount(one.attempt or 0, 'attempt')}: it is a dead letter",
                evidence=(one.detail,),
                remedy="publish it again" if is_final else replay,
                besides=f"once its cause is mended; what is left of it: {show}"
                if is_final
                else "once its cause is mended",
            )


def unsettled(seen: Whereabouts) -> Iterator[Finding]:
    """A group still has it before it."""
    for one in seen.sightings:
        if isinstance(one, Unsettled):
            yield Finding(
                rule="unsettled",
                subject=place(one.topic, one.group),
                what=f"the group has not settled it: {one.detail}",
                evidence=(f"entry {one.entry_id}",),
                remedy="what keeps the group from it, if anything does, is told beside this",
                level="note",
            )


def later(seen: Whereabouts) -> Iterator[Finding]:
    """It is not to be handled yet, or nobody has noticed that it is."""
    for one in seen.sightings:
        if isinstance(one, NotDue):
            is_late = isinstance(one, Overdue)
            yield Finding(
                rule="later",
                subject=place(one.topic, one.group),
                what=f"the message is for later: {one.detail}",
                remedy=RUN if is_late else "wait until it is due",
                level="wrong" if is_late else "note",
            )


def settled(seen: Whereabouts) -> Iterator[Finding]:
    """A group is done with it."""
    for one in seen.sightings:
        if one.what == "now" and one.group is not None and not isinstance(one, Unsettled | NotDue | Lost | Unclear):
            yield Finding(
                rule="settled",
                subject=place(one.topic, one.group),
                what=f"the group is done with it: {one.detail}",
                evidence=(f"entry {one.entry_id}",),
                remedy="nothing is to be done",
                level="note",
            )


def lost(seen: Whereabouts) -> Iterator[Finding]:
    """It went before the group was given it: only from elsewhere can it come back."""
    for one in seen.sightings:
        if isinstance(one, Lost):
            chosen = ["--ids", seen.id]
            if one.group is not None and not isinstance(one, LostInOrder):
                remedy, whereto = recovery.to_group(one.topic, one.group, chosen), "it is given to this group alone"
            else:
                remedy, whereto = recovery.to_another_topic(one.topic, chosen), recovery.ASIDE
            yield Finding(
                rule="lost",
                subject=place(one.topic, one.group),
                what="it was trimmed or deleted before the group had read it: the group will never be given it",
                evidence=(f"entry {one.entry_id}",),
                remedy=remedy,
                besides=f"that says whether it was archived; with --yes, {whereto}; where it was not, publish it again,"
                " which gives it to every group; this is told until the group is given its next entry",
            )


def unclear(seen: Whereabouts) -> Iterator[Finding]:
    """It may be dead, or wait, where there was too much to look through: that nothing keeps it nobody can say."""
    for one in seen.sightings:
        if isinstance(one, Unclear):
            whose = ("--group", one.group) if one.group and can_be_named(one.group) else ()
            look = command("dead", "show", one.topic, seen.id, *whose)
            besides = "that looks through all dead letters for it"
            if keys.is_lane(one.topic):
                look = command("job", "show", keys.queue_name(one.topic), seen.id)
                besides = "that says what its queue knows of it"
            yield Finding(
                rule="unclear",
                subject=place(one.topic, one.group and escaped(one.group)),
                what=f"whether the group is done with it cannot be told: {one.detail}",
                evidence=(f"entry {one.entry_id}",),
                remedy=look,
                besides=besides,
            )


def places(seen: Whereabouts) -> list[tuple[str, str | None]]:
    """Topics and groups that have it before them, each once; without a group, topics that none reads."""
    return list(dict.fromkeys((one.topic, one.group) for one in seen.sightings if isinstance(one, Unsettled | Unread)))


RULES = (dead, lost, unclear, unsettled, later, settled)
