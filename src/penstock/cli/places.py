"""Places in a topic, as people write them on the command line."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from cyclopts import Parameter, Token

from penstock.backend.facts import position
from penstock.cli.dialects import DialectName
from penstock.cli.moments import moment_of
from penstock.cli.usage import UsageError
from penstock.errors import ConfigurationError
from penstock.message.times import moment_text
from penstock.overview import Overview
from penstock.tail.places import parse

if TYPE_CHECKING:
    from penstock.app import Penstock
    from penstock.backend.base import StreamBackend
    from penstock.continuity.place import Place as TopicPlace


def place_of(text: str) -> str | datetime:
    """earliest, latest, an entry id, a message's UUID, or a moment; `ValueError` if it is none of these."""
    try:
        parse(text)
    except ConfigurationError:
        try:
            return moment_of(text)
        except ValueError:
            raise ValueError(
                f"{text!r} is no place: give earliest, latest, an entry id, a message's UUID, or a moment, like"
                " 2026-11-15T08:00Z, yesterday, or 10m for ten minutes ago"
            ) from None
    return text


def _place(_: Any, tokens: Sequence[Token]) -> str | datetime:
    return place_of(tokens[0].value)


Place: TypeAlias = Annotated[str | datetime, Parameter(converter=_place, n_tokens=1, allow_leading_hyphen=True)]
"""The type of an argument that is a place in a topic."""


async def id_in(app: "Penstock", topic: str, to: str | datetime, dialect: DialectName = "native") -> str:
    """The id of `place_in`; if nothing is behind that, the last one ever given, so that no group goes back for nothing.

    Only looks.
    """
    last = (await Overview(app.backend).topic(topic)).last_id
    place = await place_in(app.backend.looking(), topic, to, dialect)
    behind = await app.backend.read_range(topic, f"({place.id}", "+", 1)
    return place.id if behind or last is None else last


async def place_in(
    backend: "StreamBackend", topic: str, to: str | datetime, dialect: DialectName = "native"
) -> "TopicPlace":
    """Where that is in a topic now; `UsageError` if it lies behind all that is there.

    Gives the stream an epoch if it has none, unless asked with a backend that is only `looking`.
    """
    from penstock.events import Listeners
    from penstock.message.wire import Wire
    from penstock.tail.search import Search
    from penstock.tail.starting import begin

    if isinstance(to, datetime) and to > datetime.now(UTC):
        raise _yet_to_come(topic, moment_text(to))
    place = await begin(backend, topic, parse(to), Search(backend, topic, Wire(dialect), Listeners()))
    if position(place.id) > position((await Overview(backend).topic(topic)).last_id):
        raise _yet_to_come(topic, place.id)
    return place


def _yet_to_come(topic: str, place: str) -> UsageError:
    return UsageError(f"{place} is yet to come on topic {topic!r}: latest is as far as one can go.")
