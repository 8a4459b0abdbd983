"""The pages that are made from the code are what the code says now."""

import importlib

import pytest

import penstock
from scripts.reference.api import ROOMS
from scripts.reference.pages import made
from tests.support.pages import ROOT

MADE = made()


@pytest.mark.parametrize("name", MADE)
def test_what_is_made_is_up_to_date(name: str) -> None:
    assert (ROOT / name).read_text() == MADE[name], f"{name} is not what the code says: run `make docs`"


def test_every_public_name_has_an_entry() -> None:
    api = MADE["docs/reference/api.md"].partition("## penstock.errors")[0]
    values = {"errors", "events"}  # modules, with a part of the page each
    assert not [name for name in penstock.__all__ if name not in values and f"\n### {name}\n" not in api]
    for room in ROOMS:
        listed = getattr(importlib.import_module(room), "__all__", [])
        part = MADE["docs/reference/api.md"].partition(f"\n## {room}\n")[2].partition("\n## ")[0]
        assert not [name for name in listed if name not in values and f"\n### {name}\n" not in part]


def test_an_entry_tells_what_a_call_takes() -> None:
    api = MADE["docs/reference/api.md"]
    assert "- `await publish_many(bodies: Iterable[Any], *, once: bool=False, topic: str | None=None)" in api
    assert "- `attempts: int = 5`: All of them: the first counts as 1, and 1 means no retry." in api
