"""What a streaming query keeps on the server: each stream's epoch and, with the option `group`, a visible cursor.

The epoch is the one that every watched stream has, a consumer name of Penstock's own group. One token serves all
readers, it is there without any group of Spark's, and removing Spark's group does not look like a new stream.

With a group, the start of a query is durable from the first moment it is known: the group is created at it, in one
step. The group's cursor then follows what Spark has committed, never goes ahead of it, and holds back retention. It
belongs to one query, and has no consumers.
"""

from collections.abc import Callable, Iterable, Mapping

from penstock.backend import keys
from penstock.backend.redis.link import pack
from penstock.backend.redis.scripts import load
from penstock.backend.redis.surveying import seen_from, survey_of
from penstock.backend.survey import Position, Survey
from penstock.errors import ConfigurationError, GroupMissingError
from penstock.spark.connection.driver_link import Line
from penstock.spark.options.boundaries import FIRST_ID, Boundary, order

_HIGHEST_NUMBER = 2**64 - 1

Count = Callable[[str, str, str], int]
"""How many entries a stream holds behind one id, up to and with another."""


class Cursors:
    """Surveys, starts and cursors of one query. `group` is None for a query that leaves no mark of its progress."""

    def __init__(self, line: Line, group: str | None, count: Count) -> None:
        self._line = line
        self._group = group
        self._count = count

    def survey(self, places: Mapping[str, str]) -> dict[str, Survey | None]:
        """How each stream stands, seen from an id of it; None where there is no such stream."""
        script, doing = load("survey"), f"cannot see how {', '.join(places)} stand"
        names = list(places)
        if not names:
            return {}
        # The first call brings the text, if the server does not have it; the others then go out together.
        replies = [self._line.script(doing, script, names[:1], *seen_from(places[names[0]]))]
        packed = [pack("EVALSHA", script.sha, 1, name, *seen_from(places[name])) for name in names[1:]]
        replies += self._line.pipeline(doing, packed) if packed else []
        return {name: survey_of(reply) for name, reply in zip(names, replies, strict=True)}

    def begin(self, stream: str, place: Boundary) -> Position:
        """Where a query begins that has read nothing yet. With a group, the same until the query has committed.

        `ConfigurationError` for a place that is still to come: a position is an entry that was there, so the query
        would begin at the newest, and read what comes before the place too.
        """
        if self._group is None:
            return self._without_group(stream, place)
        start = ("$", "") if place.kind == "latest" else (FIRST_ID, "")
        if place.kind == "at" and not place.is_earliest:
            found = self._without_group(stream, place)
            start = (found.id, str(found.ordinal))
        return self._with_group(stream, self._group, place, *start)

    def advance(self, positions: Iterable[tuple[str, Position]]) -> list[str]:
        """Move the group's cursor up to what is committed; streams that are not there, or other ones now, are left out.

        Gives the streams on which somebody reads with the group: its cursor is theirs then, and stays.
        """
        if self._group is None:
            return []
        shared = []
        for stream, position in positions:
            doing = f"cannot move the cursor of group {self._group!r} on {stream!r}"
            args = (self._group, position.id, position.ordinal, position.epoch, keys.OWN_GROUP)
            if position.epoch and self._line.script(doing, load("set_cursor"), [stream], *args) == b"shared":
                shared.append(stream)
        return shared

    def bring_to(self, stream: str, position: Position) -> None:
        """Have the group stand at a position of a stream that is there, wherever it stood; back too.

        A group that somebody reads with stays: `begin` refuses it.
        """
        there = self._line.group(stream, self._group or "")
        if there is None or order(there["last-delivered-id"]) < order(position.id):
            self.advance([(stream, position)])
        elif there["last-delivered-id"] != position.id and not there["consumers"]:
            doing = f"cannot move the cursor of group {self._group!r} on {stream!r} back"
            words = ("SETID", stream, self._group or "", position.id, "ENTRIESREAD", position.ordinal)
            self._line.command(doing, "XGROUP", *words)

    def _without_group(self, stream: str, place: Boundary) -> Position:
        survey = self.survey({stream: FIRST_ID})[stream]
        self._check_reached(stream, place, FIRST_ID if survey is None else survey.last)
        if survey is None:
            return Position(FIRST_ID, 0, "")
        if place.kind == "latest":
            return survey.top
        if place.is_earliest:
            return Position(FIRST_ID, survey.added - survey.length, survey.epoch)
        return self._counted(stream, survey, self._entry_before(stream, place.id))

    def _with_group(self, stream: str, group: str, place: Boundary, start: str, count: str) -> Position:
        doing = f"cannot open the cursor of group {group!r} on {stream!r}"
        args = (group, start, count, int(keys.may_create(stream)))
        try:
            id, ordinal, consumers, before = self._line.script(doing, load("open_cursor"), [stream], *args)
        except GroupMissingError:
            raise keys.refusal(stream) from None
        if consumers:
            raise ConfigurationError(
                f"group {group!r} of topic {stream!r} has consumers, who would miss what Spark's cursor passes by:"
                " give option group a name that only this query uses"
            )
        if place.kind == "at":
            self._check_place(stream, place, id.decode())
        survey = self.survey({stream: FIRST_ID})[stream]
        if survey is None:
            return Position(FIRST_ID, 0, "")
        # A position should be an entry's own id: if that is gone later, and was not deleted, the server fell back.
        at = (before or id).decode()
        return self._counted(stream, survey, at) if ordinal < 0 else Position(at, ordinal, survey.epoch)

    def _check_reached(self, stream: str, place: Boundary, last: str) -> None:
        if place.kind != "at" or order(place.id) <= order(last):
            return
        if is_time(place):
            seconds, micros = map(int, self._line.command("cannot ask the server for its time", "TIME"))
            # Ids are times of the server: whatever comes now comes behind.
            if order(place.id) < (seconds * 1000 + micros // 1000, 0):
                return
        raise ConfigurationError(
            f"startingPosition is still to come for topic {stream!r}, whose last id is {last}: use latest to read what"
            " comes from now on, or give a time that has passed"
        )

    def _check_place(self, stream: str, place: Boundary, cursor: str) -> None:
        """Whether the group, if it was there before, stands where the query is told to begin."""
        if order(cursor) <= order(place.id):
            doing = f"cannot look into {stream!r}"
            if not self._line.command(doing, "XRANGE", stream, f"({cursor}", place.id, "COUNT", 1):
                return
        raise ConfigurationError(
            f"group {self._group!r} of topic {stream!r} stands at {cursor}, which is not where startingPosition says:"
            " leave startingPosition out to go on there, or give option group another name"
        )

    def _counted(self, stream: str, survey: Survey, id: str) -> Position:
        """What is not there now counts as read, so it is counted from the end."""
        left = self._count(stream, id, survey.top.id)
        return Position(id, survey.added - left, survey.epoch)

    def _entry_before(self, stream: str, id: str) -> str:
        found = self._line.command(f"cannot look into {stream!r}", "XREVRANGE", stream, id, "-", "COUNT", 1)
        return found[0][0].decode() if found else FIRST_ID


def is_time(place: Boundary) -> bool:
    """Whether it was given as a time, which need not be any entry's."""
    return order(place.id)[1] == _HIGHEST_NUMBER
