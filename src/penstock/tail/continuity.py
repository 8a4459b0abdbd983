"""Going on from a place: whether anything is missing between it and what comes next. Decided from numbers alone."""

from collections.abc import Iterator
from typing import NamedTuple

from msgspec import structs

from penstock.backend.entry import Glimpse, Stored
from penstock.backend.survey import Position, Survey, judge
from penstock.tail.items import Gap, Reason
from penstock.tail.places import FIRST_ID, Place, order, predecessor

_REASONS: dict[str, Reason] = {"trimmed": "trimmed", "removed": "removed", "deleted": "deleted"}


class Step(NamedTuple):
    """What one look came to: first the gap, then the entries, then a place behind both."""

    gap: Gap | None
    entries: list[Stored]
    place: Place

    def counted(self) -> Iterator[tuple[Stored, int | None]]:
        """The entries, each with how many were ever added up to it; None if nobody knows."""
        last = self.place.ordinal
        for left, entry in zip(range(len(self.entries) - 1, -1, -1), self.entries, strict=True):
            yield entry, None if last is None else last - left

    def behind_gap(self, before: Place) -> Place:
        """Where somebody stands who was at `before`, and has been told of the gap, but was given no entry yet."""
        if not self.entries or self.place.ordinal is None:
            return Place(before.id, self.place.epoch) if self.entries else self.place
        return Place(before.id, self.place.epoch, self.place.ordinal - len(self.entries))


def go_on(topic: str, place: Place, seen: Glimpse) -> Step:
    """What follows `place`, where `seen` was read from its id.

    Nothing between the place and the step's place is passed by in silence: it is among the entries, or in the gap, or
    the step's place says from where on it is `unproved`. That ends with the first look that is complete.
    """
    survey = seen.survey
    if survey is None:
        gap = Gap(topic, place.id, None, None, "gone") if place.epoch else None
        return Step(gap, [], Place(FIRST_ID, "", 0) if gap else place)
    if place.epoch and place.epoch != survey.epoch:
        start = Place(FIRST_ID, survey.epoch, survey.added - survey.length)
        return Step(Gap(topic, place.id, None, None, "recreated"), [], start)
    if order(place.id) > order(survey.last):
        # Behind its last id, not behind ours: what it adds now may have an id that is not larger than ours.
        return Step(_rolled_back(topic, place), [], top_of(survey))
    if place.ordinal is None:
        return _uncounted(topic, place, survey, seen)
    return _counted(topic, place, place.ordinal, survey, seen)


def top_of(survey: Survey) -> Place:
    """Behind everything that is there. An entry that exists, where there is one: its loss can be told."""
    return Place(survey.newest or survey.last, survey.epoch, survey.added)


def _counted(topic: str, place: Place, ordinal: int, survey: Survey, seen: Glimpse) -> Step:
    there = len(seen.entries)
    verdict = judge(Position(place.id, ordinal, place.epoch), survey, there if seen.complete else None)
    gap, lost = None, 0
    if verdict.kind == "rolled back":
        return Step(_rolled_back(topic, place), seen.entries, _behind(place, survey, seen, None))
    if verdict.is_loss:
        lost = verdict.lost or 0
        gap = Gap(topic, place.id, _end_of_loss(place, survey), lost, _REASONS[verdict.kind])
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
    if place.id == FIRST_ID or here == order(survey.last):
        pass  # nothing that this reader could want was ever removed
    elif is_among_them and place.epoch and not survey.present and order(survey.deleted) < here:
        # Its entry was neither trimmed nor deleted, and is not there. Also where all that was ever added still is.
        gap = _rolled_back(topic, place)
    elif survey.added == survey.length:
        pass  # nothing was ever removed
    elif not is_among_them:
        gap = Gap(topic, place.id, _end_of_loss(place, survey), None, "trimmed")
    elif order(survey.deleted) > here:
        gap = Gap(topic, place.id, survey.deleted, None, "deleted")
    return Step(gap, seen.entries, _behind(place, survey, seen, ordinal))


def _behind(place: Place, survey: Survey, seen: Glimpse, ordinal: int | None) -> Place:
    if seen.complete:
        # If nothing follows, at the entry before: an id that no entry has would look like a loss next time.
        id = seen.entries[-1].id if seen.entries else survey.newest or place.id
        return Place(id, survey.epoch, survey.added)
    return Place(
        seen.entries[-1].id, survey.epoch, None if ordinal is None else ordinal + len(seen.entries), place.unproved
    )


def _rolled_back(topic: str, place: Place) -> Gap:
    """What was read may be gone, and something else be there that was not: nobody knows from where on."""
    return Gap(topic, FIRST_ID, place.id, None, "rolled back")


def _end_of_loss(place: Place, survey: Survey) -> str:
    """The last id that can be missing, where what comes first is not there any more."""
    end = predecessor(survey.first) if survey.first is not None else survey.last
    return max(end, survey.deleted, key=order)
