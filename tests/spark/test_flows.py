"""Flows of the user's own: each row once in each output, whatever fails when; a stop that ends what was begun."""

import dataclasses
import json
import re
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
import redis

from penstock.errors import ConfigurationError, FlowError
from penstock.lake import Lake, tables
from penstock.message.ids import new_id
from penstock.spark import FlowOptions, Table, Topic, flow
from penstock.spark.flows import delivering
from penstock.spark.flows.flow import Flow
from penstock.spark.flows.progress import Progress
from penstock.spark.flows.results import KeptResults
from penstock.spark.pipelines.batches import Batches
from tests.spark.awaiting import until
from tests.support.servers import Server

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NUMBERS = "n bigint, name string"
pytestmark = pytest.mark.timeout(180)  # each starts queries, on whatever else runs there


def publish(admin: "redis.Redis", topic: str, *bodies: Any) -> None:
    with admin.pipeline(transaction=False) as pipe:
        for body in bodies:
            pipe.xadd(topic, {"id": new_id(), "type": "number", "payload": json.dumps(body)})
        pipe.execute()


def numbers(*given: int) -> list[dict[str, Any]]:
    return [{"n": number, "name": f"number {number}"} for number in given]


def bodies(admin: "redis.Redis", topic: str) -> list[Any]:
    return [json.loads(fields[b"payload"]) for _, fields in admin.xrange(topic)]


def query(home: Path, sql: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = tables.query(Lake.open(home), sql).to_pylist()
    return found


def throwing(topic: str, **options: Any) -> Flow:
    """A flow whose rows are never the same twice."""

    @flow("dice", topics=topic, schema=NUMBERS, to=f"{topic}:out", table="thrown", options=FlowOptions(**options))
    def made(given: "DataFrame") -> "DataFrame":
        return given.selectExpr("n", "rand() AS dice")

    return made


def test_rows_reach_every_output_once(
    spark: "SparkSession", server: Server, admin: "redis.Redis", topic: str, tmp_path: Path
) -> None:
    home = tmp_path / "home [1]{2}*?"  # a name like any other, though Spark takes some of it for patterns
    big = Topic(f"{topic}:big", key="name", type="big", where="n >= 8")

    @flow("copy", topics=[topic], schema=NUMBERS, to=[f"{topic}:all", big], table=Table("numbers", date="day"))
    def copy(given: "DataFrame") -> "DataFrame":
        return given.selectExpr("n", "name", "_message.ts AS day", "_message.topic AS came_from")

    publish(admin, topic, *numbers(*range(10)))
    told: list[Progress] = []
    total = copy.at(home, url=server.url).run(spark, told.append)
    assert (total.entries, total.batches) == (10, 1)
    assert total.rows == {f"topic {topic}:all": 10, f"topic {topic}:big": 2, "table numbers": 10}
    assert [(one.batch, one.entries, one.lag) for one in told] == [(0, 10, 0)]
    assert copy.at(home, url=server.url).run(spark).batches == 0
    publish(admin, topic, *numbers(10, 11))
    assert copy.at(home, url=server.url).run(spark).entries == 2

    assert sorted(body["n"] for body in bodies(admin, f"{topic}:all")) == list(range(12))
    chosen = {fields[b"key"]: fields for _, fields in admin.xrange(f"{topic}:big")}
    assert sorted(chosen) == [b"number 10", b"number 11", b"number 8", b"number 9"]
    assert {fields[b"type"] for fields in chosen.values()} == {b"big"}
    assert {UUID(fields[b"id"].decode()).version for fields in chosen.values()} == {7}
    of_all = {fields[b"id"] for _, fields in admin.xrange(f"{topic}:all")}
    assert len(of_all) == 12
    assert {fields[b"id"] for fields in chosen.values()} < of_all
    rows = query(home, "SELECT n, came_from, strftime(day, '%Y-%m-%d') = date AS right_day FROM numbers ORDER BY n")
    assert rows == [{"n": number, "came_from": topic, "right_day": True} for number in range(12)]
    (group,) = [one for one in admin.xinfo_groups(topic) if one["name"] == b"copy"]
    assert group["lag"] == 0


def test_entries_that_do_not_fit_are_set_aside_and_counted(
    spark: "SparkSession", server: Server, admin: "redis.Redis", topic: str, tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    publish(admin, topic, {"n": 1, "name": "one"}, {"n": "two", "name": "two"}, {"n": 3})
    admin.xadd(topic, {"neither": b"\xff", "nor": "id"})
    tolerant = throwing(topic)
    total = tolerant.at(tmp_path / "home", url=server.url).run(spark)
    assert total.entries == 4
    assert total.rows == {f"topic {topic}:out": 2, "table thrown": 2, "table dice_malformed": 2}
    assert "2 entries could not be read" in caplog.text
    found = query(tmp_path / "home", "SELECT topic, reason, fields FROM dice_malformed ORDER BY entry_id")
    assert [row["topic"] for row in found] == [topic, topic]
    assert found[0]["reason"] == "payload.n is not a whole number"
    assert found[1]["fields"] == [b"neither", b"\xff", b"nor", b"id"]

    admin.xgroup_destroy(topic, "dice")
    strict = throwing(topic, malformed="fail").at(tmp_path / "other", url=server.url)
    with pytest.raises(FlowError, match=r"flow 'dice' failed in batch 0: .*payload.n is not a whole number") as caught:
        strict.run(spark)
    assert "\n" not in str(caught.value)
    assert "at org.apache" not in str(caught.value)


@pytest.mark.parametrize(
    ("steps", "there"),
    [pytest.param(("keep", "publish", "commit"), [0, 50, 50], marks=pytest.mark.full), (("publish",), [50])],
)
def test_a_repeated_batch_gives_every_output_the_same_rows(
    spark: "SparkSession", server: Server, admin: "redis.Redis", topic: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, steps: tuple[str, ...], there: list[int],
) -> None:  # fmt: skip
    """One failure after each of these steps of a batch, and at last Spark forgets that it is done."""
    publish(admin, topic, *numbers(*range(100)))
    job = throwing(topic, per_batch=50).at(tmp_path, url=server.url)
    seen: list[set[tuple[int, float]]] = []
    places: dict[str, Any] = {"keep": KeptResults, "publish": delivering, "commit": Batches}
    for where, name in ((places[step], step) for step in steps):
        failing = _failing_afterwards(getattr(where, name))
        with monkeypatch.context() as patched:
            patched.setattr(where, name, failing)
            with pytest.raises(FlowError, match="failed in batch 0: OSError: no space left on device"):
                job.run(spark)
        seen.append(thrown(admin, topic))
    assert [len(each) for each in seen] == there

    job.run(spark)
    for file in list(Lake.open(tmp_path).checkpoint("dice").glob("spark/commits/*1*")):
        file.unlink()
    assert job.run(spark).batches == 1

    found = thrown(admin, topic)
    assert len(bodies(admin, f"{topic}:out")) == 100
    assert sorted(number for number, _ in found) == list(range(100))
    assert found > seen[-1] == seen[-2:][0]
    assert [(row["n"], row["dice"]) for row in query(tmp_path, "SELECT n, dice FROM thrown ORDER BY n")] == sorted(
        found
    )


@pytest.mark.parametrize("to", [pytest.param((), marks=pytest.mark.full), "out"])
def test_a_repeated_batch_of_a_flow_with_state_brings_its_state_forward_too(
    spark: "SparkSession", server: Server, admin: "redis.Redis", topic: str, tmp_path: Path, to: "str | tuple[()]"
) -> None:
    @flow("firsts", topics=topic, schema=NUMBERS, to=f"{topic}:{to}" if to else (), table="firsts")
    def firsts(given: "DataFrame") -> "DataFrame":
        return given.select("n").dropDuplicates(["n"])

    job = firsts.at(tmp_path, url=server.url)
    publish(admin, topic, *numbers(1, 2, 2))
    job.run(spark)
    for file in Lake.open(tmp_path).checkpoint("firsts").glob("spark/commits/*0*"):
        file.unlink()  # as if the driver had died before Spark noted that all outputs have the batch
    publish(admin, topic, *numbers(2, 3))
    job.run(spark)

    assert query(tmp_path, "SELECT n FROM firsts ORDER BY n") == [{"n": 1}, {"n": 2}, {"n": 3}]
    if to:
        assert sorted(body["n"] for body in bodies(admin, f"{topic}:{to}")) == [1, 2, 3]


def _failing_afterwards(real: "Callable[..., Any]") -> "Callable[..., Any]":
    def call(*arguments: Any, **named: Any) -> Any:
        real(*arguments, **named)
        raise OSError("no space left on device")

    return call


def thrown(admin: "redis.Redis", topic: str) -> set[tuple[int, float]]:
    return {(body["n"], body["dice"]) for body in bodies(admin, f"{topic}:out")}


def test_a_stop_lets_the_batch_in_progress_end_and_begins_no_other(
    spark: "SparkSession", server: Server, admin: "redis.Redis", topic: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    begun, go_on = threading.Event(), threading.Event()
    real = delivering.publish

    def slow(*arguments: Any) -> int:
        begun.set()
        assert go_on.wait(120)
        return real(*arguments)

    monkeypatch.setattr(delivering, "publish", slow)
    publish(admin, topic, *numbers(*range(40)))
    job = throwing(topic, per_batch=20).at(tmp_path, url=server.url, every=timedelta(milliseconds=50))
    running = job.start(spark)
    assert begun.wait(120)
    running.stop()
    threading.Timer(0.5, go_on.set).start()
    total = running.wait()

    assert (total.batches, total.entries) == (1, 20)
    assert len(bodies(admin, f"{topic}:out")) == 20
    assert (Lake.open(tmp_path).checkpoint("dice") / "spark" / "commits" / "0").exists()
    monkeypatch.undo()

    waiting = throwing(topic).at(tmp_path, url=server.url, every=timedelta(hours=1)).start(spark)
    ended = threading.Thread(target=waiting.wait)
    ended.start()
    until(lambda: waiting.total.batches == 1)
    with pytest.raises(ConfigurationError, match="'dice' runs already in"):
        job.check()
    waiting.stop()
    ended.join(30)
    assert not ended.is_alive()
    assert sorted(number for number, _ in thrown(admin, topic)) == list(range(40))


def test_a_failure_is_told_in_the_words_of_the_users_code_and_made_good_by_a_restart(
    spark: "SparkSession", server: Server, admin: "redis.Redis", topic: str, tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    healed = tmp_path / "healed"

    @flow("fragile", topics=topic, schema=NUMBERS, table="numbers")
    def fragile(given: "DataFrame") -> "DataFrame":
        from pyspark.sql.functions import udf

        def picky(number):  # type: ignore[no-untyped-def]
            if number == 7 and not healed.exists():
                healed.touch()
                raise ValueError("seven is not a number that I like")
            return number

        return given.select(udf(picky, "bigint")("n").alias("n"))

    publish(admin, topic, *numbers(*range(10)))
    reason = r"flow 'fragile' failed in batch 0: ValueError: seven is .* like \(.*test_flows.py, line \d+, in picky\)"
    total = fragile.at(tmp_path / "home", url=server.url, restarts=1).run(spark)
    assert total.entries == 10
    (warning,) = [record.getMessage() for record in caplog.records if "starts again" in record.getMessage()]
    assert re.fullmatch(f"{reason}; it starts again in 1 s", warning)
    assert query(tmp_path / "home", "SELECT count(*) AS n FROM numbers") == [{"n": 10}]


def test_two_topics_of_their_own_schemas_can_be_joined(
    spark: "SparkSession", server: Server, admin: "redis.Redis", topic: str, tmp_path: Path
) -> None:
    kinds = {f"{topic}:o": "o string, total double", f"{topic}:p": "o string, paid double"}

    @flow("paid", topics=kinds, to=f"{topic}:j")
    def paid(orders: "DataFrame", payments: "DataFrame") -> "DataFrame":
        return orders.drop("_message").join(payments.drop("_message"), "o")

    publish(admin, f"{topic}:o", {"o": "a", "total": 5.0}, {"o": "b", "total": 6.0})
    publish(admin, f"{topic}:p", {"o": "b", "paid": 4.0})
    assert paid.at(tmp_path, url=server.url).run(spark).entries == 3
    assert bodies(admin, f"{topic}:j") == [{"o": "b", "total": 6.0, "paid": 4.0}]


def test_a_checkpoint_belongs_to_its_flow(
    spark: "SparkSession", server: Server, admin: "redis.Redis", topic: str, tmp_path: Path
) -> None:
    publish(admin, topic, *numbers(1))
    first = throwing(topic)
    first.at(tmp_path, url=server.url).run(spark)
    other = throwing(f"{topic}:b")
    with pytest.raises(ConfigurationError, match=rf"its topics were {topic} and are {topic}:b; its outputs were"):
        other.at(tmp_path, url=server.url).run(spark)
    publish(admin, topic, *numbers(2))
    renamed = dataclasses.replace(first, outputs=(*first.outputs, Table("second")))
    with pytest.raises(ConfigurationError, match=r"its outputs were table thrown, topic .*say adapt"):
        renamed.at(tmp_path, url=server.url).check()
    assert renamed.at(tmp_path, url=server.url, adapt=True).run(spark).rows["table second"] == 1

    nested = dataclasses.replace(first, function=lambda given: given.selectExpr("struct(n) AS n", "rand() AS dice"))
    with pytest.raises(
        ConfigurationError, match=r"table thrown cannot .*: column 'n' is int64 in the lake, and struct"
    ):
        nested.at(tmp_path, url=server.url, adapt=True).run(spark)

    checkpoints = Lake.open(tmp_path).checkpoint("dice")
    checkpoints.rename(checkpoints.with_name("copied"))
    with pytest.raises(ConfigurationError, match="is the checkpoint of flow 'dice', not of 'copied'"):
        dataclasses.replace(first, name="copied").at(tmp_path, url=server.url).check()
    with pytest.raises(FlowError, match=r"group 'dice' of topic .* stands at .* not where startingPosition says"):
        first.at(tmp_path, url=server.url).run(spark)
    archive = Lake.open(tmp_path).checkpoint("copy")
    archive.mkdir()
    (archive / "metadata").touch()
    with pytest.raises(ConfigurationError, match="is a checkpoint, but of no flow"):
        dataclasses.replace(first, name="copy").at(tmp_path, url=server.url).check()


def test_what_a_function_returns_is_checked_before_anything_is_read(
    spark: "SparkSession", server: Server, topic: str, tmp_path: Path
) -> None:
    def run(function: "Callable[[DataFrame], Any]", output: "Topic | Table") -> None:
        where = {"to": output} if isinstance(output, Topic) else {"table": output}
        made = flow("odd", topics=topic, schema=NUMBERS, **where)(function)
        made.at(tmp_path, url=server.url).run(spark)

    out = Topic(f"{topic}:out", key="nobody")
    for function, output, complaint in (
        (lambda given: None, Table("t"), "must return a streaming DataFrame .* not NoneType"),
        (lambda given: spark.range(3), Table("t"), "not one that is no stream"),
        (lambda given: given, out, "takes its key from a column 'nobody', but there are n, name, _message"),
        (lambda given: given.selectExpr("n AS date"), Table("t"), "which is bigint and no time"),
        (lambda given: given.selectExpr("n AS _id"), Table("t"), "column '_id', a name that is ours"),
        (lambda given: given.selectExpr("name AS payload", "n"), Topic("a"), "has no use for column 'n'"),
    ):
        with pytest.raises(ConfigurationError, match=complaint):
            run(function, output)
        (Lake.open(tmp_path).checkpoint("odd") / "flow.json").unlink()
    with pytest.raises(FlowError, match=r"flow 'odd' cannot start: ZeroDivisionError: .* \(.*test_flows.py, line"):
        run(lambda given: given.limit(1 // 0), Table("t"))
    (Lake.open(tmp_path).checkpoint("odd") / "flow.json").unlink()
    with pytest.raises(FlowError, match=r"cannot start: .*nonsense"):
        run(lambda given: given.select("nonsense"), Table("t"))
