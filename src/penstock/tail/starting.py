"""From what a user asks for to a place, once: whatever is added from then on lies behind it."""

from datetime import UTC, datetime

from penstock.backend.base import StreamBackend
from penstock.backend.facts import position as order
from penstock.backend.survey import Survey
from penstock.continuity.place import FIRST_ID, NOWHERE, Place, last_missing
from penstock.errors import ConfigurationError
from penstock.tail.mouthful import Mouthful
from penstock.tail.places import EARLIER_EPOCH, Cursor, Last, PlainStart, Sought, Spot, Start, id_before, parse
from penstock.tail.search import Search


async def begin(backend: StreamBackend, topic: str, start: Start, search: Search) -> Place:
    """The place that `start` means now. If the topic becomes another stream, that shows from the place alone."""
    if isinstance(start, Cursor):
        held = await backend.held_cursor(topic, start.name)
        if held is None:  # only then: what it once began behind may be gone, or take long to find
            place = await begin(backend, topic, parse(start.start), search)
            held = await backend.hold_cursor(topic, start.name, place.to_hold())
        return Place.at(held)
    place = await _meant(backend, topic, start, search)
    return place if place.epoch or place.ordinal is not None else await _anchored(backend, topic, place.id)


async def _anchored(backend: StreamBackend, topic: str, id: str) -> Place:
    """The place behind an id, in the stream that is there.

    With an epoch, an id says that its entry was there: if it is not, and was not removed, the server has fallen back.
    So one between two entries becomes that of the entry before it.
    """
    survey = (await backend.glimpse(topic, id, 1)).survey
    if survey is None:
        return NOWHERE if id == FIRST_ID else Place(id, EARLIER_EPOCH)
    here = order(id)
    is_between = survey.first is not None and order(survey.first) < here < order(survey.last)
    if is_between and not survey.present and order(survey.deleted) < here:
        for entry in await backend.read_before(topic, id, 1):
            return Place(entry.id, survey.epoch, told_upto=id)
    return Place(id, survey.epoch)


async def _meant(backend: StreamBackend, topic: str, start: PlainStart, search: Search) -> Place:
    if isinstance(start, Spot):
        return Place.recalled(start.id, start.epoch, start.ordinal)
    if isinstance(start, Sought):
        return await search.find(start.message_id)
    survey = (await backend.glimpse(topic, FIRST_ID, 1)).survey
    if survey is None:
        return NOWHERE
    is_empty = survey.first is None and not isinstance(start, datetime)
    if start == "latest" or is_empty:  # behind 0-0, all that was ever removed would be missing to who comes back
        return Place.behind_all(survey)
    if isinstance(start, Last):
        return await _last(backend, topic, survey, start.count)
    if isinstance(start, datetime):
        return _at(start, survey)
    return Place.before_all(survey)


def _at(moment: datetime, survey: Survey) -> Place:
    if moment > datetime.now(UTC):
        raise ConfigurationError(f"a tail cannot begin at {moment.isoformat()}, which is still to come: use 'latest'")
    id = id_before(moment)
    return Place(id, "") if order(id) < order(survey.last) else Place.behind_all(survey)


async def _last(backend: StreamBackend, topic: str, survey: Survey, count: int) -> Place:
    """Behind the entry before them. What was deleted among them earlier is not missing: it counts as read."""
    before, left, counted, size = None, count + 1, 0, Mouthful()
    while left > 0:
        asked = min(left, size.next())
        entries = await backend.read_before(topic, before, asked)
        counted += sum(order(entry.id) <= order(survey.last) for entry in entries)
        if len(entries) < asked:
            return Place(FIRST_ID, survey.epoch, survey.added - counted, told_upto=last_missing(survey))
        size.got(entries, asked)
        before, left = entries[-1].id, left - len(entries)
    if order(before or FIRST_ID) > order(survey.last):
        return Place(before or FIRST_ID, survey.epoch)  # so many have come since the survey
    return Place(before or FIRST_ID, survey.epoch, survey.added - counted + 1, told_upto=last_missing(survey))
