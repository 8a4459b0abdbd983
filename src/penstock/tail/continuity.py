"""Going on from a place: whether anything is missing between it and what comes next. Decided from numbers alone."""

from collections.abc import Iterator
from typing import NamedTuple

from msgspec import structs

from penstock.backend.entry import Glimpse, Stored
from penstock.backend.facts import position as order
from penstock.backend.survey import Position, Survey, judge
from penstock.tail.items import Gap, Reason
from penstock.tail.places import FIRST_ID, NOWHERE, Place, predecessor

_REASONS: dict[str, Reason] = {"trimmed": "trimmed", "removed": "removed", "deleted": "deleted"}


class Step(NamedTuple):
    """What one look came to: first the gap, then the entries, then a place behind both."""

    gap: Gap | None
    entries: list[Stored]
    place: Place

    def placed(self) -> Iterator[tuple[Stored, Place]]:
        """The entries, each with the place behind it."""
        end = self.place
        for left, entry in zip(range(len(self.entries) - 1, -1, -1), self.entries, strict=True):
            ordinal = None if end.ordinal is None else end.ordinal - left
            yield entry, Place(entry.id, end.epoch, ordinal, end.unproved, end.told_upto)

    def behind_gap(self, before: Place) -> Place:
        """Where somebody stands who was at `before`, and has been told of the gap, but was given no entry yet."""
        if not self.entries:
            return self.place
        ordinal = None if self.place.ordinal is None else self.place.ordinal - len(self.entries)
        return structs.replace(self.place, id=before.id, ordinal=ordinal)


def go_on(topic: str, place: Place, seen: Glimpse) -> Step:
    """What follows `place`, where `seen` was read from its id.

    Nothing between the place and the step's place is passed by in silence: it is among the entries, or in the gap, or
    the step's place says from where on it is `unproved`. That ends with the first look that is complete.
    """
    survey = seen.survey
    if survey is None:
        # An id alone may have been made up, or be of a stream that is gone by now; behind 0-0 nothing can be missing.
        gap = Gap(topic, place.id, None, None, "gone") if place.epoch or place.id != FIRST_ID else None
        return Step(gap, [], NOWHERE)
    if place.epoch and place.epoch != survey.epoch:
        start = Place(FIRST_ID, survey.epoch, survey.added - survey.length)
        return Step(Gap(topic, place.id, None, None, "recreated"), [], start)
    if order(place.id) > order(survey.last):
        # Behind its last id, not behind ours: what it adds now may have an id that is not larger than ours.
        return Step(_rolled_back(topic, place), [], Place.at(survey.top))
    if place.ordinal is None:
        return _uncounted(topic, place, survey, seen)
    return _counted(topic, place, place.ordinal, survey, seen)


def _counted(topic: str, place: Place, ordinal: int, survey: Survey, seen: Glimpse) -> Step:
    there = len(seen.entries)
    verdict = judge(Position(place.id, ordinal, place.epoch), survey, there if seen.complete else None)
    gap, lost = None, 0
    if verdict.kind == "rolled back":
        return Step(_rolled_back(topic, place), seen.entries, _behind(place, survey, seen, None))
    if verdict.is_loss:
        lost = verdict.lost or 0
        gap = Gap(topic, place.unproved or place.id, _end_of_loss(place, survey), lost, _REASONS[verdict.kind])
    elif seen.complete and survey.added > ordinal + there:
        # Deleted in a stretch that was read in several pieces: only its end shows how many were there.
        lost = survey.added - ordinal - there
        gap = Gap(topic, place.unproved or place.id, survey.deleted, lost, "deleted")
    behind = _behind(place, survey, seen, ordinal + lost)
    if verdict.kind == "uncounted":
        behind = structs.replace(behind, unproved=place.unproved or place.id)
    return Step(gap, seen.entries, behind)


def _uncounted(topic: str, place: Place, survey: Survey, seen: Glimpse) -> Step:
    """From a place that came with an id and no count: whether entries are missing is all that can be told."""
    here = order(place.id)
    is_behind_all = survey.first is not None and here < order(survey.first)
    # All that is there lies behind the place, so what was ever added and is not there was before it, or is missing.
    ordinal = survey.added - survey.length if is_behind_all else None
    gap = None
    is_among_them = survey.first is not None and not is_behind_all
    if here == order(survey.last):
        pass  # nothing that this reader could want was ever added
    elif is_among_them and place.epoch and not survey.present and order(survey.deleted) < here:
        # Its entry was neither trimmed nor deleted, and is not there. Also where all that was ever added still is.
        gap = _rolled_back(topic, place)
    elif survey.added == survey.length:
        pass  # nothing was ever removed
    elif not is_among_them:
        gap = Gap(topic, place.id, _end_of_loss(place, survey), None, "trimmed")
    elif order(survey.deleted) > max(here, order(place.told_upto or FIRST_ID)):
        gap = Gap(topic, place.id, survey.deleted, None, "deleted")
        place = structs.replace(place, told_upto=survey.deleted)
    return Step(gap, seen.entries, _behind(place, survey, seen, ordinal))


def _behind(place: Place, survey: Survey, seen: Glimpse, ordinal: int | None) -> Place:
    if seen.complete:
        return Place.at(survey.top)
    last = None if ordinal is None else ordinal + len(seen.entries)
    return structs.replace(place, id=seen.entries[-1].id, epoch=survey.epoch, ordinal=last)


def _rolled_back(topic: str, place: Place) -> Gap:
    """What was read may be gone, and something else be there that was not: nobody knows from where on."""
    return Gap(topic, FIRST_ID, place.id, None, "rolled back")


def _end_of_loss(place: Place, survey: Survey) -> str:
    """The last id that can be missing, where what comes first is not there any more."""
    end = predecessor(survey.first) if survey.first is not None else survey.last
    return max(end, survey.deleted, key=order)
