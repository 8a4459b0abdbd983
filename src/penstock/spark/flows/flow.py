"""A streaming job of one's own: topics in, a DataFrame in between, topics and tables of a lake out, each row once.

    @flow("sessions", topics="clicks", schema=Click, to=Topic("sessions", key="user"), table="sessions")
    def sessions(clicks: DataFrame) -> DataFrame:
        timely = clicks.withWatermark("at", "1 hour")
        return timely.groupBy("user", session_window("at", "30 minutes")).count()

`penstock pipeline run MODULE:sessions --home DIR` runs it, and so does `sessions.at(DIR).run(spark)`. Its name is that
of the query, of the checkpoint, and of the group on the server that shows how far it has come.

Importing this loads no Spark.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from penstock.backend import keys
from penstock.errors import ConfigurationError, SetupError
from penstock.lake.tables import OURS
from penstock.spark.options.more import check_more
from penstock.spark.queries.place import check_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.spark.flows.running import FlowRun

Schema: TypeAlias = Any
"""A StructType, its DDL as text, a dataclass, or a `msgspec.Struct`."""

_OF_THE_LAKE = (*OURS, "metrics")


@dataclass(frozen=True)
class Topic:
    """Rows as messages of a topic. The body is a JSON object of all columns, unless there is a column `payload`: then
    the rows are envelopes, with the columns that the sink takes."""

    name: str
    key: str | None = None
    """The column that holds a message's key."""

    type: str | None = None
    """The type that the messages have."""

    id: str | None = None
    """The column that holds a message's UUID; without it each row gets one."""

    where: str | None = None
    """Only rows for which this is true, in SQL."""

    def __post_init__(self) -> None:
        keys.check_topic(self.name)

    def __str__(self) -> str:
        return f"topic {self.name}"


@dataclass(frozen=True)
class Table:
    """Rows as rows of a table of the lake, parted by day."""

    name: str
    date: str | None = None
    """The column whose day, in UTC, is the row's; without it the column `date`, or else the day of writing."""

    where: str | None = None
    """Only rows for which this is true, in SQL."""

    def __post_init__(self) -> None:
        check_name("the name of a table", self.name)
        if self.name.casefold() in _OF_THE_LAKE:
            raise ConfigurationError(
                f"a lake has a table {self.name.casefold()!r} of its own: give {self.name!r} another name"
            )

    def __str__(self) -> str:
        return f"table {self.name}"


Output: TypeAlias = Topic | Table


@dataclass(frozen=True)
class Input:
    """What one parameter of a flow's function holds."""

    topics: tuple[str, ...]
    schema: Schema | None = None


@dataclass(frozen=True, kw_only=True)
class FlowOptions:
    """What most flows need not say."""

    malformed: str = "table"
    """What becomes of entries that are no messages, or do not fit the schema: `table` puts them into the table
    `<flow>_malformed` of the lake; `fail` ends the flow at the first, and reads the topics once where the other reads
    them twice."""

    mode: str = "append"
    """`append` gives each row once, when it is final; `update` gives it whenever it changes."""

    start: str = "earliest"
    """Where the flow begins when it runs for the first time, as the source's option `startingPosition`."""

    per_batch: int = 1_000_000
    """How many entries a batch takes at most."""

    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings of Spark SQL for this query."""

    source: Mapping[str, str] = field(default_factory=dict)
    """More options of the source."""

    def __post_init__(self) -> None:
        for name, value, choices in (
            ("malformed", self.malformed, ("table", "fail")),
            ("mode", self.mode, ("append", "update")),
        ):
            if value not in choices:
                raise ConfigurationError(f"option {name} is {value!r}: it must be {' or '.join(choices)}")
        if self.per_batch < 1:
            raise ConfigurationError(f"option per_batch is {self.per_batch}: it must be at least 1")
        check_more(self.source, "source", ("startingposition",))
        for name in self.settings:
            if not name.startswith("spark.sql."):
                raise ConfigurationError(
                    f"option settings has {name!r}: only spark.sql.* can be set for a query, the rest is the session's"
                )


@dataclass(frozen=True, kw_only=True)
class Flow:
    """A job that can be run. Calling it calls the function alone, with whatever DataFrames it is given."""

    name: str
    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    function: "Callable[..., DataFrame]"
    options: FlowOptions = FlowOptions()

    def __post_init__(self) -> None:
        check_name("the name of a flow", self.name)
        _check_outputs(self)
        _check_inputs(self)

    def __call__(self, *inputs: "DataFrame") -> "DataFrame":
        return self.function(*inputs)

    def at(
        self,
        home: str | PathLike[str],
        *,
        url: str | None = None,
        every: timedelta | None = None,
        restarts: int = 0,
        adapt: bool = False,
    ) -> "FlowRun":
        """The flow with a home: the lake with its tables and its checkpoint. The same home goes on where it was."""
        try:
            from penstock.spark.flows.running import FlowRun
        except ModuleNotFoundError as error:
            raise SetupError(f"flows need Spark ({error}): run `pip install 'penstock[spark]'`") from error
        return FlowRun(flow=self, home=Path(home), url=url, every=every, restarts=restarts, adapt=adapt)

    @property
    def topics(self) -> list[str]:
        """All that it reads."""
        return [topic for given in self.inputs for topic in given.topics]

    @property
    def malformed_table(self) -> str:
        return f"{self.name}_malformed"

    @property
    def tables(self) -> list[str]:
        """All that it writes."""
        named = [output.name for output in self.outputs if isinstance(output, Table)]
        return [*named, *([self.malformed_table] if self.options.malformed == "table" else [])]


def flow(
    name: str,
    *,
    topics: str | Sequence[str] | Mapping[str, Schema],
    to: str | Topic | Sequence[str | Topic] = (),
    table: str | Table | Sequence[str | Table] = (),
    schema: Schema | None = None,
    options: FlowOptions = FlowOptions(),  # noqa: B008 - frozen
) -> "Callable[[Callable[..., DataFrame]], Flow]":
    """Make a flow of a function from a streaming DataFrame to another.

    With `schema` the function sees the fields of the messages' bodies as columns, and `_message` with what else is
    known: topic, entry_id, ts, id, type and key. Without it, it sees the columns of the source. If `topics` maps topics
    to schemas, the function takes a DataFrame for each, in this order.
    """
    if isinstance(topics, Mapping):
        if schema is not None:
            raise ConfigurationError(f"flow {name!r} has schemas in its topics: leave option schema out")
        inputs = tuple(Input((topic,), kind) for topic, kind in topics.items())
    else:
        inputs = (Input((topics,) if isinstance(topics, str) else tuple(topics), schema),)
    outputs = (*_outputs(to, Topic), *_outputs(table, Table))

    def made(function: "Callable[..., DataFrame]") -> Flow:
        return Flow(name=name, inputs=inputs, outputs=outputs, function=function, options=options)

    return made


def _outputs(given: Any, kind: type[Topic] | type[Table]) -> "list[Output]":
    several = [given] if isinstance(given, str | Topic | Table) else list(given)
    made = [kind(one) if isinstance(one, str) else one for one in several]
    if wrong := [one for one in made if not isinstance(one, kind)]:
        raise ConfigurationError(f"an output is a name or a {kind.__name__}, not {wrong[0]!r}")
    return list(made)


def _check_outputs(one: Flow) -> None:
    if not one.outputs:
        raise ConfigurationError(f"flow {one.name!r} has no output: name a topic with `to`, or a table with `table`")
    # To SQL, tables whose names differ in upper and lower case are one; topics are two.
    names = [str(output).casefold() if isinstance(output, Table) else str(output) for output in one.outputs]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ConfigurationError(f"flow {one.name!r} has the {min(twice)} twice: one `where` can join both with OR")
    if str(Table(one.malformed_table)).casefold() in names:
        raise ConfigurationError(f"the table {one.malformed_table!r} is for what flow {one.name!r} cannot read")
    if loop := {output.name for output in one.outputs if isinstance(output, Topic)} & set(one.topics):
        raise ConfigurationError(f"flow {one.name!r} writes to topic {min(loop)!r}, which it reads: it would never end")


def _check_inputs(one: Flow) -> None:
    if not one.topics:
        raise ConfigurationError(f"flow {one.name!r} has no topic to read: name at least one")
    for topic in one.topics:
        keys.check_topic(topic)
    if len(set(one.topics)) < len(one.topics):
        raise ConfigurationError(f"flow {one.name!r} names a topic twice")
    try:
        inspect.signature(one.function).bind(*one.inputs)
    except TypeError as error:
        raise ConfigurationError(
            f"flow {one.name!r} gives its function {len(one.inputs)} DataFrame(s), which it cannot take: {error}"
        ) from None
