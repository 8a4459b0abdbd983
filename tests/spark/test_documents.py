"""The pages on the lake, on flows and on the journal: their code runs, and their commands do what they say.

The commands run in this process, on its session.
"""

import re
import runpy
import shlex
import signal
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock import Message
from penstock import Penstock as AsyncPenstock
from penstock.backend.address import URL_VARIABLE
from penstock.cli.tree import app as command_line
from penstock.spark.pipelines.alert_rules import read_rules
from penstock.sync import Penstock
from penstock.testing import drain, published
from tests.support.pages import ROOT, Block, blocks_of, told
from tests.support.servers import Server
from tests.support.shell import Shell

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(180)
DOCS = ROOT / "docs"
ENDLESS = " --every 10s"
"""Of commands that go on until they are told to stop. Without it they do what is to be done now, and end."""


def code_of(page: str, language: str) -> list[Block]:
    return [block for block in blocks_of(DOCS / page) if block.language == language]


@pytest.fixture
def shell(
    spark: "SparkSession", server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Iterator[Shell]:  # fmt: skip
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    with server.client() as client:
        client.flushall()
    monkeypatch.setenv(URL_VARIABLE, server.url)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    with Shell(tmp_path, capsys, server.url) as opened:
        yield opened
    for number, handler in before.items():
        signal.signal(number, handler)


def commands_of(page: str) -> list[str]:
    """Each as it is when it ends by itself."""
    lines = [line.partition("#")[0].strip() for block in code_of(page, "sh") for line in block.text.splitlines()]
    assert lines
    return list(dict.fromkeys(line.replace(ENDLESS, "") for line in lines))


def test_the_flow_of_the_page_finds_the_sessions(shell: Shell, server: Server, spark: "SparkSession") -> None:
    """Run from Python, as the page says too: the command would end the session that the tests share."""
    (flow,) = code_of("flows.md", "python")
    days = [f"2026-11-0{day}T12:0{minute}:00Z" for day in (1, 2) for minute in (0, 5)]
    with Penstock.connect() as app:
        app.bus("clicks").publish_many(Message({"user": "u", "page": "/", "at": at}) for at in days)
    *commands, query = commands_of("flows.md")
    for line in commands:
        run, bound, _ = command_line.parse_args(shlex.split(line)[1:], exit_on_error=False)
        assert (run.__name__, bound.arguments["target"]) == ("run", "shop.clicks:sessions")
    Path("clicks.py").write_text(flow.text)
    sessions = runpy.run_path("clicks.py")["sessions"]
    sessions.at(Path("lake").absolute(), url=server.url).run(spark)
    assert "2.0" in shell.run(query)


def test_the_commands_of_the_page_on_the_lake_run_one_after_the_other(
    shell: Shell, spark: "SparkSession", server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    orders = (("ann", 5), ("ann", 7), ("bo", 1))
    with Penstock.connect() as app:
        sent = app.bus("orders").publish_many(Message({"customer": name, "total": total}) for name, total in orders)
        app.bus("users").publish({"name": "ann"})
    printed = {line: shell.run(line.replace("018f7f3a-…", sent[0].id)) for line in commands_of("lake.md")}
    (sums,) = [text for line, text in printed.items() if "sum(total)" in line]
    assert "12" in sums
    (views,) = code_of("lake.md", "python")
    Path("views.py").write_text(views.text)
    try:
        runpy.run_path("views.py", init_globals={"spark": spark})
    finally:
        for view in ("raw", "messages", "malformed", "dead", "orders", "users"):
            spark.catalog.dropTempView(view)
    assert re.search(r"\|\s+ann\|\s+12\|", capsys.readouterr().out)


def test_the_commands_and_the_rules_of_the_page_on_the_journal_can_be_read(server: Server, tmp_path: Path) -> None:
    """What they do is for `test_metrics.py` and `test_alerts.py`: a window takes a minute to end."""
    (rules,) = code_of("journal.md", "toml")
    (tmp_path / "rules.toml").write_text(rules.text)
    _, (rule,) = read_rules(tmp_path / "rules.toml")
    assert (rule.name, rule.within) == ("not shipped", timedelta(hours=2))
    for line, name in zip(commands_of("journal.md"), ("metrics", "metrics", "query", "alerts"), strict=True):
        command, _, _ = command_line.parse_args(shlex.split(line)[1:], exit_on_error=False)
        assert command.__name__ == name


async def test_the_journal_of_the_page_keeps_what_became_of_a_message(shell: Shell) -> None:
    (code,) = code_of("journal.md", "python")
    async with AsyncPenstock.connect() as app:
        bus = app.bus("orders", group="billing")
        exec(code.text, {"app": app, "bus": bus})

        @bus.on(dict)
        async def handle(_: object) -> None: ...

        await bus.publish({"order_id": 1})
        await drain(app, bus)
        (attempts,) = await published(app, "journal")
    assert [record["outcome"] for record in attempts.body["records"]] == ["handled"]


@pytest.mark.parametrize("page", ["tutorial.md", "migration/spark-redis.md"])
def test_the_blocks_of_a_page_do_what_it_says(page: str, shell: Shell) -> None:
    for block in blocks_of(DOCS / page):
        shell.block(block)


def test_the_example_archives_two_topics(shell: Shell) -> None:
    assert shell.run("python -m examples.to_lake").rstrip("\n") == told("to_lake")
