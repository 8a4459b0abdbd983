"""No name of a flow's table keeps anybody from using the lake, and names that SQL cannot tell apart are refused."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.errors import ConfigurationError
from penstock.lake import Commit, Lake, tables
from penstock.lake.compaction import compact
from penstock.lake.failures import failures
from penstock.lake.files import staged_file
from penstock.lake.selection import Selection
from penstock.message.ids import new_id
from penstock.spark.flows.flow import Flow, FlowOptions, Input, Table, Topic
from penstock.spark.flows.home import Home
from penstock.spark.pipelines.replay import Replay
from tests.lake.burying import Letter, after, bury
from tests.lake.pouring import Row, pour

TAKEN = ("Raw", "MESSAGES", "Files", "Failures")
FREE = ("shared", "later", "merged", "chosen", "repeated", "worked_out", "seen", "penstock", "main")


def add_table(lake: Lake, table: str, values: list[Any]) -> None:
    staging = lake.staging("flow")
    file = staging / "0.parquet"
    pq.write_table(pa.table({"n": values}), file)
    number = lake.snapshot().writers.get("flow", -1) + 1
    added = staged_file(lake.path, file, f"{staging.name}-0", table, {"date": "2026-03-01"})
    lake.commit(Commit(writer="flow", number=number, add=(added,)))


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    made = Lake.create(tmp_path)
    ids = [new_id() for _ in range(10)]
    for start in (0, 5):
        pour(made, [Row("a", number, ids[number]) for number in range(start, start + 5)])
    pour(made, [Row("a", 10, ids[0])])
    bury(made, [Letter(topic="a", id=ids[0], died=after(1))])
    return made


def one(lake: Lake, sql: str) -> Any:
    ((value,),) = (row.values() for row in tables.query(lake, sql).to_pylist())
    return value


@pytest.mark.parametrize("name", [*TAKEN, *FREE])
def test_a_lake_with_such_a_table_can_be_used(lake: Lake, name: str) -> None:
    for values in ([1, 2], [3]):
        add_table(lake, name, values)

    assert one(lake, "SELECT count(*) FROM raw") == 11
    assert [cluster.letters for cluster in failures(lake)] == [1]
    where = "(topic, id) IN (SELECT topic, id FROM failures)"
    assert [day.messages for day in Replay(lake=lake.path, id="r").plan()] == [10]
    assert [day.messages for day in Replay(lake=lake.path, id="r", selection=Selection(where=where)).plan()] == [1]
    compact(lake)
    assert one(lake, "SELECT count(*) FROM raw") == 10
    if name in FREE:
        assert one(lake, f"SELECT sum(n) FROM {tables.name(name)}") == 6


def test_of_tables_that_differ_in_case_alone_one_can_be_asked(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    add_table(lake, "clicks", [1, 2])
    add_table(lake, "Clicks", [3])
    assert one(lake, "SELECT sum(n) FROM clicks") == 3
    assert "table 'clicks' of the lake cannot be asked for, since that name means table 'Clicks'" in caplog.text
    assert one(lake, "SELECT count(*) FROM files WHERE \"table\" = 'clicks'") == 1


@pytest.mark.parametrize("name", [*TAKEN, "Metrics", "dead"])
def test_a_flow_cannot_have_a_table_of_the_lakes_own(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"a table '{name.casefold()}' of its own"):
        Table(name)


def flow(*outputs: Table | Topic, name: str = "f", malformed: str = "table") -> Flow:
    options = FlowOptions(malformed=malformed)
    return Flow(name=name, inputs=(Input(("t",)),), outputs=outputs, function=lambda rows: rows, options=options)


def test_a_flow_cannot_have_two_tables_that_differ_in_case_alone() -> None:
    with pytest.raises(ConfigurationError, match="table clicks twice"):
        flow(Table("clicks"), Table("Clicks"))
    for name, other in (("f", "F_Malformed"), ("F", "f_malformed")):
        with pytest.raises(ConfigurationError, match=f"is for what flow '{name}' cannot read"):
            flow(Table(other), name=name)
    flow(Topic("clicks"), Topic("Clicks"), Table("clicks"))


def bind(lake: Lake, one: Flow) -> None:
    home = Home(lake, one)
    with home.place.taken():
        home.bind(adapt=False)


def test_a_flow_cannot_have_a_table_that_differs_in_case_alone_from_one_of_the_lake(lake: Lake) -> None:
    add_table(lake, "Clicks", [1])
    with pytest.raises(ConfigurationError, match=r"writes table 'clicks', and the lake .* has a table 'Clicks'"):
        bind(lake, flow(Table("clicks")))
    bind(lake, flow(Table("Clicks")))


def test_nor_a_table_of_what_it_cannot_read(lake: Lake) -> None:
    add_table(lake, "F_malformed", [1])
    with pytest.raises(ConfigurationError, match="writes table 'f_malformed'"):
        bind(lake, flow(Table("rows")))
    bind(lake, flow(Table("rows"), malformed="fail"))
