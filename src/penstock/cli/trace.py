"""`penstock trace`: the life of one message, from the server, from a lake, or from both. Needs no Spark."""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from penstock.cli.moments import Span
from penstock.cli.printing import Form, print_rows
from penstock.cli.servers import HERE, At, Server
from penstock.cli.usage import NotThereError, UsageError
from penstock.message.ids import canonical

_COLUMNS = ("at", "what", "topic", "group", "entry_id", "attempt", "detail", "source")


def trace(
    id: str,
    /,
    *,
    lake: Path | None = None,
    journal: str = "journal",
    within: Span | None = None,
    output: Form = None,
    server: At = HERE,
) -> None:
    """Say what became of a message: published, tried, dead, replayed, in order of time, and where each is written.

    Without a lake the server is asked; with one, the server is asked too if --url or --context names it.

    Parameters
    ----------
    id
        The message's UUID.
    lake
        The directory of a lake, which remembers more than the server does, and for longer.
    journal
        The topic with the journal of attempts, if it is in the lake.
    within
        How long after its publication attempts are looked for in the journal, a day unless given; of a message that
        died, up to the end.
    """
    uuid = canonical(id)
    if uuid is None:
        raise UsageError(f"{id!r} is no UUID of a message.")
    if lake is not None:
        terms = {"journal": journal} if within is None else {"journal": journal, "within": within}
        _from_lake(uuid, lake, server, terms, output)
        return
    from penstock.cli.seeing import seen_on

    found = [{**asdict(one), "source": "server"} for one in seen_on(server.address(), uuid)]
    if not found:
        raise NotThereError(
            f"the server knows nothing of message {uuid}: it was settled and trimmed, or never published; a lake may"
            " remember it, see --lake"
        )
    print_rows(found, output, _COLUMNS)


def _from_lake(id: str, path: Path, server: Server, terms: dict[str, Any], output: str | None) -> None:
    from penstock.cli.seeing import seen_on
    from penstock.lake import Lake
    from penstock.lake.trace import Event
    from penstock.lake.trace import trace as life_of

    lake = Lake.open(path)
    found = life_of(lake, id, **terms)
    is_asked = server.url is not None or server.context is not None
    if is_asked:
        sightings = seen_on(server.address(), found.id, found.entries)
        found = found.beside([Event(**asdict(one), source="server") for one in sightings])
    cost = f"{found.opened:,} of {found.files:,} files of the lake were opened"
    if not found.events:
        place = "the lake, nor on the server," if is_asked else "the lake"
        raise NotThereError(f"message {found.id} is not in {place} {lake.path} as far as it was archived; {cost}")
    print_rows(map(asdict, found.events), output, _COLUMNS)
    print(cost, file=sys.stderr)
