"""Schemas and choices that cannot be served are refused where they are made, by name."""

import pytest
from pyspark.sql.types import StructType

from penstock.errors import ConfigurationError
from penstock.spark.entries.columns import Columns
from penstock.spark.options.schemas import check_schema, default_schema
from tests.spark.ddl import schema


@pytest.mark.parametrize(
    ("layout", "wanted", "complaint"),
    [
        ("envelope", "body string", "layout=envelope has no column 'body': choose among stream, entry_id"),
        ("envelope", "id bigint", "column 'id' cannot be bigint: it must be string"),
        ("envelope", "payload int", "column 'payload' cannot be int: it must be string, binary, variant, or a struct"),
        ("envelope", "payload struct<x:binary>", "column 'payload' cannot be struct<x:binary>"),
        ("envelope", "headers map<string,binary>", "it must be map<string,string>"),
        ("envelope", "id string, id string", "names the column 'id' twice"),
        ("envelope", "id string not null", "column 'id' is declared NOT NULL"),
        ("raw", "id string", "layout=raw has no column 'id': choose among stream, entry_id, ts, fields"),
        ("flat", "n int", "column 'n' cannot be int: it must be string, binary, bigint, double or boolean"),
        ("flat", "ts string", "column 'ts' cannot be string: it must be timestamp"),
    ],
)
def test_a_schema_that_cannot_be_filled_is_refused_by_name(layout: str, wanted: str, complaint: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        Columns.of(schema(wanted), layout=layout, dialect="native", mode="permissive")
    assert complaint in str(refused.value)


@pytest.mark.parametrize(
    ("option", "complaint"),
    [
        ({"layout": "table"}, "option layout is 'table': it must be one of envelope, raw, flat"),
        ({"dialect": "xml"}, "option dialect is 'xml': it must be one of native, cloudevents"),
        ({"mode": "PERMISSIVE"}, "option mode is 'PERMISSIVE': it must be one of permissive, dropmalformed, failfast"),
    ],
)
def test_an_unknown_choice_is_refused_with_the_known_ones(option: dict[str, str], complaint: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        Columns.of(schema("id string"), **{"layout": "envelope", "dialect": "native", "mode": "failfast"} | option)
    assert complaint in str(refused.value)


def test_an_empty_schema_and_a_flat_layout_without_one_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="no column"):
        Columns.of(StructType([]), layout="envelope", dialect="native", mode="failfast")
    with pytest.raises(ConfigurationError, match="add \\.schema"):
        default_schema("flat")


@pytest.mark.parametrize("layout", ["envelope", "raw"])
def test_the_default_schema_of_a_layout_is_one_it_accepts(layout: str) -> None:
    check_schema(default_schema(layout), layout)
