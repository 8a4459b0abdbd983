"""Rows of a batch to tables of the lake, all in one commit."""

from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812 - its usual name
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import DateType, StringType, StructType, TimestampType

from penstock.errors import ConfigurationError
from penstock.lake import Lake
from penstock.lake.conflicts import conflict
from penstock.spark.flows.flow import Table
from penstock.spark.flows.results import ID, bring_state_forward
from penstock.spark.pipelines.batches import Batches, StagedBatch
from penstock.spark.pipelines.days import NO_DAY, day_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TABLE, _DATE = "_table", "date"


@dataclass(frozen=True)
class Tables:
    """The tables that one flow writes."""

    batches: Batches

    @property
    def lake(self) -> Lake:
        return self.batches.lake

    def write(self, rows: "Mapping[Table, DataFrame]", number: int) -> Mapping[str, int]:
        """Write the rows of a batch to their tables, and return how many each got; nothing if they have them."""
        staged: list[StagedBatch] = []
        with ExitStack() as drafts:
            for table, given in rows.items():
                batch = self.batches.stage(_parted(given, table), number, (_TABLE, _DATE))
                if batch is None:
                    bring_state_forward(given)
                    return {}
                drafts.enter_context(self.lake.drafting(batch.directory))
                staged.append(batch)
            files = list(chain.from_iterable(batch.files for batch in staged))
            if files:
                self.batches.commit(StagedBatch(number, staged[0].directory, files))
        for batch in staged:
            self.lake.abandon(batch.directory)
        counts: Counter[str] = Counter()
        for file in files:
            counts[file.table] += file.rows
        return counts


def check_table_rows(schema: StructType, table: Table) -> None:
    """`ConfigurationError` if rows of this schema cannot be parted by day as the output says."""
    if table.date is not None and _DATE in schema.names and table.date != _DATE:
        raise ConfigurationError(
            f"{table} has its day from column {table.date!r}, but there is a column 'date' too: rename that"
        )
    name = table.date or (_DATE if _DATE in schema.names else None)
    if name is None:
        return
    if name not in schema.names:
        raise ConfigurationError(f"{table} has its day from a column {name!r}, but there are {', '.join(schema.names)}")
    kind = schema[name].dataType
    if not isinstance(kind, DateType | TimestampType | StringType):
        raise ConfigurationError(
            f"{table} has its day from column {name!r}, which is {kind.simpleString()} and no time"
        )


def check_table_columns(lake: Lake, schema: StructType, table: Table) -> None:
    """`ConfigurationError` if the table is there, with a column of this name that is of another kind."""
    if why := conflict(lake, table.name, to_arrow_schema(schema, timezone="UTC")):
        raise ConfigurationError(
            f"{table} cannot take these rows, since nobody could read it any more: {why}. Give the column another name,"
            " or write to another table"
        )


def _parted(rows: "DataFrame", table: Table) -> "DataFrame":
    if table.where is not None:
        rows = rows.where(table.where)
    name = table.date or (_DATE if _DATE in rows.columns else None)
    return rows.drop(ID).withColumns({_DATE: _day(rows, name), _TABLE: F.lit(table.name)})


def _day(rows: "DataFrame", name: str | None) -> Any:
    if name is None:
        return F.lit(datetime.now(UTC).date().isoformat())
    column = F.col("`" + name.replace("`", "``") + "`")
    if isinstance(rows.schema[name].dataType, TimestampType):
        column = F.expr(day_of("`" + name.replace("`", "``") + "`"))
    return F.coalesce(column.cast("string"), F.lit(NO_DAY))
