"""Messages to one group of a topic: onto its retry stream, as a replay. No other group sees anything of it.

The group takes each for a first attempt under the replay's id, which is part of every dedupe key: it is handled again
even where the group remembers that it was handled before.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec
import pyarrow as pa

from penstock.backend import keys
from penstock.backend.parcel import Record
from penstock.backend.redis import scripts
from penstock.backend.redis.blocking import BlockingLink
from penstock.errors import GroupMissingError
from penstock.message import fields
from penstock.spark.connection.driver_link import pairs
from penstock.spark.sink.columns_taken import check_values
from penstock.spark.sink.completion import Written
from penstock.spark.sink.deliveries import Batch
from penstock.spark.sink.delivery import Attempt
from penstock.spark.sink.envelopes import packer
from penstock.spark.sink.outflow import Outflow
from penstock.spark.sink.rows import Rows, windows
from penstock.spark.sink.writers import Sink


def open_retry_stream(link: BlockingLink, topic: str, group: str) -> None:
    """Make sure that the group will read its retry stream from the beginning."""
    retry = keys.retry(topic, group)
    names = [retry, keys.steals(topic, group), keys.groups(topic)]
    doing = f"cannot open the retry stream of group {group!r} of {topic!r}"
    link.script(doing, scripts.load("create_group"), names, group, "0", 1)


def check_group(link: BlockingLink, topic: str, group: str) -> None:
    """`GroupMissingError` if the topic has no such group."""
    doing = f"cannot replay to group {group!r} of topic {topic!r}"
    try:
        found = [pairs(row)["name"] for row in link.command(doing, "XINFO", "GROUPS", topic)]
    except GroupMissingError:
        raise GroupMissingError(f"{doing}: there is no such topic on the server; check the name and the URL") from None
    if group not in found:
        others = ", ".join(sorted(set(found) - {keys.OWN_GROUP})) or "none"
        raise GroupMissingError(
            f"{doing}: the topic has no such group (it has: {others}); check the name, or start a worker of that group"
            " first, which creates it"
        )


def write_to_group(sink: Sink, attempt: Attempt, batches: Iterator[Any], stream: str, replay: str) -> Written:
    """Write rows with `entry_id` beside their envelope to a retry stream; all of them are there when this returns."""
    pack, mode = packer(sink.options.layout, sink.options.dialect), Batch(attempt)
    with Outflow(sink.server.for_executor(), mode) as out:
        for batch in batches:
            check_values(batch, ("id", "entry_id"))
            for _, window in windows(batch, stream, sink.options.window or mode.window):
                out.write(_with_records(pack(stream, window), window.column("entry_id"), replay))
        out.finish()
        return Written(attempt, dict(out.rows), tuple(mode.newest.values()))


def _with_records(rows: Rows, entry_ids: Any, replay: str) -> Rows:
    """The rows with what a retry stream's entry remembers, which is its last field."""
    now = datetime.now(UTC)
    records = [msgspec.json.encode(Record(id, 1, now, replay=replay, replays=1)) for id in entry_ids.to_pylist()]
    return rows.with_field(fields.DELIVERY, pa.array(records, pa.binary()))
