"""Where a streaming query stands: what Spark writes to its offset log, in one spelling.

An end offset holds the whole plan of its batch, ranges and counts, so that a batch that is run again after a restart
reads exactly what was planned, even where the start of the first batch, which Spark writes down nowhere, is no longer
what it was.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.backend.survey import Position
from penstock.errors import ConfigurationError

_VERSION = 1


@dataclass(frozen=True, slots=True)
class Piece:
    """What one task reads: the entries behind `after`, up to and with `upto`."""

    after: str
    upto: str
    rows: int
    """How many they were when they were planned."""


@dataclass(frozen=True, slots=True)
class Offset:
    """All streams of a query, and the pieces of the batch that ends here."""

    streams: Mapping[str, Position] = field(default_factory=dict)
    splits: Mapping[str, tuple[Piece, ...]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Equal offsets give equal texts: Spark compares those, and takes any difference for new data."""
        return {
            "v": _VERSION,
            "s": {
                name: {"id": place.id, "n": place.ordinal, "e": place.epoch}
                for name, place in sorted(self.streams.items())
            },
            "x": {
                name: [[piece.after, piece.upto, piece.rows] for piece in pieces]
                for name, pieces in sorted(self.splits.items())
            },
        }

    @classmethod
    def from_json(cls, offset: Mapping[str, Any]) -> "Offset":
        if offset.get("v") != _VERSION:
            raise ConfigurationError(
                f"the checkpoint holds an offset of version {offset.get('v')!r}, and this Penstock reads version"
                f" {_VERSION}: use the release that wrote it, or a new checkpoint"
            )
        return cls(
            {name: Position(place["id"], place["n"], place["e"]) for name, place in offset["s"].items()},
            {name: tuple(Piece(*piece) for piece in pieces) for name, pieces in offset["x"].items()},
        )
