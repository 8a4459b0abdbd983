"""What a flow refuses when it is declared, and what it makes of types and errors. No JVM is needed."""

import subprocess
import sys
from dataclasses import dataclass
from datetime import date, datetime
from enum import Enum
from typing import Any, Literal

import msgspec
import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from penstock.errors import ConfigurationError
from penstock.spark import FlowOptions, Table, Topic, flow
from penstock.spark.flows.schemas import struct_of
from penstock.spark.queries.causes import cause_of


def declared(**settings: Any) -> Any:
    return flow(**{"name": "f", "topics": "a", "to": "b"} | settings)(settings.pop("function", lambda rows: rows))


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: declared(name="a/b"), "name of a flow is 'a/b'"),
        (lambda: declared(name=".."), "name of a flow is '..'"),
        (lambda: declared(to=()), "flow 'f' has no output"),
        (lambda: declared(topics=[]), "has no topic to read"),
        (lambda: declared(topics=["a", "a"]), "names a topic twice"),
        (lambda: declared(to=["b", "b"]), "has the topic b twice"),
        (lambda: declared(to=Table("t")), "an output is a name or a Topic, not Table"),
        (lambda: declared(topics="b"), "writes to topic 'b', which it reads"),
        (lambda: declared(topics={"x": "n int"}, schema="n int"), "leave option schema out"),
        (lambda: flow("f", topics={"x": None, "y": None}, to="b")(lambda rows: rows), "gives its function 2 DataFrame"),
        (lambda: Table("raw"), "has a table 'raw' of its own"),
        (lambda: Table("a b"), "name of a table is 'a b'"),
        (lambda: Topic(""), "a topic is a non-empty string"),
        (lambda: FlowOptions(malformed="drop"), "option malformed is 'drop': it must be table or fail"),
        (lambda: FlowOptions(mode="complete"), "option mode is 'complete'"),
        (lambda: FlowOptions(per_batch=0), "option per_batch is 0"),
        (lambda: FlowOptions(source={"group": "g"}), "option source has 'group', which is set otherwise"),
        (lambda: FlowOptions(settings={"spark.driver.memory": "1g"}), "only spark.sql"),
        (lambda: declared().at("x", restarts=-1), "option restarts is -1"),
    ],
)
def test_what_cannot_work_is_refused(make: Any, complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        make()


def test_declaring_a_flow_loads_no_spark() -> None:
    code = (
        "import sys; from penstock.spark import flow; flow('f', topics='a', to='b')(lambda rows: rows);"
        " print(sorted(name for name in sys.modules if name.partition('.')[0] in ('pyspark', 'pyarrow', 'redis')))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


class Colour(Enum):
    RED = "red"


class Line(msgspec.Struct):
    amount: int
    note: str | None = None


@dataclass
class Order:
    id: str
    total: float
    at: datetime
    day: date
    colour: Colour
    size: Literal[1, 2]
    lines: list[Line]
    extra: dict[str, int]
    either: int | float
    anything: Any
    odd: int | str | None = None


def test_a_class_is_a_schema() -> None:
    assert struct_of(Order).simpleString() == (
        "struct<id:string,total:double,at:timestamp,day:date,colour:string,size:bigint,"
        "lines:array<struct<amount:bigint,note:string>>,extra:map<string,bigint>,either:double,anything:string,odd:string>"
    )
    with pytest.raises(ConfigurationError, match="a schema is DDL like"):
        struct_of(7)


def test_the_cause_of_a_failure_is_what_python_raised_last() -> None:
    text = (
        "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted\n"
        'Traceback (most recent call last):\n  File "/x/pyspark/worker.py", line 1, in main\n    a()\nKeyError: 1\n\n'
        "During handling of the above exception, another exception occurred:\n\nTraceback (most recent call last):\n"
        '  File "/shop/prices.py", line 12, in price\n    b()\n  File "/x/site-packages/p.py", line 3, in g\n    c()\n'
        "shop.errors.PriceError: no price for o-1\n\n\tat org.apache.spark.api.python.BasePythonRunner(P.scala:1)\n"
    )
    assert str(cause_of(RuntimeError(text))) == "PriceError: no price for o-1 (/shop/prices.py, line 12, in price)"
    assert str(cause_of(RuntimeError("two\n words"))) == "RuntimeError: two words"


def test_where_python_raised_nothing_the_cause_is_what_java_names_last() -> None:
    text = (
        "An error occurred while calling o12.parquet.\n: org.apache.spark.SparkException: Job aborted.\n\tat X.y(Z)\n"
        "Caused by: java.io.IOException: No space left on device\n\tat java.base/sun.nio.ch.F.write0(F.java)\n"
    )
    assert str(cause_of(Py4JError(text))) == "IOException: No space left on device"
    wrapped = "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: [A_CLASS] the words SQLSTATE: XXKST"
    assert str(cause_of(PySparkException(wrapped))) == "[A_CLASS] the words SQLSTATE: XXKST"
