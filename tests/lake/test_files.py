"""What the lake notes of a file whose columns are the user's own."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.lake.files import staged_file


def test_only_texts_have_bounds_and_only_those_of_columns_of_their_own(tmp_path: Path) -> None:
    for name, columns in (
        ("text", {"id": ["b", "a"]}),
        ("number", {"id": [2, 1]}),
        ("inside", {"body": [{"id": "b"}, {"id": "a"}]}),
        ("none", {"n": [1, 2]}),
    ):
        file = tmp_path / f"{name}.parquet"
        pq.write_table(pa.table(columns), file)
        found = staged_file(tmp_path, file, name, "users", {})
        assert found.bounds == ({"id": ("a", "b")} if name == "text" else {})
