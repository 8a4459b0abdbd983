"""What is on a topic, put into a lake as an archive would, without Spark."""

import json
from datetime import datetime
from typing import NamedTuple

import redis

from penstock.backend.facts import position, written_at
from penstock.lake import Lake
from tests.lake.pouring import pour


class Archived(NamedTuple):
    """An entry, with what `pour` asks of a row."""

    topic: str
    entry_id: str
    id: str

    @property
    def number(self) -> int:
        return position(self.entry_id)[1]

    @property
    def ts(self) -> datetime:
        moment = written_at(self.entry_id)
        assert moment is not None
        return moment

    @property
    def day(self) -> str:
        return self.ts.date().isoformat()


def archive(client: "redis.Redis", lake: Lake, topic: str) -> None:
    """Every entry that is there now, and beside each one of topic `other` with the same id."""
    for id, fields in client.xrange(topic):
        for name in (topic, "other"):
            row = Archived(name, id.decode(), fields[b"id"].decode())
            pour(lake, [row], payload=fields[b"payload"].decode())


def numbers(client: "redis.Redis", stream: str) -> list[int]:
    """The bodies on a stream that look like `{"n": 1}`."""
    return [json.loads(fields[b"payload"])["n"] for _, fields in client.xrange(stream)]
