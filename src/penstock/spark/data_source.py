"""What Spark makes of `format("penstock")`: readers and writers, and the checks before either."""

from collections.abc import MutableMapping

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from penstock.spark.connection.server import Server
from penstock.spark.entries.columns import Columns
from penstock.spark.options import either
from penstock.spark.options.schemas import default_schema
from penstock.spark.options.source import SourceOptions
from penstock.spark.source.batch_reader import BatchReader
from penstock.spark.source.stream_reader import StreamReader
from penstock.spark.views.reader import ViewReader, view_schema


class PenstockSource(DataSource):
    """Streams as tables, in and out. Options: `penstock.spark.options`; what they promise: docs/spark.md.

    Spark makes one instance for each load or save, on the driver, and copies it to wherever it is needed.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self.server = Server.resolve(either.check(options))

    @classmethod
    def name(cls) -> str:
        return "penstock"

    def schema(self) -> StructType:
        options = SourceOptions.parse(self.options)
        return view_schema(options.view) if options.view else default_schema(options.layout)

    def reader(self, schema: StructType) -> DataSourceReader:
        options = SourceOptions.parse(self.options).for_batch()
        if options.view:
            return ViewReader(options, self.server, schema)
        return BatchReader(options, self.server, _columns(options, schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        options = SourceOptions.parse(self.options).for_stream()
        return StreamReader(options, self.server, _columns(options, schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from penstock.spark.sink.writers import batch_writer

        return batch_writer(self.options, schema, overwrite, self.server)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        from penstock.spark.sink.writers import stream_writer

        return stream_writer(self.options, schema, overwrite, self.server)


def _columns(options: SourceOptions, schema: StructType) -> Columns:
    return Columns.of(schema, layout=options.layout, dialect=options.dialect or "native", mode=options.mode)
