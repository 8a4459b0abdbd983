"""A snapshot first, and then what changed since it was taken."""

from collections.abc import Awaitable, Callable

from penstock.backend.facts import position as order
from penstock.backend.survey import Position, Survey
from penstock.changes.reading import Reading
from penstock.changes.settling import as_ours
from penstock.changes.tenure import Tenure
from penstock.continuity.place import FIRST_ID
from penstock.errors import ChangeStreamError, DataLossError, PenstockError, ServerError, TurnLostError

Take = Callable[[], Awaitable[str | None]]


async def begin_with(reading: Reading, take: Take) -> bool:
    """Have the reader begin where a snapshot was taken, unless it did; False then."""
    while (tenure := await reading.held()) is not None:
        if tenure.has_snapshot:
            return False
        try:
            if await _is_taken(reading, tenure, take):
                return True
        except (TurnLostError, DataLossError):
            continue  # somebody else has the turn, or it is another stream: what was taken belongs nowhere
        except ServerError as error:
            await reading.stumble(tenure, error)
        except PenstockError as error:
            ours = as_ours(error, "cannot begin with a snapshot", reading.terms.topic, reading.terms.reader)
            raise ours from ours.__cause__
    return False


async def _is_taken(reading: Reading, tenure: Tenure, take: Take) -> bool:
    before = await reading.look(FIRST_ID)
    if tenure.acks.place.id != FIRST_ID:
        # From there on nothing is trimmed: whatever the snapshot does not hold will be there.
        await reading.place(tenure, Position(FIRST_ID, before.added - before.length, before.epoch))
        return False
    with reading.waiting.engaged():
        taken_at = await take()
    if taken_at is None:
        await reading.place(tenure, before.top, snapshot=True)
        return True
    now = await reading.look(_checked(taken_at))
    await reading.place(tenure, _position(taken_at, now), snapshot=True, told_upto=now.deleted)
    return True


def _checked(taken_at: str) -> str:
    try:
        order(taken_at)
    except (ValueError, AttributeError):
        raise ChangeStreamError(
            f"a snapshot is taken at the entry id of the last change in it, or at None, not at {taken_at!r}"
        ) from None
    return taken_at


def _position(taken_at: str, now: Survey) -> Position:
    if order(taken_at) > order(now.last):
        raise ChangeStreamError(f"a snapshot cannot be taken at {taken_at}: the last change of its topic is {now.last}")
    is_behind_all = order(taken_at) >= order(now.newest)
    return Position(taken_at, now.added if is_behind_all else -1, now.epoch)
