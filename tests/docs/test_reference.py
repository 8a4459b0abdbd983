"""The pages that are made from the code are what the code says now."""

import importlib
import re

import pytest

import penstock
from penstock.cli.moments import moment_of, span_of
from penstock.cli.usage import EXIT_CODES
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


def test_whatever_does_not_begin_with_our_name_is_a_stream_of_messages() -> None:
    rows = [line for line in MADE["docs/reference/keys.md"].splitlines() if line.startswith("| `")]
    assert [row for row in rows if not row.startswith("| `penstock:") and "| stream |" not in row] == []


def test_the_page_on_commands_tells_every_exit_code() -> None:
    page = MADE["docs/reference/cli.md"]
    assert [code for code, meaning in EXIT_CODES.items() if f"\n| {code} | {meaning} |\n" not in page] == []


def test_defaults_of_durations_are_written_as_they_are_read() -> None:
    shown = re.findall(r"TIMEDELTA`: .*\*\[default: (.*)\]\*", MADE["docs/reference/cli.md"])
    assert {"30s", "2m", "1h", "1d"} <= set(shown)
    assert [span_of(text) for text in shown]


def test_the_spellings_of_times_that_the_page_on_commands_names_are_taken() -> None:
    spans, moments = re.findall(
        r"^A `TIMEDELTA` (.*?)A `DATETIME` (.*?)Only", MADE["docs/reference/cli.md"], re.S | re.M
    )[0]
    assert [span_of(text) for text in re.findall("`(.*?)`", spans)]
    assert [moment_of(text) for text in re.findall("`(.*?)`", moments)]


def test_what_the_server_does_for_a_message_adds_up_to_what_its_steps_show() -> None:
    rows = [[cell.strip() for cell in line.split("|")] for line in MADE["docs/scaling.md"].splitlines()]
    shown = [float(row[4]) for row in rows if len(row) == 6 and row[2] in {"publish", "consume"}]
    (total,) = (row[2] for row in rows if row[1:2] == ["the server: publish and one group"])
    assert len(shown) == 2
    assert f"{sum(shown):.2f}" == total
