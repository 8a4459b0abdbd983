"""Lets Spark find `format("penstock")` by itself: it looks for `DefaultSource` in every module named `pyspark_*`."""

from typing import Any


def __getattr__(name: str) -> Any:
    if name != "DefaultSource":
        raise AttributeError(f"module 'pyspark_penstock' has no attribute {name!r}")
    try:
        from penstock.spark.data_source import PenstockSource
    except ModuleNotFoundError as error:
        # Any other error than AttributeError would break the lookup of everybody else's data sources too.
        raise AttributeError(f"{error}; `penstock spark doctor` says what is missing") from error
    return PenstockSource
