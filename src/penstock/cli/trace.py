"""`penstock trace`: the life of one message, from the server, from a lake, or from both. Needs no Spark."""

import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from penstock.cli.dialects import Dialect
from penstock.cli.given import uuid_given
from penstock.cli.moments import Span
from penstock.cli.printing import Form, print_rows
from penstock.cli.seeing import NAME_ITS_TOPIC, seen_on, told
from penstock.cli.servers import HERE, At, Server
from penstock.cli.usage import UsageError

_COLUMNS = ("at", "what", "topic", "group", "entry_id", "attempt", "detail", "source")


def trace(
    id: str,
    /,
    *topics: str,
    lake: Path | None = None,
    journal: str | None = None,
    within: Span | None = None,
    dialect: Dialect = "native",
    output: Form = None,
    server: At = HERE,
) -> None:
    """Say what became of a message: published, tried, dead, replayed, in order of time, and where each is written.

    Without a lake the server is asked; with one, the server is asked too if --url or --context names it.

    Parameters
    ----------
    id
        The message's UUID.
    topics
        Look on these, on their partitions and on the lanes of such queues; on every known topic unless given. Only
        where topics are named they are looked through entry by entry, among the last 100,000: for a UUID that tells no
        time, or a message that was published for later.
    lake
        The directory of a lake, which remembers more than the server does, and for longer.
    journal
        The topic with the journal of attempts, if it is in the lake; journal unless given.
    within
        How long after its publication attempts are looked for in the journal, a day unless given; of a message that
        died, up to the end.
    """
    uuid = uuid_given(id)
    if lake is not None:
        if not _is_asked(server) and (topics or dialect != "native"):
            raise UsageError(
                "topics and --dialect say how the server is asked, and beside --lake it is asked only if --url or"
                " --context names it."
            )
        terms = {"journal": journal, "within": within}
        _from_lake(uuid, lake, server, terms, {"topics": topics, "dialect": dialect}, output)
        return
    if journal is not None or within is not None:
        raise UsageError("--journal and --within say how the journal of a lake is read: name the lake with --lake.")
    seen = seen_on(server, uuid, topics=topics, dialect=dialect)
    told(
        seen.sightings,
        seen.unseen,
        f"nothing was found of message {uuid} on the server",
        "it was settled and trimmed, or never published",
        "a lake may remember it, see --lake",
        "" if topics else NAME_ITS_TOPIC,
    )
    told_in_order = sorted(seen.sightings, key=lambda one: (one.what == "now", one.at))
    print_rows([{**asdict(one), "source": "server"} for one in told_in_order], output, _COLUMNS)


def _is_asked(server: Server) -> bool:
    """Beside a lake."""
    return server.url is not None or server.context is not None


def _from_lake(
    id: str, path: Path, server: Server, terms: dict[str, Any], asked: dict[str, Any], output: str | None
) -> None:
    from penstock.lake import Lake
    from penstock.lake.trace import Event
    from penstock.lake.trace import trace as life_of

    lake = Lake.open(path)
    found = life_of(lake, id, **{name: value for name, value in terms.items() if value is not None})
    unseen: Mapping[str, str] = {}
    is_asked = _is_asked(server)
    if is_asked:
        seen = seen_on(server, found.id, known=found.entries, **asked)
        unseen = seen.unseen
        found = found.beside([Event(**asdict(one), source="server") for one in seen.sightings])
    cost = f"{found.opened:,} of {found.files:,} files of the lake were opened"
    nor = f", nor on the server{', as far as it was looked for there' if unseen else ''}" if is_asked else ""
    missing = f"message {found.id} is not in the lake {lake.path}, as far as it was archived{nor}"
    told(found.events, unseen, missing, "", cost)
    print_rows(map(asdict, found.events), output, _COLUMNS)
    print(cost, file=sys.stderr)
