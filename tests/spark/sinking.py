"""The sink without Spark: an attempt is a call, and what Spark would do with its tasks is done by the test."""

import contextlib
import json
import random
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from itertools import count
from typing import Any
from uuid import UUID

import pyarrow as pa
import redis

from penstock.backend.address import parse
from penstock.spark.connection.server import Server as Where
from penstock.spark.options.sink import SinkOptions
from penstock.spark.sink.completion import Written
from penstock.spark.sink.delivery import Attempt
from penstock.spark.sink.writers import Sink
from tests.support.servers import Server

_tokens = count()


def uuid(number: int) -> str:
    return str(UUID(int=number, version=4))


def batch_of(numbers: Iterable[int], **columns: Sequence[Any]) -> Any:
    """Rows with an id and a payload that tells their number."""
    numbers = list(numbers)
    rows = {"id": list(map(uuid, numbers)), "payload": [json.dumps({"n": number}) for number in numbers]}
    return pa.record_batch({name: pa.array(values) for name, values in {**rows, **columns}.items()})


def rows_for(delivery: str, numbers: Iterable[int], **columns: Sequence[Any]) -> Any:
    """As `batch_of`, with the entry ids that a delivery may need."""
    numbers = list(numbers)
    extra = {"entry_id": [f"{number + 1}-0" for number in numbers]} if delivery == "explicit_id" else {}
    return batch_of(numbers, **extra, **columns)


class Writing:
    """One query of one delivery against one stream."""

    def __init__(self, server: Server, topic: str | None, delivery: str, query: str = "q", **options: str) -> None:
        where = {} if topic is None else {"topic": topic}
        parsed = SinkOptions.parse({"url": server.url, "delivery": delivery, "window": "10", **where, **options})
        self.sink = Sink(parsed, Where(parse(server.url)))
        self.query = query

    def attempt(self, batch: int = 0, part: int = 0) -> Attempt:
        return Attempt(self.query, batch, part, f"token{next(_tokens)}", self.sink.remember_ms)

    def write(self, *batches: Any, batch: int = 0, part: int = 0) -> Written:
        return self.sink.write(self.attempt(batch, part), iter(batches))

    def write_and_die(self, *batches: Any, batch: int = 0, part: int = 0) -> None:
        """An attempt that ends when it has sent `batches`, with replies still on their way."""

        def rows() -> Iterator[Any]:
            yield from batches
            raise _Killed

        with contextlib.suppress(_Killed):
            self.sink.write(self.attempt(batch, part), rows())

    def commit(self, *written: Written) -> None:
        self.sink.finish(list(written))


class _Killed(Exception):
    pass


def numbers_in(admin: "redis.Redis", topic: str) -> list[int]:
    return [json.loads(fields[b"payload"])["n"] for _, fields in admin.xrange(topic)]


def shuffled(numbers: Iterable[int], seed: int) -> list[int]:
    mixed = list(numbers)
    random.Random(seed).shuffle(mixed)
    return mixed


A_DAY = int(timedelta(days=1) / timedelta(milliseconds=1))
