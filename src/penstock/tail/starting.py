"""From what a user asks for to a place, once: whatever is added from then on lies behind it."""

from datetime import UTC, datetime

from penstock.backend.base import StreamBackend
from penstock.backend.survey import Position, Survey
from penstock.errors import ConfigurationError
from penstock.tail.continuity import top_of
from penstock.tail.mouthful import Mouthful
from penstock.tail.places import FIRST_ID, Cursor, Last, Place, Sought, Spot, Start, id_before, order, parse
from penstock.tail.search import Search

_NOWHERE = Place(FIRST_ID, "", 0)
"""In a topic that does not exist yet: whatever comes lies behind it."""


async def begin(backend: StreamBackend, topic: str, start: Start, search: Search) -> Place:
    """The place that `start` means now."""
    if isinstance(start, Cursor):
        place = await begin(backend, topic, parse(start.start), search)
        ordinal = -1 if place.ordinal is None else place.ordinal
        held = await backend.hold_cursor(topic, start.name, Position(place.id, ordinal, place.epoch))
        return Place(held.id, held.epoch, held.ordinal if held.ordinal >= 0 else None)
    if isinstance(start, Spot):
        return Place(start.id, start.epoch)
    if isinstance(start, Sought):
        return await search.find(start.message_id)
    survey = (await backend.glimpse(topic, FIRST_ID, 1)).survey
    if survey is None:
        return _NOWHERE
    if start == "latest":
        return top_of(survey)
    if isinstance(start, Last):
        return await _last(backend, topic, survey, start.count)
    if isinstance(start, datetime):
        return _at(start, survey)
    return Place(FIRST_ID, survey.epoch, survey.added - survey.length)


def _at(moment: datetime, survey: Survey) -> Place:
    if moment > datetime.now(UTC):
        raise ConfigurationError(f"a tail cannot begin at {moment.isoformat()}, which is still to come: use 'latest'")
    id = id_before(moment)
    return Place(id, "") if order(id) < order(survey.last) else top_of(survey)


async def _last(backend: StreamBackend, topic: str, survey: Survey, count: int) -> Place:
    """Behind the entry before them. What was deleted among them earlier is not missing: it counts as read."""
    before, left, counted, size = None, count + 1, 0, Mouthful()
    while left > 0:
        asked = min(left, size.next)
        entries = await backend.read_before(topic, before, asked)
        counted += sum(order(entry.id) <= order(survey.last) for entry in entries)
        if len(entries) < asked:
            return Place(FIRST_ID, survey.epoch, survey.added - counted)
        size.got(entries, asked)
        before, left = entries[-1].id, left - len(entries)
    if order(before or FIRST_ID) > order(survey.last):
        return Place(before or FIRST_ID, survey.epoch)  # so many have come since the survey
    return Place(before or FIRST_ID, survey.epoch, survey.added - counted + 1)
