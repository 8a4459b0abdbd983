"""`penstock trace`: the life of one message, from a lake and, if asked, from the server. Needs no Spark."""

import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.backend.address import Address, parse
from penstock.backend.embedded import EmbeddedServer
from penstock.backend.redis.blocking import BlockingLink
from penstock.cli.lake import Form
from penstock.cli.printing import print_table
from penstock.errors import LakeError
from penstock.lake import Lake
from penstock.lake.trace import WITHIN, Event
from penstock.lake.trace import trace as life_of
from penstock.message.ids import canonical
from penstock.whereabouts import whereabouts

_SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("at", "what", "topic", "group", "entry_id")),
        ("attempt", pa.int64()),
        *((name, pa.string()) for name in ("detail", "source")),
    ]
)


def trace(
    id: str,
    /,
    *,
    lake: Path,
    url: str | None = None,
    journal: str = "journal",
    within: timedelta = WITHIN,
    output: Form = None,
) -> None:
    """Say what became of a message: published, tried, dead, replayed, in order of time, and where each is written.

    Parameters
    ----------
    id
        The message's UUID.
    lake
        The lake's directory.
    url
        A server, to say also where the message is now. Nothing is changed there.
    journal
        The topic with the journal of attempts, if it is in the lake.
    within
        How long after its publication attempts are looked for in the journal; of a message that died, up to the end.
    output
        table, json (one object per line) or csv; a table on a terminal, else json, unless given.
    """
    opened = Lake.open(lake)
    found = life_of(opened, canonical(id) or id, journal=journal, within=within)
    if url is not None:
        found = found.beside(_on_server(parse(url, source="option --url"), found.id, found.entries))
    if found.events:
        print_table(_table(found.events), output)
    cost = f"{found.opened:,} of {found.files:,} files of the lake were opened"
    if not found.events:
        place = "the lake" if url is None else "the lake, nor on the server,"
        raise LakeError(f"message {found.id} is not in {place} {opened.path} as far as it was archived; {cost}")
    print(cost, file=sys.stderr)


def _on_server(address: Address, id: str, known: Sequence[tuple[str, str]]) -> list[Event]:
    if address.kind == "embedded":
        with EmbeddedServer.start(address.directory, ephemeral=address.ephemeral) as server:
            return _on_server(parse(server.url), id, known)
    with BlockingLink.open(address) as link:
        return [Event(**asdict(sighting), source="server") for sighting in whereabouts(link, id, known)]


def _table(events: Sequence[Event]) -> Any:
    rows = [{**asdict(event), "at": _shown(event.at)} for event in events]
    return pa.Table.from_pylist(rows, _SCHEMA)


def _shown(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
