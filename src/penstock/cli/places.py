"""Places in a topic, as people write them on the command line."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, TypeAlias

from cyclopts import Parameter, Token

from penstock.cli.moments import moment_of
from penstock.errors import ConfigurationError
from penstock.tail.places import parse


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
