"""Messages with given payloads into a lake, without Spark."""

from collections.abc import Sequence
from datetime import timedelta

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.lake import Commit, Lake
from penstock.lake.files import staged_file
from tests.lake.pouring import SCHEMA, START


def pour_payloads(lake: Lake, topic: str, payloads: Sequence[str | None], *, day: int = 0, table: str = "raw") -> None:
    """One file of messages, one after the other within a day."""
    staging = lake.staging("test")
    file, ts = staging / "0.parquet", START + timedelta(days=day)
    past = sum(one.rows for one in lake.snapshot().of("raw"))
    rows = [
        {"entry_id": f"{past + n}-0", "ts": ts + timedelta(milliseconds=past + n), "seq": 0, "id": f"{past + n:06}",
         "payload": payload}
        for n, payload in enumerate(payloads)
    ]  # fmt: skip
    pq.write_table(pa.Table.from_pylist(rows, SCHEMA), file)
    added = staged_file(lake.path, file, staging.name, table, {"topic": topic, "date": ts.date().isoformat()})
    lake.commit(Commit(writer="test", number=lake.snapshot().writers.get("test", -1) + 1, add=(added,)))
