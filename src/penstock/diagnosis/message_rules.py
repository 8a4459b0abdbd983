"""Rules on one message: where it is for each group, and what would make it get on."""

from collections.abc import Iterator, Sequence

from penstock.diagnosis.finding import Finding, command, place
from penstock.whereabouts import Sighting, Unsettled


def dead(sightings: Sequence[Sighting]) -> Iterator[Finding]:
    """A group gave it up: it stays so until somebody replays it."""
    for one in sightings:
        if one.what == "dead":
            letter = one.detail.rpartition(" ")[2]
            yield Finding(
                rule="dead",
                subject=place(one.topic, one.group),
                what=f"the group gave the message up after {one.attempt} attempts: it is a dead letter",
                evidence=(one.detail,),
                remedy=f"mend the cause, then: {command('dead', 'replay', one.topic, letter, '--yes')}",
            )


def unsettled(sightings: Sequence[Sighting]) -> Iterator[Finding]:
    """A group still has it before it."""
    for one in sightings:
        if isinstance(one, Unsettled):
            yield Finding(
                rule="unsettled",
                subject=place(one.topic, one.group),
                what=f"the group has not settled it: {one.detail}",
                evidence=(f"entry {one.entry_id}",),
                remedy="what keeps the group from it, if anything does, is told beside this",
                level="note",
            )


def settled(sightings: Sequence[Sighting]) -> Iterator[Finding]:
    """A group is done with it."""
    for one in sightings:
        if one.what == "now" and one.group is not None and not isinstance(one, Unsettled):
            yield Finding(
                rule="settled",
                subject=place(one.topic, one.group),
                what=f"the group is done with it: {one.detail}",
                evidence=(f"entry {one.entry_id}",),
                remedy="nothing is to be done",
                level="note",
            )


def places(sightings: Sequence[Sighting]) -> list[tuple[str, str]]:
    """Topics and groups that have not settled it, each once."""
    return list(dict.fromkeys((one.topic, one.group) for one in sightings if isinstance(one, Unsettled) and one.group))


RULES = (dead, unsettled, settled)
