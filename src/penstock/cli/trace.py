"""`penstock trace`: the life of one message, from a lake and, if asked, from the server. Needs no Spark."""

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from penstock.backend.address import Address, parse
from penstock.backend.embedded import EmbeddedServer
from penstock.backend.redis.blocking import BlockingLink
from penstock.cli.moments import Span
from penstock.cli.printing import Form, print_rows
from penstock.errors import LakeError
from penstock.lake import Lake
from penstock.lake.trace import WITHIN, Event
from penstock.lake.trace import trace as life_of
from penstock.message.ids import canonical
from penstock.whereabouts import whereabouts

_COLUMNS = ("at", "what", "topic", "group", "entry_id", "attempt", "detail", "source")


def trace(
    id: str,
    /,
    *,
    lake: Path,
    url: str | None = None,
    journal: str = "journal",
    within: Span = WITHIN,
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
    """
    opened = Lake.open(lake)
    found = life_of(opened, canonical(id) or id, journal=journal, within=within)
    if url is not None:
        found = found.beside(_on_server(parse(url, source="option --url"), found.id, found.entries))
    if found.events:
        print_rows(map(asdict, found.events), output, _COLUMNS)
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
