"""Going on from a place: whether anything is missing between it and what comes next. Decided from numbers alone."""

from collections.abc import Iterator
from typing import NamedTuple

from msgspec import structs

from penstock.backend.entry import Glimpse, Stored
from penstock.backend.facts import position as order
from penstock.backend.survey import Position, Survey, judge
from penstock.continuity.gap import Gap, Reason
from penstock.continuity.place import FIRST_ID, NOWHERE, Place, last_missing

_REASONS: dict[str, Reason] = {"trimmed": "trimmed", "removed": "removed", "deleted": "deleted"}


class Step(NamedTuple):
    """What one look came to: first the gap, then the entries, then a place behind both."""

    gap: Gap | None
    entries: list[Stored]
    place: Place

    told_upto: str | None = None
    """Of those who were given some of the entries."""

    is_at_end: bool = False
    """Behind the place there was nothing, and all up to there is told."""

    def within(self, most: int) -> "Step":
        """No more of its entries than these bytes, but at least one; the others are still to be read."""
        size = 0
        for count, entry in enumerate(self.entries):
            size += sum(map(len, entry.fields))
            if size > most and count:
                return self.parted(count)[0]
        return self

    def parted(self, count: int) -> "tuple[Step, Step]":
        """Two steps that come to the same: the first `count` of its entries, more than none of them, and the others."""
        left = len(self.entries) - count
        ordinal = None if self.place.ordinal is None else self.place.ordinal - left
        kept = self.entries[:count]
        place = Place(kept[-1].id, self.place.epoch, ordinal, self.place.unproved, self.told_upto)
        return Step(self.gap, kept, place, self.told_upto), self._replace(gap=None, entries=self.entries[count:])

    def placed(self) -> Iterator[tuple[Stored, Place]]:
        """The entries, each with the place behind it."""
        end = self.place
        for left, entry in zip(range(len(self.entries) - 1, -1, -1), self.entries, strict=True):
            ordinal = None if end.ordinal is None else end.ordinal - left
            yield entry, Place(entry.id, end.epoch, ordinal, end.unproved, self.told_upto)

    def behind_gap(self, before: Place) -> Place:
        """Where somebody stands who was at `before`, and has been told of the gap, but was given no entry yet."""
        if not self.entries:
            return self.place
        ordinal = None if self.place.ordinal is None else self.place.ordinal - len(self.entries)
        return structs.replace(self.place, id=before.id, ordinal=ordinal, told_upto=self.told_upto)


def go_on(topic: str, place: Place, seen: Glimpse) -> Step:
    """What follows `place`, where `seen` was read from its id.

    Nothing between the place and the step's place is passed by in silence: it is among the entries, or in the gap, or
    the step's place says from where on it is `unproved`. That ends with the first look that is complete.
    """
    survey = seen.survey
    if survey is None:
        # An id alone may have been made up, or be of a stream that is gone by now; behind 0-0 nothing can be missing.
        gap = Gap(topic, place.id, None, None, "gone") if place.epoch or place.id != FIRST_ID else None
        return Step(gap, [], NOWHERE, is_at_end=True)
    if place.epoch and place.epoch != survey.epoch:
        return Step(Gap(topic, place.id, None, None, "recreated"), [], Place.before_all(survey))
    if order(place.id) > order(survey.last):
        # Behind its last id, not behind ours: what it adds now may have an id that is not larger than ours.
        return Step(_rolled_back(topic, place), [], Place.behind_all(survey), is_at_end=True)
    if place.ordinal is None:
        return _uncounted(topic, place, survey, seen)
    return _counted(topic, place, place.ordinal, survey, seen)


def _counted(topic: str, place: Place, ordinal: int, survey: Survey, seen: Glimpse) -> Step:
    there = len(seen.entries)
    verdict = judge(Position(place.id, ordinal, place.epoch), survey, there if seen.complete else None)
    if verdict.kind == "rolled back":
        return _step(_rolled_back(topic, place), Place(place.id, place.epoch), survey, seen)
    if not (seen.complete or _is_before_all(place, survey)):
        if verdict.kind == "uncounted":
            place = structs.replace(place, unproved=place.unproved or place.id)
        return _step(None, place, survey, seen)
    # All that is there behind the place is known, so what was deleted since it was `unproved` shows too.
    lost = max(0, survey.added - ordinal - (there if seen.complete else survey.length))
    gap = _counted_gap(topic, place, survey, lost, _REASONS.get(verdict.kind, "deleted")) if lost else None
    return _step(gap, _all_told(place, survey, ordinal + lost), survey, seen)


def _counted_gap(topic: str, place: Place, survey: Survey, lost: int, reason: Reason) -> Gap:
    after, upto = place.unproved or place.id, last_missing(survey)
    if order(upto) <= order(after):  # what the server says of deletions is older than what we know of them
        after, upto = FIRST_ID, place.id
    return Gap(topic, after, upto, lost, reason)


def _uncounted(topic: str, place: Place, survey: Survey, seen: Glimpse) -> Step:
    """From a place that came with an id and no count: whether entries are missing is all that can be told."""
    here, gap = order(place.id), None
    is_among_them = survey.first is not None and not _is_before_all(place, survey)
    if here == order(survey.last):
        pass  # nothing that this reader could want was ever added
    elif is_among_them and place.epoch and not survey.present and order(survey.deleted) < here:
        # Its entry was neither trimmed nor deleted, and is not there. Also where all that was ever added still is.
        gap = _rolled_back(topic, place)
    elif survey.added == survey.length:
        pass  # nothing was ever removed
    elif not is_among_them and order(last_missing(survey)) > here:
        gap = Gap(topic, place.id, last_missing(survey), None, "trimmed")
    elif order(survey.deleted) > max(here, order(place.told_upto or FIRST_ID)):
        gap = Gap(topic, place.id, survey.deleted, None, "deleted")
        place = structs.replace(place, told_upto=survey.deleted)
    if survey.first is not None and _is_before_all(place, survey):
        # All that is there lies behind the place, so what was ever added and is not there was before it, or is missing.
        place = _all_told(place, survey, survey.added - survey.length)
    return _step(gap, place, survey, seen)


def _step(gap: Gap | None, place: Place, survey: Survey, seen: Glimpse) -> Step:
    """The gap, and then what was seen from the place."""
    if seen.complete:
        return Step(gap, seen.entries, Place.behind_all(survey), last_missing(survey), is_at_end=True)
    last = None if place.ordinal is None else place.ordinal + len(seen.entries)
    end = structs.replace(place, id=seen.entries[-1].id, epoch=survey.epoch, ordinal=last)
    return Step(gap, seen.entries, end, place.told_upto)


def _all_told(place: Place, survey: Survey, ordinal: int) -> Place:
    """The same place, when all that is missing anywhere is counted."""
    return Place(place.id, survey.epoch, ordinal, told_upto=last_missing(survey))


def _is_before_all(place: Place, survey: Survey) -> bool:
    return survey.first is None or order(place.id) < order(survey.first)


def _rolled_back(topic: str, place: Place) -> Gap:
    """What was read may be gone, and something else be there that was not: nobody knows from where on."""
    return Gap(topic, FIRST_ID, place.id, None, "rolled back")
