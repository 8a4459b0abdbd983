"""Topics as tables with a column for each field: whatever the payloads hold, no value is lost or changed."""

import json
import math
import random
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.main import main
from penstock.errors import LakeError
from penstock.lake import Lake, learning, schemas, tables
from penstock.lake.compaction import compact
from penstock.lake.learning import schema_of
from penstock.lake.schemas import Schema
from tests.lake.payloads import pour_payloads

Row = dict[str, Any]


def columns(schema: Schema) -> list[tuple[str, str]]:
    return [(column.name, column.type) for column in schema.columns]


def rows_of(lake: Lake, topic: str) -> list[Row]:
    found: list[Row] = tables.query(lake, f'SELECT * FROM "{topic}" ORDER BY ts, seq, entry_id').to_pylist()
    return found


def test_a_field_keeps_its_first_type_and_other_values_land_beside(tmp_path: Path) -> None:
    lake = Lake.create(tmp_path)
    pour_payloads(
        lake, "orders", ['{"total":12,"who":"ann"}', '{"total":"free","who":null}', '{"total":true,"new":[1,{"a":2}]}']
    )
    assert columns(schema_of(lake, "orders")) == [
        ("total", "BIGINT"), ("total__text", "VARCHAR"), ("total__flag", "BOOLEAN"), ("who", "VARCHAR"),
        ("new", "JSON"),
    ]  # fmt: skip
    pour_payloads(lake, "orders", ['{"who":7,"more":{}}'], day=1)

    found = [{name: row[name] for name in row if name not in tables.COLUMNS["raw"]} for row in rows_of(lake, "orders")]

    nothing = dict.fromkeys(("total", "total__text", "total__flag", "who", "new", "who__whole", "more"))
    place = {"topic": "orders", "date": "2026-03-01"}
    assert found == [
        {**place, **nothing, "total": 12, "who": "ann"},
        {**place, **nothing, "total__text": "free"},
        {**place, **nothing, "total__flag": True, "new": '[1,{"a":2}]'},
        {**place, **nothing, "date": "2026-03-02", "who__whole": 7, "more": "{}"},
    ]
    by_name = {column.name: column for column in schema_of(lake, "orders").columns}
    assert (by_name["who"].first, by_name["who__whole"].first) == ("2026-03-01", "2026-03-02")


def test_whole_numbers_become_fractions_only_where_that_is_exact(tmp_path: Path) -> None:
    lake = Lake.create(tmp_path)
    big, beyond = 2**53 + 1, 10**30 + 1
    pour_payloads(lake, "a", ['{"x":1}', '{"x":2.5}', f'{{"x":{big}}}', f'{{"x":{beyond}}}', '{"x":-9007199254740992}'])
    pour_payloads(lake, "b", [f'{{"x":{big}}}', '{"x":2.5}', '{"x":3}', f'{{"x":{-(2**63)}}}', f'{{"x":{2**63}}}'])
    assert columns(schema_of(lake, "a")) == [("x", "DOUBLE"), ("x__whole", "BIGINT"), ("x__digits", "VARCHAR")]
    assert columns(schema_of(lake, "b")) == [("x", "BIGINT"), ("x__number", "DOUBLE"), ("x__digits", "VARCHAR")]
    assert [(row["x"], row["x__whole"], row["x__digits"]) for row in rows_of(lake, "a")] == [
        (1.0, None, None), (2.5, None, None), (None, big, None), (None, None, str(beyond)), (-(2.0**53), None, None),
    ]  # fmt: skip
    assert [(row["x"], row["x__number"], row["x__digits"]) for row in rows_of(lake, "b")] == [
        (big, None, None), (None, 2.5, None), (3, None, None), (-(2**63), None, None), (None, None, str(2**63)),
    ]  # fmt: skip


def test_every_name_that_json_allows_gets_a_column(tmp_path: Path) -> None:
    lake = Lake.create(tmp_path)
    names = [
        "id",
        "ID",
        "Total",
        "total",
        "",
        'q"x',
        "it's",
        "a/b~1",
        "0",
        "ключ",
        "日本",
        "a b",
        "a\nb",
        "date",
        "x__text",
    ]
    body = {name: number for number, name in enumerate(names)}
    pour_payloads(lake, "t", [json.dumps(body), '["0"]', "[1]", "null", "3", '"x"', None, "{}"])
    row, *others = rows_of(lake, "t")
    schema = schema_of(lake, "t")
    assert {column.field: row[column.name] for column in schema.columns} == body
    assert [column.name for column in schema.columns] == [
        "id__whole", "ID__whole_2", "Total", "total__whole", "__whole", 'q"x', "it's", "a/b~1", "0", "ключ", "日本",
        "a b", "a_b", "date__whole", "x__text",
    ]  # fmt: skip
    assert row["id"] == "000000"
    assert [[one[column.name] for column in schema.columns] for one in others] == [[None] * len(names)] * 7
    assert [one["payload"] for one in others] == ['["0"]', "[1]", "null", "3", '"x"', None, "{}"]


@pytest.mark.parametrize("seed", range(8))
def test_each_value_is_in_one_column_as_it_was(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    lake = Lake.create(tmp_path)
    bodies = [{name: _value(dice) for name in dice.sample("abcdefg", dice.randrange(7))} for _ in range(120)]
    for start in range(0, 120, 30):
        pour_payloads(lake, "t", [json.dumps(body) for body in bodies[start : start + 30]])
        if dice.random() < 0.5:
            schema_of(lake, "t")  # at whatever moment it is learned
    schema, found = schema_of(lake, "t"), rows_of(lake, "t")
    for body, row in zip(bodies, found, strict=True):
        for name in "abcdefg":
            held = [(column, row[column.name]) for column in schema.columns if column.field == name]
            there = [(column, value) for column, value in held if value is not None]
            assert len(there) == (body.get(name) is not None)
            for column, value in there:
                assert _same(column.kind, value, body[name])
    assert {column.name: schema.rows(column) for column in schema.columns} == {
        column.name: sum(row[column.name] is not None for row in found) for column in schema.columns
    }


def _value(dice: random.Random) -> Any:
    return dice.choice(
        [None, True, "x", "1", "", dice.randrange(-5, 5), dice.randrange(2**52, 2**54), -(2**63),
         2**64 + dice.randrange(9), dice.random(), 1.0, 1e300, 2.0**60, {"b": [1.5, None]}, [], "é\U0001f600"]
    )  # fmt: skip


def _same(kind: str, value: Any, given: Any) -> bool:
    if kind == "json":
        return bool(json.loads(value) == given)
    if kind == "digits":
        return bool(value == str(given))
    same_type = isinstance(given, bool) == isinstance(value, bool) and isinstance(given, str) == isinstance(value, str)
    return same_type and (math.isclose(value, given, rel_tol=0) if isinstance(value, float) else value == given)


def test_each_file_is_looked_at_once_and_what_was_lost_is_learned_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake.create(tmp_path)
    looked: list[list[str]] = []
    real = learning._learned

    def counting(one: Lake, known: Schema, files: Any) -> Schema:
        looked.append([file.path for file in files])
        return real(one, known, files)

    monkeypatch.setattr(learning, "_learned", counting)
    for number in range(3):
        pour_payloads(lake, "t", [json.dumps({f"f{number}": number, "same": "x" * number or 1})])
        schema = schema_of(lake, "t")
        assert schema_of(Lake.open(tmp_path), "t") == schema
    assert [len(paths) for paths in looked] == [1, 1, 1]
    kept = tmp_path / "_penstock/schemas/t.json"
    kept.write_bytes(kept.read_bytes()[:30])
    assert schema_of(lake, "t") == schema
    assert len(looked[-1]) == 3
    kept.unlink()
    (tmp_path / "_penstock/schemas/.lock").unlink()
    (tmp_path / "_penstock/schemas").rmdir()
    (tmp_path / "_penstock/schemas").write_text("nothing can be written here")
    assert schema_of(lake, "t") == schema
    assert rows_of(lake, "t")[0]["f0"] == 0


def test_columns_stay_when_files_are_merged_or_dropped(tmp_path: Path) -> None:
    lake = Lake.create(tmp_path)
    for number in range(4):
        pour_payloads(lake, "t", [json.dumps({"x": number if number < 2 else "text"})])
    before = schema_of(lake, "t")
    compact(lake)
    after = schema_of(lake, "t")
    assert after.columns == before.columns == schema_of(Lake.open(tmp_path), "t").columns
    assert [after.rows(column) for column in after.columns] == [2, 2]
    assert list(after.files) == [file.path for file in lake.snapshot().of("raw")]
    assert list(json.loads((tmp_path / "_penstock/schemas/t.json").read_bytes())["files"]) == list(after.files)


def test_payloads_with_ever_new_fields_make_no_more_columns_than_are_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(schemas, "MOST_COLUMNS", 20)
    monkeypatch.setattr(learning, "MOST_COLUMNS", 20)
    monkeypatch.setattr("penstock.cli.lake_schema.MOST_COLUMNS", 20)
    lake = Lake.create(tmp_path)
    pour_payloads(lake, "t", [json.dumps({f"user-{n}": n, "always": "x", "nul\0": 1}) for n in range(100)])
    pour_payloads(lake, "t", [json.dumps({f"user-{n}": n, "always": n, "later": 1}) for n in range(100, 200)])
    schema = schema_of(lake, "t")
    assert len(schema.columns) == 20
    assert {column.name for column in schema.columns} >= {"always", "always__whole", "later"}
    typed = sum(schema.rows(column) for column in schema.columns)
    assert typed + schema.left_out == 100 * 3 + 100 * 3
    assert [row["always"] for row in rows_of(lake, "t")] == ["x"] * 100 + [None] * 100
    main(["lake", "schema", "t", "--lake", str(tmp_path)])
    told = capsys.readouterr()
    assert json.loads(told.out.splitlines()[1]) == {
        "field": "always", "column": "always", "type": "VARCHAR", "first_seen": "2026-03-01", "rows": 100,
    }  # fmt: skip
    assert told.err == (
        f"penstock: {schema.left_out} values are in no column, since there are at most 20: payload has them\n"
    )


def test_the_name_of_a_table_means_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lake = Lake.create(tmp_path)
    for topic in ("Raw", "metrics", "orders", "Orders"):
        pour_payloads(lake, topic, [json.dumps({"of": topic, "nothing": None})])
    pour_payloads(lake, "x", ["1"], table="metrics")
    assert len(tables.query(lake, "SELECT * FROM raw")) == 4
    assert tables.query(lake, 'SELECT payload FROM "metrics"').to_pylist() == [{"payload": "1"}]
    assert tables.query(lake, "SELECT of FROM orders").to_pylist() == [{"of": "orders"}]
    assert tables.query(lake, "SELECT of FROM Orders").to_pylist() == [{"of": "Orders"}]
    assert len(tables.query(lake, "SUMMARIZE orders")) > 10
    main(["lake", "schema", "metrics", "--lake", str(tmp_path), "-o", "csv"])
    told = capsys.readouterr()
    assert told.out.splitlines() == [
        "field,column,type,first_seen,rows", "of,of,VARCHAR,2026-03-01,1", "nothing,,null,,1",
    ]  # fmt: skip
    assert "the lake has a table 'metrics', which that name means" in told.err


def test_a_query_about_other_tables_looks_at_no_payload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = Lake.create(tmp_path)
    pour_payloads(lake, "orders", ['{"a":1}'])
    monkeypatch.setattr(learning, "_learned", None)
    assert len(tables.query(lake, "SELECT payload FROM raw WHERE topic = 'orders' -- orders")) == 1
    with pytest.raises(TypeError):
        tables.query(lake, "SELECT a FROM orders")


def test_what_cannot_be_read_is_told_with_its_name(tmp_path: Path) -> None:
    lake = Lake.create(tmp_path)
    with pytest.raises(LakeError, match="no messages of topic 'orders'"):
        schema_of(lake, "orders")
    pour_payloads(lake, "orders", ['{"a":1}'])
    (file,) = lake.snapshot().of("raw")
    whole = (tmp_path / file.path).read_bytes()
    (tmp_path / file.path).write_text("no Parquet any more")
    for act in (
        lambda: schema_of(lake, "orders"),
        lambda: tables.query(lake, "SELECT * FROM raw"),
        lambda: compact(lake),
    ):
        with pytest.raises(LakeError, match=file.path.rpartition("/")[2]):
            act()
    (tmp_path / file.path).write_bytes(whole)
    assert rows_of(lake, "orders")[0]["a"] == 1
