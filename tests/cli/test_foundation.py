"""What all commands have in common: which server they mean, their forms of output, how they end."""

import csv
import io
import json
import stat
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest import mock

import pytest

from penstock.cli.confirming import only_tried
from penstock.cli.moments import due_of, moment_of, span_of
from penstock.cli.printing import print_one, print_rows
from penstock.cli.servers import Server
from penstock.cli.shown import line_of, span_text
from penstock.cli.usage import UnconfirmedError, UsageError
from penstock.errors import ConfigurationError
from tests.support.command_line import CommandLine

NOW = datetime(2026, 11, 15, 8, 0, tzinfo=UTC)


def test_contexts_are_added_chosen_listed_and_forgotten(nowhere: CommandLine) -> None:
    assert nowhere("context", "ls").out == ""
    nowhere("context", "add", "prod", "redis://app:secret@db.example:6380/2")
    nowhere("context", "add", "here", "-", stdin="unix:///run/valkey.sock\n")
    nowhere("context", "use", "prod")
    assert nowhere("context", "ls").rows == [
        {"name": "here", "url": "unix:///run/valkey.sock?db=0", "current": False},
        {"name": "prod", "url": "redis://app:***@db.example:6380/2", "current": True},
    ]
    nowhere("context", "rm", "prod")
    assert [(row["name"], row["current"]) for row in nowhere("context", "ls").rows] == [("here", False)]
    assert "there is no context 'prod': there are here" in nowhere.refused("context", "use", "prod", code=3)
    assert "has no host" in nowhere.refused("context", "add", "x", "redis://", code=2)
    assert "name of letters" in nowhere.refused("context", "add", "a b", "redis://h", code=2)


def test_only_their_owner_can_read_contexts(nowhere: CommandLine) -> None:
    nowhere("context", "add", "prod", "redis://h", "--use")
    file = nowhere.config / "penstock" / "contexts.json"
    file.chmod(0o644)
    nowhere("context", "add", "prod", "redis://:secret@h")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert [one.name for one in file.parent.iterdir()] == ["contexts.json"]
    file.write_text("[]")
    assert "contexts.json cannot be read" in nowhere.refused("context", "ls", code=1)


def test_a_server_is_the_one_that_was_named_last_of_all_by_the_current_context(nowhere: CommandLine) -> None:
    def meant(environ: dict[str, str], **given: str) -> str:
        with mock.patch.dict("os.environ", environ | {"XDG_CONFIG_HOME": str(nowhere.config)}, clear=True):
            return str(Server(**given).address())

    with pytest.raises(UsageError, match="no server: give --url or --context"):
        meant({})
    nowhere("context", "add", "one", "redis://one")
    nowhere("context", "add", "two", "redis://two", "--use")
    env = {"PENSTOCK_URL": "redis://env"}
    assert meant(env, url="redis://url") == "redis://url:6379/0"
    assert meant(env, context="one") == "redis://one:6379/0"
    assert meant(env) == "redis://env:6379/0"
    assert meant({}) == "redis://two:6379/0"
    with pytest.raises(UsageError, match="give one of them"):
        meant(env, url="redis://url", context="one")
    with pytest.raises(ConfigurationError, match=r"^\$PENSTOCK_URL must start with"):
        meant({"PENSTOCK_URL": "http://x"})


ROWS = [
    {"name": "a", "n": 1200, "at": NOW, "idle": timedelta(seconds=90), "raw": b"\xff"},
    {"name": "[b]", "n": None, "at": None, "idle": None, "raw": None, "more": [1]},
]
COLUMNS = ("name", "n", "at", "idle", "raw")


def printed(form: str | None, capfdbinary: pytest.CaptureFixture[bytes]) -> bytes:
    print_rows(ROWS, form, COLUMNS)
    sys.stdout.flush()
    return capfdbinary.readouterr().out


def test_rows_come_in_every_form(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    plain = [
        {"name": "a", "n": 1200, "at": "2026-11-15T08:00:00Z", "idle": 90.0, "raw": "/w=="},
        {"name": "[b]", "n": None, "at": None, "idle": None, "raw": None, "more": [1]},
    ]
    assert [json.loads(line) for line in printed(None, capfdbinary).splitlines()] == plain
    assert json.loads(printed("json", capfdbinary)) == plain
    assert next(csv.DictReader(io.StringIO(printed("csv", capfdbinary).decode()))) == {
        "name": "a", "n": "1200", "at": "2026-11-15T08:00:00Z", "idle": "90.0", "raw": "/w==",
    }  # fmt: skip
    assert printed("raw", capfdbinary).splitlines() == [b"a\t1200\t2026-11-15T08:00:00Z\t90.0\t\xff", b"[b]\t\t\t\t"]
    table = printed("table", capfdbinary).decode()
    assert "a     1,200  2026-11-15 08:00:00Z  1m30s  \\xff" in table
    assert "\n[b] " in table


@pytest.mark.parametrize(("form", "expected"), [("json", "[]\n"), ("ndjson", ""), ("csv", "name,n\r\n"), ("raw", "")])
def test_no_rows_are_an_answer_too(form: str, expected: str, capfd: pytest.CaptureFixture[str]) -> None:
    print_rows([], form, ("name", "n"))
    assert capfd.readouterr().out == expected


def test_a_table_without_rows_still_has_its_head(capfd: pytest.CaptureFixture[str]) -> None:
    print_rows([], "table", ("name", "n"))
    assert capfd.readouterr().out.startswith("name  n\n")


def test_one_thing_is_one_object_or_its_facts_beneath_each_other(capfd: pytest.CaptureFixture[str]) -> None:
    print_one({"name": "a", "n": 1}, "json")
    assert json.loads(capfd.readouterr().out) == {"name": "a", "n": 1}
    print_one({"name": "a", "length": 1000}, "table")
    assert "\nlength  1,000\n" in capfd.readouterr().out


def test_nothing_that_is_shown_is_obeyed_by_the_terminal() -> None:
    assert line_of("\x1b[2Jgone\r\n") == r"\x1b[2Jgone\r\n"
    assert line_of(b"\x07\xff") == r"\x07\xff"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500ms", 0.5), ("10s", 10), ("1h30m", 5400), ("1.5h", 5400), ("2d", 172_800), ("1w", 604_800), ("1h 5m", 3900),
        ("1 hour", 3600), ("90 minutes", 5400), ("1 day", 86_400), ("2 Weeks", 1_209_600), ("10min", 600), ("5 sec", 5),
        ("1hr 2mins 3secs", 3723), ("20 milliseconds", 0.02), ("10M", 600), (" 5 s ", 5),
    ],
)  # fmt: skip
def test_spans_are_read_as_people_write_them(text: str, seconds: float) -> None:
    assert span_of(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "text", ["", "10", "10 parsecs", "-5m", "5m!", "m", "1h30", "an hour", "5 mss", "1 0m", "5m\n!", "٥m"]
)
def test_what_is_no_span_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no span of time: write it like"):
        span_of(text)


@pytest.fixture
def in_utc() -> Iterator[None]:
    with mock.patch.dict("os.environ", {"TZ": "UTC"}):
        time.tzset()
        yield
    time.tzset()


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("now", NOW),
        ("10m", NOW - timedelta(minutes=10)),
        ("-15m", NOW - timedelta(minutes=15)),
        ("1h30m ago", NOW - timedelta(minutes=90)),
        ("+10m", NOW + timedelta(minutes=10)),
        ("2026-11-14T08:00Z", NOW - timedelta(days=1)),
        ("2026-11-14T10:00+02:00", NOW - timedelta(days=1)),
        ("2026-11-14 08:00", NOW - timedelta(days=1)),
        ("2026-11-14", datetime(2026, 11, 14, tzinfo=UTC)),
        ("07:30", NOW - timedelta(minutes=30)),
        ("yesterday", datetime(2026, 11, 14, tzinfo=UTC)),
        ("today", datetime(2026, 11, 15, tzinfo=UTC)),
        ("2 hours ago", NOW - timedelta(hours=2)),
        ("1 Day Ago", NOW - timedelta(days=1)),
        ("7:30", NOW - timedelta(minutes=30)),
        ("2026-11-14 8:00", NOW - timedelta(days=1)),
        ("2026-11-14t08:00z", NOW - timedelta(days=1)),
        ("NOW", NOW),
    ],
)
def test_moments_are_read_as_people_write_them(text: str, moment: datetime, in_utc: None) -> None:
    assert moment_of(text, NOW) == moment


@pytest.mark.parametrize(
    "text",
    [
        "",
        "soon",
        "2026-13-01",
        "10",
        "99999999w",
        "8:00pm",
        "an hour ago",
        "monday",
        "+10m ago",
        "25:00",
        "ago",
        "9999-12-31T23:59-12:00",
        "8:00\nago",
    ],
)
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no moment: write it like"):
        moment_of(text, NOW)


@pytest.mark.parametrize(
    ("text", "due"),
    [
        ("now", NOW),
        ("10m", NOW + timedelta(minutes=10)),
        ("2 hours", NOW + timedelta(hours=2)),
        ("+10m", NOW + timedelta(minutes=10)),
        ("8:30", NOW + timedelta(minutes=30)),
        ("07:30", NOW + timedelta(hours=23, minutes=30)),
        ("08:00", NOW),
        ("tomorrow", datetime(2026, 11, 16, tzinfo=UTC)),
        ("2026-11-16T08:00Z", NOW + timedelta(days=1)),
    ],
)
def test_a_moment_to_come_is_counted_from_now_on(text: str, due: datetime, in_utc: None) -> None:
    assert due_of(text, NOW) == due


@pytest.mark.parametrize("text", ["-10m", "10m ago", "yesterday", "today", "2026-11-15T07:59Z"])
def test_a_moment_to_come_that_is_past_is_refused(text: str, in_utc: None) -> None:
    with pytest.raises(ValueError, match="is past, it was 2026-11-1"):
        due_of(text, NOW)


@pytest.mark.parametrize("text", ["", "soon", "10", "99999999w", "8:00pm"])
def test_what_is_no_moment_to_come_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no moment to come: write it like"):
        due_of(text, NOW)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0ms"), (0.35, "350ms"), (4.2, "4.2s"), (90, "1m30s"), (3600, "1h"), (190_800, "2d5h"), (-60, "-1m")],
)
def test_spans_are_shown_by_their_two_largest_units(seconds: float, text: str) -> None:
    assert span_text(timedelta(seconds=seconds)) == text


def test_what_needs_a_yes_says_what_it_would_do_and_changes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UnconfirmedError, match="add --yes"):
        only_tried("delete 3 entries of 'orders'", "redeliver 2 to group 'mail'")
    assert capsys.readouterr().out == "Would delete 3 entries of 'orders'\nWould redeliver 2 to group 'mail'\n"


def test_a_command_without_a_server_starts_none(nowhere: CommandLine, tmp_path: Path) -> None:
    with mock.patch.dict("os.environ", {"XDG_STATE_HOME": str(tmp_path / "state")}):
        assert "no server" in nowhere.refused("cron", "ls", "chores", code=2)
    assert not (tmp_path / "state").exists()


def test_an_empty_name_of_a_server_means_no_other_one(penstock: CommandLine) -> None:
    penstock("context", "add", "here", "redis://h")
    penstock("context", "use", "here")
    for option in ("--context", "--url"):
        assert f"{option} is empty: name a server" in penstock.refused("ls", option, "", code=2)


def test_who_has_no_server_is_told_how_to_get_one(nowhere: CommandLine) -> None:
    said = nowhere.refused("ls", code=2)
    assert "penstock up runs one and prints its URL; --url embedded:// starts the same one" in said


def test_wrong_moments_are_wrong_usage(nowhere: CommandLine) -> None:
    line = nowhere.refused("lake", "failures", "--lake", "x", "--since", "soon", code=2)
    assert "'soon' is no moment: write it like" in line
