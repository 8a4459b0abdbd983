"""Offsets keep their meaning and their spelling in Spark's log."""

import json

import pytest

from penstock.backend.survey import Position
from penstock.errors import ConfigurationError
from penstock.spark.source.offsets import Offset, Piece

OFFSET = Offset(
    {"b": Position("5-0", 3, "ab"), "a": Position("7-1", 12, "cd")},
    {"b": (Piece("0-0", "4-0", 2), Piece("4-0", "5-0", 1))},
)


def test_an_offset_survives_the_log() -> None:
    assert Offset.from_json(json.loads(json.dumps(OFFSET.to_json()))) == OFFSET


def test_equal_offsets_have_one_spelling() -> None:
    other = Offset(dict(reversed(OFFSET.streams.items())), OFFSET.splits)
    assert json.dumps(other.to_json()) == json.dumps(OFFSET.to_json())
    again = Offset.from_json(json.loads(json.dumps(OFFSET.to_json())))
    assert json.dumps(again.to_json()) == json.dumps(OFFSET.to_json())


def test_the_log_of_another_release_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="version 2"):
        Offset.from_json(OFFSET.to_json() | {"v": 2})
