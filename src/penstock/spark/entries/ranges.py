"""A range of a stream as Arrow batches; while one is built, the server makes the next page."""

from collections.abc import Callable, Iterator
from typing import TypeVar

import pyarrow as pa

from penstock.backend.address import Address
from penstock.spark.entries.columns import Columns
from penstock.spark.entries.fetching import Fetching
from penstock.spark.entries.page import Page

Built = TypeVar("Built")


def read_counted(
    address: Address, stream: str, after: str, upto: str, columns: Columns
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The entries in (after, upto], in order: batches, empty ones too, each with the number of entries it is made from.

    A server that goes away is waited for, then read on from the last entry that was handed out. Raises what the server
    says otherwise, and `MalformedError` in mode `failfast`.
    """
    return _each(Fetching(address, stream, after, upto), lambda page: (page.count, columns.batch(stream, page)))


def walk_ids(address: Address, stream: str, after: str, upto: str) -> Iterator[tuple[pa.Array, int]]:
    """Page by page the ids in (after, upto], in order, and how many bytes their entries have in a reply."""
    return _each(Fetching(address, stream, after, upto), lambda page: (page.ids(), len(page.reply)))


def _each(fetching: Fetching, build: Callable[[Page], Built]) -> Iterator[Built]:
    try:
        while (page := fetching.next_page()) is not None:
            fetching.ask_ahead()
            built = build(page)
            # The buffer cannot grow for the next page while this one looks at it.
            del page
            yield built
    finally:
        fetching.close()
