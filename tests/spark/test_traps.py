"""What PySpark 4.3 does that its documentation does not say, and what of Penstock is built upon it.

A failure here means that Spark has changed, not that Penstock is broken: its text says which part to look at again.
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.toys import ROWS_PER_BATCH, TOYS, Room

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
DEADLINE = 30.0


@pytest.fixture(scope="module", autouse=True)
def registered(spark: "SparkSession") -> None:
    for toy in TOYS:
        spark.dataSource.register(toy)


@pytest.fixture
def room(tmp_path: Path) -> Room:
    room = Room(tmp_path)
    room.head = 60
    return room


@pytest.fixture
def pushdown(spark: "SparkSession") -> Iterator[None]:
    spark.conf.set(PUSHDOWN, "true")
    yield
    spark.conf.unset(PUSHDOWN)


def drain(spark: "SparkSession", room: Room, *, source: str = "toy", sink: str = "toy") -> None:
    """Copy what there is now; raises what the query failed with."""
    written = spark.readStream.format(source).option("room", str(room.directory)).load().writeStream.format(sink)
    options = {"room": str(room.directory), "checkpointLocation": str(room.checkpoint)}
    written.options(**options).trigger(availableNow=True).start().awaitTermination()


@pytest.fixture(scope="module")
def run(spark: "SparkSession", registered: None, tmp_path_factory: pytest.TempPathFactory) -> Room:
    """25 rows in batches of ten, with the trigger AvailableNow: three batches."""
    room = Room(tmp_path_factory.mktemp("run"))
    room.head = 25
    drain(spark, room)
    assert [row for note in room.notes("write") for row in note["rows"]] == list(range(25))
    return room


class TestBatchRead:
    def test_a_pushed_filter_stays_with_the_frame_and_gives_wrong_rows(
        self, spark: "SparkSession", room: Room, pushdown: None
    ) -> None:
        frame = spark.read.format("toy-pushed").option("room", str(room.directory)).load()
        assert frame.filter("even = true").count() == 30
        assert frame.count() == 30, (
            "Spark no longer reuses a filtered scan for an unfiltered one: the batch reader of source/batch_reader.py"
            " could now take filters by pushFilters"
        )

    def test_a_reader_that_could_take_filters_cannot_read_at_all_by_default(
        self, spark: "SparkSession", room: Room
    ) -> None:
        frame = spark.read.format("toy-pushed").option("room", str(room.directory)).load()
        with pytest.raises(Exception, match=r"filterPushdown|pushFilters"):
            frame.count()  # were it to work, source/batch_reader.py could take filters where the setting is on

    def test_a_frame_is_a_snapshot_of_when_it_was_first_used(self, spark: "SparkSession", room: Room) -> None:
        reader = spark.read.format("toy").option("room", str(room.directory))
        frame = reader.load()
        assert frame.count() == 60
        room.head = 70
        assert frame.count() == 60, (
            "Spark plans a loaded frame anew each time: the end of a batch read in source/batch_reader.py moves now,"
            " and the documentation must not call it a snapshot"
        )
        assert reader.load().count() == 70

    def test_a_schema_of_the_user_reaches_the_reader(self, spark: "SparkSession", room: Room) -> None:
        frame = spark.read.format("toy").schema("even boolean").option("room", str(room.directory)).load()
        assert frame.count() == 60
        assert {tuple(note["columns"]) for note in room.notes("reader")} == {("even",)}, (
            "entries/columns.py decodes only the columns of the reader's schema"
        )

    def test_a_selection_of_columns_does_not_reach_the_reader(self, spark: "SparkSession", room: Room) -> None:
        spark.read.format("toy").option("room", str(room.directory)).load().select("even").collect()
        assert {tuple(note["columns"]) for note in room.notes("reader")} == {("n", "even")}, (
            "Spark prunes columns of Python sources now: the advice to project by .schema() can go"
        )

    def test_names_of_options_arrive_in_lower_case_and_values_as_text(self, spark: "SparkSession", room: Room) -> None:
        reader = spark.read.format("toy").option("room", str(room.directory))
        reader.option("maxEntriesPerTrigger", 5).option("failOnDataLoss", True).load()
        (options,) = (note["options"] for note in room.notes("schema"))
        assert options == {"room": str(room.directory), "maxentriespertrigger": "5", "failondataloss": "true"}, (
            "options/server.py looks names up in lower case, and parses text"
        )

    @pytest.mark.parametrize(
        ("arrow", "nullable"), [("int32", "true"), ("int64", "false"), ("uint64", "true")], ids=str
    )
    def test_an_arrow_schema_that_is_not_equal_is_refused(
        self, spark: "SparkSession", room: Room, arrow: str, nullable: str
    ) -> None:
        reader = spark.read.format("toy-arrow").schema("n bigint").option("room", str(room.directory))
        frame = reader.option("arrow", arrow).option("nullable", nullable).load()
        with pytest.raises(Exception, match="DATA_SOURCE_RETURN_SCHEMA_MISMATCH"):
            frame.collect()  # entries/columns.py makes batches of exactly the schema that Spark expects

    def test_an_arrow_schema_that_is_equal_is_taken(self, spark: "SparkSession", room: Room) -> None:
        reader = spark.read.format("toy-arrow").schema("n bigint").option("room", str(room.directory))
        assert [row.n for row in reader.option("arrow", "int64").load().collect()] == [1, 2, 3]


class TestOneRun:
    """Everything that was called for three batches, one after the other."""

    def test_the_source_learns_of_a_commit_one_batch_late_and_never_of_the_last(self, run: Room) -> None:
        assert [note["end"] for note in run.notes("commit")] == [{"n": 10}, {"n": 20}], (
            "commit(end) of source/stream_reader.py advances the group's cursor; for the last batch it relies on the"
            " next latestOffset instead, which may not be needed any more"
        )

    def test_a_commit_comes_when_the_next_batch_is_in_the_log_of_offsets(self, run: Room) -> None:
        seen = [(note["offsets"], note["commits"]) for note in run.notes("commit")]
        assert seen == [([0, 1], [0]), ([0, 1, 2], [0, 1])], (
            "the cursor that source/stream_reader.py advances in commit(end) must not be ahead of Spark's own log"
        )

    def test_latest_offset_is_asked_after_every_batch_when_its_commit_is_logged(self, run: Room) -> None:
        asked = {note["start"]["n"]: note["commits"] for note in run.notes("latestOffset")}
        assert asked == {0: [], 10: [0], 20: [0, 1], 25: [0, 1, 2]}, (
            "source/stream_reader.py advances the group's cursor in latestOffset(start): the batch that ended at start"
            " must be in the commit log by then, the last one of a run too"
        )

    def test_the_limit_comes_back_as_it_was_given(self, run: Room) -> None:
        limits = {str(note["limit"]) for note in run.notes("latestOffset")}
        assert limits == {str(["ReadMaxRows", {"max_rows": ROWS_PER_BATCH}])}, "source/planning.py reads limit.max_rows"

    def test_initial_offset_is_asked_twice(self, run: Room) -> None:
        assert len(run.notes("initialOffset")) == 2, (
            "Spark asks for the start more than once, in one process: source/cursors.py makes the answer durable"
        )

    def test_where_batch_0_starts_is_written_nowhere(self, run: Room) -> None:
        assert not (run.checkpoint / "sources").exists(), (
            "Spark writes initial offsets of Python sources down: source/cursors.py need not"
        )

    def test_the_source_is_not_told_to_stop(self, run: Room) -> None:
        (runner,) = {note["pid"] for note in run.notes("latestOffset")}
        wait_for_the_end_of(runner)
        assert run.notes("stop") == [], (
            "source/stream_reader.py may now close its connections and hand back its share of a server in stop()"
        )

    def test_all_calls_to_the_source_come_from_one_process_and_one_instance_of_its_own(self, run: Room) -> None:
        calls = ("initialOffset", "prepareForTriggerAvailableNow", "latestOffset", "partitions", "commit")
        (runner,) = {note["pid"] for note in run.notes(*calls)}
        made_by = [note["pid"] for note in run.notes("streamReader")]
        assert made_by.count(runner) == 1, "the scout of source/walking.py lives in that one instance"
        assert len(set(made_by)) > 1, "another instance is pickled for executors, and shares nothing with the scout"

    def test_a_task_that_writes_knows_its_batch_and_query(self, run: Room) -> None:
        notes = run.notes("write")
        assert [note["batch"] for note in notes] == ["0", "1", "2"], "sink/writers.py keeps its books by batch"
        (query,) = {note["query"] for note in notes}
        assert len(query) == 36, "sink/writers.py keeps its books by query"

    def test_the_sink_commits_before_spark_does(self, run: Room) -> None:
        seen = [(note["batch"], note["commits"]) for note in run.notes("sink commit")]
        assert seen == [(0, []), (1, [0]), (2, [0, 1])], (
            "sink/writers.py marks a batch as done before Spark writes that down"
        )


class TestRestart:
    def test_a_batch_whose_commit_failed_is_written_again_under_its_number(
        self, spark: "SparkSession", room: Room
    ) -> None:
        room.head = 10
        broken = room.directory / "broken"
        broken.touch()
        with pytest.raises(Exception, match="the toy's commit is broken"):
            drain(spark, room)
        assert [note["rows"] for note in room.notes("sink abort")] == [[10]], (
            "abort() of sink/writers.py is told what tasks have written"
        )
        asked_before = len(room.notes("initialOffset"))
        broken.unlink()
        drain(spark, room)
        first, second = room.notes("write")
        assert (first["batch"], first["query"], first["rows"]) == (second["batch"], second["query"], second["rows"]), (
            "sink/writers.py tells a batch that comes again by query and number, which outlive a restart"
        )
        assert len(room.notes("initialOffset")) > asked_before, (
            "a restart asks anew where batch 0 starts: source/cursors.py must give the same answer"
        )

    def test_a_writer_with_other_names_of_arguments_writes_and_then_cannot_commit(
        self, spark: "SparkSession", room: Room
    ) -> None:
        room.head = 10
        for attempt in (1, 2):
            with pytest.raises(Exception, match="Writing job failed"):
                drain(spark, room, sink="toy-misnamed")
            assert len(room.notes("write")) == attempt
            assert room.notes("sink commit") == [], (
                "Spark calls streamWriter by position only: data_source.py need not keep the names of arguments"
            )

    def test_the_same_offset_in_another_order_of_keys_is_a_new_batch(self, spark: "SparkSession", room: Room) -> None:
        drain(spark, room, source="toy-restless")
        assert room.logged("offsets") == [0, 1, 2], (
            "Spark compares offsets by their text: source/offsets.py writes keys in a fixed order"
        )


def wait_for_the_end_of(pid: int) -> None:
    deadline = time.monotonic() + DEADLINE
    while is_running(pid):
        assert time.monotonic() < deadline, f"process {pid} did not end"
        time.sleep(0.02)


def is_running(pid: int) -> Any:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # The JVM does not wait for its children at once.
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
