"""The commands that need Spark, where nothing is to be read, and for a reader that has left: on one session."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.spark.flows.flow import Flow
from tests.support.command_line import CommandLine, Done
from tests.support.commands import RULES, leaves
from tests.support.servers import Server, valkey_binary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REPORTS = {
    "pipeline archive": "Archived 0 entries in ",
    "pipeline metrics": "Measured 0 windows; 0 entries were late",
    "pipeline alerts": "0 alerts",
}
"""What those say at last, on stderr, whose answer is in the lake."""


@pytest.fixture
def server() -> Iterator[Server]:
    """An empty one."""
    binary = valkey_binary()
    assert binary is not None
    server = Server(binary, Path(tempfile.mkdtemp(prefix="ps-")))
    yield server
    server.stop()
    shutil.rmtree(server.directory)


@pytest.fixture
def penstock(server: Server, spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """The session is that of all tests: no command may end it, and its processes know another $PENSTOCK_URL."""
    monkeypatch.setattr(type(spark), "stop", lambda session: None)
    at = Flow.at
    monkeypatch.setattr(Flow, "at", lambda flow, home, **how: at(flow, home, url=server.url, **how))
    return CommandLine(None, tmp_path / "config")


def test_every_command_that_needs_spark_is_tried() -> None:
    tried = {*REPORTS, "pipeline run", "spark doctor"}
    assert tried == {name for name, leaf in leaves().items() if leaf.row.needs == "Spark"}


@pytest.fixture
def places(tmp_path: Path) -> dict[str, Path]:
    (tmp_path / "rules.toml").write_text(RULES)
    return {"lake": tmp_path / "lake", "rules": tmp_path / "rules.toml"}


@pytest.mark.parametrize("name", REPORTS)
def test_with_nothing_to_read_and_nobody_to_hear_it_a_pipeline_does_its_work(
    name: str, penstock: CommandLine, server: Server, places: dict[str, Path]
) -> None:
    done = penstock.unheard(*leaves()[name].command(**places), "--url", server.url)
    assert done.code == 0
    assert done.err.splitlines()[-1].startswith(REPORTS[name])


def test_with_nothing_to_read_a_flow_says_so_and_with_nobody_to_hear_it_goes_on(
    penstock: CommandLine, server: Server, places: dict[str, Path]
) -> None:
    command = [*leaves()["pipeline run"].command(**places), "--url", server.url]
    assert penstock(*command).out.splitlines()[-1].startswith("Done: 0 entries in ")
    done = penstock.unheard(*command)
    assert (done.code, "Traceback" in done.err) == (0, False)


def test_a_doctor_whose_patient_has_left_ends_without_a_word(penstock: CommandLine) -> None:
    assert penstock.unheard("spark", "doctor") == Done(141, "", "")
