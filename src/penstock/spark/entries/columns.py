"""Pages of a stream as Arrow batches in exactly the columns that were asked for."""

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from penstock.errors import ConfigurationError, MalformedError
from penstock.message.dialects import DIALECTS
from penstock.spark.entries.envelope import EnvelopeReader
from penstock.spark.entries.page import Page
from penstock.spark.entries.plain_fields import FlatReader, RawReader
from penstock.spark.entries.resp import Bytes, Numbers, Shape
from penstock.spark.entries.vectors import Mask, binary, microseconds, moments
from penstock.spark.options.schemas import CORRUPT, LAYOUTS, PLACE, UNREAD, check_schema

MODES = ("permissive", "dropmalformed", "failfast")

NumberedRows = tuple[Numbers, pa.RecordBatch]
"""Some rows of a page, by their numbers in it."""


class _Reader(Protocol):
    def row(self, stream: str, entry_id: str, fields: Sequence[bytes]) -> dict[str, Any]: ...

    def arrays(self, stream: str, reply: Bytes, shape: Shape) -> tuple[dict[str, pa.Array], Mask] | None: ...


class Columns:
    """What to make of an entry: made on the driver, sent to every task.

    What no column asks for is neither decoded nor checked. So an entry is malformed only if one of the wanted columns
    cannot be read, or if `_corrupt` is wanted and anything cannot: without `payload` and `_corrupt` a broken payload
    goes unnoticed, and with nothing but `stream`, `entry_id` and `ts` every entry is a row. A malformed entry is a row
    with nulls and the reason in `_corrupt` (mode `permissive`), no row (`dropmalformed`), or raises `MalformedError`
    (`failfast`). `ts` is null for ids made by hand that are no moment before the year 10000.
    """

    def __init__(self, schema: StructType, layout: str, dialect: str, mode: str) -> None:
        self.schema = schema
        self.layout = layout
        self.dialect = dialect
        self.mode = mode
        self.arrow_schema: pa.Schema = to_arrow_schema(schema, timezone="UTC")

    @classmethod
    def of(cls, schema: StructType, *, layout: str, dialect: str, mode: str) -> "Columns":
        """`ConfigurationError` names whatever cannot be done."""
        for option, given, accepted in (
            ("layout", layout, LAYOUTS), ("dialect", dialect, tuple(DIALECTS)), ("mode", mode, MODES),
        ):  # fmt: skip
            if given not in accepted:
                raise ConfigurationError(f"option {option} is {given!r}: it must be one of {', '.join(accepted)}")
        check_schema(schema, layout)
        return cls(schema, layout, dialect, mode)

    def __reduce__(self) -> tuple[Any, ...]:
        return Columns, (self.schema, self.layout, self.dialect, self.mode)

    def batch(self, stream: str, page: Page) -> pa.RecordBatch:
        """What becomes of the entries of a page; none of it points into the page's memory."""
        if page.shapes is None:
            return self._one_by_one(stream, ((number, *entry) for number, entry in enumerate(page.entries())))[1]
        parts, doubtful = [], []
        for shape in page.shapes:
            columns, good = self._columns(stream, page.reply, shape)
            if good.any():
                whole = self._fill(stream, page.reply, shape, columns)
                parts.append((shape.rows, whole) if good.all() else (shape.rows[good], whole.filter(pa.array(good))))
            doubtful += [(int(shape.rows[at]), *page.entry(shape, int(at))) for at in np.flatnonzero(~good)]
        if doubtful:
            # In their order, so that `failfast` names the first.
            parts.append(self._one_by_one(stream, sorted(doubtful)))
        return self._in_order(parts)

    @cached_property
    def _reader(self) -> _Reader:
        if self.layout == "envelope":
            return EnvelopeReader(self.schema, self.dialect)
        return RawReader() if self.layout == "raw" else FlatReader(self.schema)

    @cached_property
    def _only_places(self) -> bool:
        return PLACE.issuperset(self.schema.names)

    def _columns(self, stream: str, reply: Bytes, shape: Shape) -> tuple[dict[str, pa.Array], Mask]:
        """What the entries of a shape say, and for which of them that is sure."""
        everywhere = np.ones(len(shape.rows), np.bool_)
        if self._only_places:
            return {}, everywhere
        read = self._reader.arrays(stream, reply, shape)
        return ({}, ~everywhere) if read is None else read

    def _fill(self, stream: str, reply: Bytes, shape: Shape, columns: dict[str, pa.Array]) -> pa.RecordBatch:
        arrays = []
        for field in self.arrow_schema:
            if field.name == "stream":
                array = pa.repeat(pa.scalar(stream), len(shape.rows))
            elif field.name == "entry_id":
                array = binary(reply, shape.ids).cast(pa.string())
            elif field.name == "ts":
                array = moments(reply, shape.ids)
            else:
                array = columns.get(field.name)
            arrays.append(pa.nulls(len(shape.rows), field.type) if array is None else array)
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow_schema)

    def _one_by_one(self, stream: str, entries: Iterable[tuple[int, bytes, Sequence[bytes]]]) -> NumberedRows:
        numbers, rows = [], []
        for number, entry_id, fields in entries:
            row = self._row(stream, entry_id, fields)
            if row is not None:
                numbers.append(number)
                rows.append(row)
        arrays = [pa.array([row.get(field.name) for row in rows], field.type) for field in self.arrow_schema]
        return np.array(numbers, np.int64), pa.RecordBatch.from_arrays(arrays, schema=self.arrow_schema)

    def _row(self, stream: str, raw_id: bytes, fields: Sequence[bytes]) -> dict[str, Any] | None:
        entry_id = raw_id.decode()
        row: dict[str, Any] = {"stream": stream, "entry_id": entry_id, "ts": microseconds(raw_id)}
        if self._only_places:
            return row
        try:
            return row | self._reader.row(stream, entry_id, fields)
        except MalformedError as error:
            if self.mode == "failfast":
                raise
            return row | {CORRUPT: error.reason, UNREAD: fields} if self.mode == "permissive" else None

    def _in_order(self, parts: list[NumberedRows]) -> pa.RecordBatch:
        if len(parts) == 1:
            return parts[0][1]
        table = pa.Table.from_batches([batch for _, batch in parts], self.arrow_schema)
        if parts:
            table = table.take(pa.array(np.argsort(np.concatenate([numbers for numbers, _ in parts]))))
        columns = [column.combine_chunks() for column in table.columns]
        return pa.RecordBatch.from_arrays(columns, schema=self.arrow_schema)
