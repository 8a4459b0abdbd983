"""`penstock lake` from outside: what it prints for people, and for programs."""

import csv
import json
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import redis

from penstock.backend import keys
from penstock.backend.embedded import EmbeddedServer
from penstock.lake import Commit, Lake, Reached, tables
from penstock.message.ids import new_id
from tests.lake.burying import Letter, after, bury
from tests.lake.pouring import START, Row, pour
from tests.support.command_line import CommandLine
from tests.support.servers import Server
from tests.support.started import Started


def run(*arguments: str, code: int = 0) -> str:
    """What `penstock lake` prints; on stderr, if it fails."""
    return run_any("lake", *arguments, code=code)


def run_any(*arguments: str, code: int = 0) -> str:
    done = CommandLine(None, Path("/nowhere"))(*arguments, code=code)
    return done.err if code else done.out


@pytest.fixture
def lake(tmp_path: Path) -> str:
    found = Lake.create(tmp_path / "lake")
    rows = [Row("orders", number, new_id()) for number in range(1500)]
    rows[1400] = rows[1400]._replace(id=rows[3].id)
    for start in range(0, 1500, 300):
        pour(found, rows[start : start + 300])
    return str(found.path)


def test_a_query_answers_in_every_form(lake: str) -> None:
    sql = "SELECT topic, count(*) AS n FROM raw GROUP BY topic"
    assert [json.loads(line) for line in run("query", sql, "--lake", lake).splitlines()] == [
        {"topic": "orders", "n": 1500}
    ]
    assert list(csv.reader(run("query", sql, "--lake", lake, "-o", "csv").splitlines())) == [
        ["topic", "n"], ["orders", "1500"],
    ]  # fmt: skip
    assert "\norders  1,500" in run("query", sql, "--lake", lake, "-o", "table")
    assert json.loads(run("query", "SELECT count(*) AS n FROM messages", "--lake", lake)) == {"n": 1499}
    assert "syntax error" in run("query", "SELEC", "--lake", lake, code=1)


def test_bytes_are_base64_for_programs(lake: str) -> None:
    sql = r"SELECT '\xFF\x00'::BLOB AS one, ['\xFF\x00'::BLOB] AS many"
    assert json.loads(run("query", sql, "--lake", lake)) == {"one": "/wA=", "many": ["/wA="]}
    assert list(csv.reader(run("query", sql, "--lake", lake, "-o", "csv").splitlines()))[1] == ["/wA=", '["/wA="]']


def test_what_is_chosen_may_be_told_by_an_age_as_in_failures(lake: str, penstock: CommandLine) -> None:
    age = datetime.now(UTC) - START
    chosen = ["lake", "replay", "--lake", lake, "--id", "r1", "--topic", "orders", "--since"]
    assert penstock(*chosen, f"{age.days + 2}d", code=5).out.splitlines()[-1] == (
        "Would bring back 1,499 messages in all, each to the topic it came from, for every group"
    )
    assert penstock(*chosen, "1d").out == "Nothing to bring back: no message of the lake is meant\n"


def test_a_replay_without_pyspark_says_what_to_install(lake: str, kept_server: Server) -> None:
    code = "import sys; sys.modules['pyspark'] = None; from penstock.cli.main import main; main()"
    words = ["lake", "replay", "--lake", lake, "--id", "r1", "--url", kept_server.url]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "pip install 'penstock[spark,lake]'" in done.stderr


def test_the_files_of_a_table_are_all_that_other_readers_need(lake: str) -> None:
    files = run("files", "raw", "--lake", lake, "-o", "raw").splitlines()
    assert len(files) == 6
    assert all(Path(file).is_file() for file in files)
    told = [json.loads(line) for line in run("files", "raw", "--lake", lake).splitlines()]
    assert [row["path"] for row in told] == files
    assert {(row["topic"], row["size"] == Path(row["path"]).stat().st_size) for row in told} == {("orders", True)}
    assert sum(row["rows"] for row in told) == 1500
    assert "size" in run("files", "raw", "--lake", lake, "-o", "table").splitlines()[0]
    assert run("files", "raw", "--lake", lake, "--topic", "other") == ""
    assert "it has dead, malformed, raw" in run("files", "cooked", "--lake", lake, code=3)


@pytest.mark.parametrize(
    "command",
    [
        ("query", "SELECT 1"), ("tables",), ("files", "raw"), ("schema", "orders"), ("compact",), ("failures",),
        ("drop", "--older-than", "1d"),
    ],
    ids=lambda command: command[0],
)  # fmt: skip
def test_a_lake_that_is_not_there_is_exit_code_3(command: tuple[str, ...]) -> None:
    assert "is no lake" in run(*command, "--lake", "/nowhere", code=3)


def test_what_is_not_in_a_lake_is_exit_code_3_and_leads_to_what_is(lake: str) -> None:
    assert "has no messages of topic 'nosuch'" in run("schema", "nosuch", "--lake", lake, code=3)
    said = run("query", "SELECT * FROM nosuch", "--lake", lake, code=3)
    assert "the lake has no table 'nosuch': penstock lake tables lists" in said
    assert "Did you mean" not in said


def test_compaction_and_dropping_say_what_they_did(lake: str) -> None:
    assert run("compact", "--lake", lake, "--grace", "0s") == (
        "6 files became 2; 1 duplicate removed\ndeleted 6 files of no further use\n"
    )
    summary = [json.loads(line) for line in run("tables", "--lake", lake).splitlines()]
    assert [(row["table"], row["topic"], row["rows"], row["files"]) for row in summary] == [("raw", "orders", 1499, 2)]
    tried = CommandLine(None, Path("/nowhere"))("lake", "drop", "--lake", lake, "--older-than", "1d", code=5)
    assert tried.out == "Would take 1,499 rows of days that ended 1d ago out of the lake for good\n"
    assert run("drop", "--lake", lake, "--older-than", "9999d").startswith("Nothing to drop: the lake has no rows of")
    assert run("tables", "--lake", lake, "-o", "csv").count("1499") == 1
    assert run("drop", "--lake", lake, "--older-than", "1d", "--yes").startswith("1,499 rows left the lake\n")


def test_the_tables_say_how_far_the_lake_has_come(failing: tuple[str, list[str]]) -> None:
    lake, _ = failing
    reached = {"orders": Reached("5-1", "e"), keys.dead("orders"): Reached("6-0", "")}
    Lake.open(lake).commit(Commit(writer="w", number=0, reached=reached))
    told = [json.loads(line) for line in run("tables", "--lake", lake).splitlines()]
    assert [(row["table"], row["topic"], row["reached"]) for row in told] == [
        ("dead", "orders", "6-0"), ("raw", "orders", "5-1"),
    ]  # fmt: skip


def test_a_replay_brings_back_what_it_said_that_it_would(lake: str, penstock: CommandLine, client: redis.Redis) -> None:
    chosen = ["--lake", lake, "--id", "r1", "--to", "orders:again", "--where", "seq % 100 = 5"]
    assert penstock("lake", "replay", *chosen, code=5).out.splitlines() == [
        "Would bring back 10 messages of topic 'orders' of 2026-03-01",
        "Would bring back 5 messages of topic 'orders' of 2026-03-02",
        "Would bring back 15 messages in all, to topic 'orders:again', for every group",
    ]
    assert client.keys() == []
    for _ in range(2):
        penstock("lake", "replay", *chosen, "--yes")
    found = [int(fields[b"payload"]) for _, fields in client.xrange("orders:again")]
    assert found == list(range(5, 1500, 100))
    client.xgroup_create("orders:again", "billing", "$")
    alone = penstock("lake", "replay", *chosen, "--group", "billing", code=5).out.splitlines()
    assert alone[-1] == "Would bring back 15 messages in all, to topic 'orders:again', for group 'billing' alone"


def test_a_replay_that_would_be_refused_is_not_said_to_bring_anything(
    lake: str, penstock: CommandLine, client: redis.Redis
) -> None:
    chosen = ["--lake", lake, "--id", "r1", "--to", "orders:again"]
    for yes in ([], ["--yes"]):
        said = penstock.refused("lake", "replay", *chosen, "--group", "nobody", *yes, code=3)
        assert "there is no such topic on the server" in said
    assert client.keys() == []
    penstock("lake", "replay", *chosen, "--where", "seq % 100 = 5", "--yes")
    for yes in ([], ["--yes"]):
        said = penstock.refused("lake", "replay", *chosen, *yes, code=2)
        assert "was begun with another selection" in said


@pytest.fixture
def failing(lake: str) -> tuple[str, list[str]]:
    """A lake in which every hundredth message died in a group; in another, one did."""
    opened = Lake.open(lake)
    ids = [row["id"] for row in sql(lake, "SELECT id FROM messages ORDER BY ts")]
    wanted = ids[7:1400:100]
    bury(opened, [
        *(Letter(id=id, died=after(number), reason=f"no customer {number}") for number, id in enumerate(wanted)),
        Letter(id=ids[8], died=after(9), reason="no customer 8", group="mail"),
        Letter(id=ids[9], died=after(9), reason="no stock"),
    ])  # fmt: skip
    return lake, wanted


def sql(lake: str, query: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = tables.query(Lake.open(lake), query).to_pylist()
    return rows


def test_failures_come_in_every_form(failing: tuple[str, list[str]], tmp_path: Path) -> None:
    lake, wanted = failing
    told = [json.loads(line) for line in run("failures", "--lake", lake).splitlines()]
    first, *others = [(one["group"], one["letters"], one["pattern"]) for one in told]
    assert first == ("billing", len(wanted), "no customer <n>")
    assert sorted(others) == [("billing", 1, "no stock"), ("mail", 1, "no customer <n>")]
    rows = list(csv.DictReader(run("failures", "--lake", lake, "-o", "csv").splitlines()))
    assert [row["cluster"] for row in rows] == [one["id"] for one in told]
    chosen = ["--group", "mail", "--topic", "orders", "--since", "2026-03-01T08:00Z", "--until", "1h"]
    some = run("failures", "--lake", lake, *chosen, "-o", "table")
    assert "mail" in some
    assert "billing" not in some
    page = tmp_path / "report.html"
    run("failures", "--lake", lake, "--html", str(page))
    assert page.read_text().count("<article") == 3


def test_a_reason_is_told_to_its_end_and_times_as_everywhere(lake: str) -> None:
    reason = f"the bank refuses to book it, {'and says why at length, ' * 4}for the account is closed"
    bury(Lake.open(lake), [Letter(id=new_id(), died=after(9), reason=reason)])
    (row,) = csv.DictReader(run("failures", "--lake", lake, "-o", "csv").splitlines())
    assert (row["reason"], row["first"]) == (reason, "2026-03-01T09:00:00Z")
    shown = CommandLine(None, Path("/nowhere"))
    for columns in (80, 240):
        told = shown("lake", "failures", "--lake", lake, terminal=True, columns=columns).out
        assert "2026-03-01 09:00:00Z" in " ".join(told.split())
        assert "closed" in told


def test_where_nothing_has_failed_nothing_is_shown(lake: str) -> None:
    shown = CommandLine(None, Path("/nowhere"))
    for chosen, meant in (((), ""), (("--topic", "orders"), " that is meant")):
        done = shown("lake", "failures", "--lake", lake, *chosen, terminal=True, columns=80)
        assert (done.out, done.err) == ("", f"The lake has no dead letter{meant}\n")


def test_the_command_of_a_failure_replays_just_its_messages(failing: tuple[str, list[str]]) -> None:
    lake, wanted = failing
    command = json.loads(run("failures", "--lake", lake).splitlines()[0])["replay"]
    # What died since then is none of its business.
    (late,) = sql(lake, "SELECT id FROM raw WHERE seq = 11")
    bury(Lake.open(lake), [Letter(id=late["id"], died=after(500), reason="no customer 99")])
    program, *arguments = shlex.split(command)
    assert program == "penstock"
    with EmbeddedServer.start(ephemeral=True) as server:
        import redis

        with redis.Redis.from_url(server.url) as client:
            client.xgroup_create("orders", "billing", mkstream=True)
            run_any(*arguments, "--yes", "--url", server.url)
            found = client.xrange(keys.retry("orders", "billing"))
            assert [fields[b"id"].decode() for _, fields in found] == wanted
            assert client.xlen("orders") == 0


def test_a_message_is_traced_through_lake_and_server(failing: tuple[str, list[str]]) -> None:
    lake, wanted = failing
    told = [json.loads(line) for line in run_any("trace", wanted[2], "--lake", lake).splitlines()]
    assert [(one["what"], one["group"]) for one in told] == [
        ("dead", "billing"), ("published", None), ("now", "billing"),
    ]  # fmt: skip
    assert f"letter {told[0]['letter_id']}" in told[0]["detail"]
    assert "is not in the lake" in run_any("trace", new_id(), "--lake", lake, code=3)
    with EmbeddedServer.start(ephemeral=True) as server:
        import redis

        with redis.Redis.from_url(server.url) as client:
            client.xgroup_create("orders", "billing", mkstream=True)
            run(
                "replay",
                "--lake",
                lake,
                "--id",
                "r1",
                "--ids",
                wanted[2],
                "--group",
                "billing",
                "--yes",
                "--url",
                server.url,
            )
            arguments = [wanted[2].upper(), "--lake", lake, "--url", server.url, "-o", "csv"]
            rows = list(csv.DictReader(run_any("trace", *arguments).splitlines()))
            nowhere = run_any("trace", new_id(), "--lake", lake, "--url", server.url, code=3)
    assert f"is not in the lake {lake}, as far as it was archived, nor on the server; " in nowhere
    assert [row["what"] for row in rows] == ["dead", "published", "now", "now"]
    assert rows[-1]["detail"] == "ready to be tried again, replayed as r1"


@pytest.mark.timeout(180)  # a new interpreter loads what reads lakes
def test_no_spark_is_loaded_to_look_at_a_lake(failing: tuple[str, list[str]]) -> None:
    lake, (id, *_) = failing
    commands = (["trace", id], ["lake", "failures"], ["lake", "query", f"SELECT seq FROM raw WHERE id = '{id}'"])
    calls = "; ".join(f"main({[*command, '--lake', lake]})" for command in commands)
    code = f"import sys; from penstock.cli.main import main; {calls}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=150, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.splitlines()[-1].split()}
    assert {"penstock", "duckdb"} <= loaded
    assert not loaded & {"pyspark", "py4j"}


def test_a_query_says_how_many_files_it_opened(lake: str) -> None:
    (found,) = sql(lake, "SELECT id FROM raw WHERE seq = 700")
    words = ("lake", "query", f"SELECT seq FROM raw WHERE id = '{found['id']}'", "--lake", lake, "--verbose")
    with Started(*words) as asking:
        done = asking.finish()
    assert done.rows == [{"seq": 700}]
    # Its own, and one that has an old message once more.
    assert (done.code, done.err) == (0, "2 of 6 files of the lake were opened\n")
