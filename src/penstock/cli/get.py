"""`penstock get`: one message, by its id."""

import asyncio
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.cli.messages import printing_messages
from penstock.cli.printing import Form
from penstock.cli.servers import HERE, At, ask
from penstock.cli.tail import Dialect
from penstock.cli.usage import NotThereError, UsageError
from penstock.errors import CursorNotFoundError, TopicError
from penstock.message.ids import canonical

if TYPE_CHECKING:
    from penstock.app import Penstock
    from penstock.backend.entry import Stored
    from penstock.message.wire import Wire

_ENTRY_ID = re.compile(r"[0-9]{1,20}-[0-9]{1,20}")
_AT_ONCE = 16


def get(id: str, /, *topics: str, dialect: Dialect = "native", output: Form = None, server: At = HERE) -> None:
    """Show a message, wherever it is on the topics. See penstock trace for what became of it.

    Parameters
    ----------
    id
        The message's UUID, or the entry id of where it is.
    topics
        Look on these; on every known one unless given. Only where topics are named, a UUID that tells no time is looked
        for entry by entry, among the last 100,000.
    """
    wanted = canonical(id) or (id if _ENTRY_ID.fullmatch(id) else None)
    if wanted is None:
        raise UsageError(f"{id!r} is neither an entry id nor a message's UUID: give an entry id or a message's UUID.")
    found = ask(server, lambda app: _everywhere(app, wanted, topics, dialect))
    if not found:
        raise NotThereError(f"{id} is in no topic that was looked at: it was trimmed or deleted, or never was there")
    _show(found, dialect, output)


async def _everywhere(app: "Penstock", id: str, topics: Sequence[str], dialect: str) -> "list[tuple[str, Stored]]":
    from penstock.message.wire import Wire

    names, wire, found = list(topics) or await app.backend.topics(), Wire(dialect), []
    for start in range(0, len(names), _AT_ONCE):
        some = names[start : start + _AT_ONCE]
        entries = await asyncio.gather(*(_on(app, topic, id, wire, thorough=bool(topics)) for topic in some))
        found += [(topic, entry) for topic, entry in zip(some, entries, strict=True) if entry is not None]
    return found


async def _on(app: "Penstock", topic: str, id: str, wire: "Wire", *, thorough: bool) -> "Stored | None":
    from penstock.backend.entry import Stored
    from penstock.events import Listeners
    from penstock.tail.search import Search

    try:
        if not _ENTRY_ID.fullmatch(id):
            id = (await Search(app.backend, topic, wire, Listeners()).find(id, scan=thorough)).id
        entries = await app.backend.read_range(topic, id, id, 1)
    except CursorNotFoundError:
        return None
    except TopicError:
        if thorough:
            raise
        return None  # one that cannot be looked at keeps no other from being found
    return Stored(entries[0].id, list(entries[0].raw)) if entries else None


def _show(found: "list[tuple[str, Stored]]", dialect: str, output: str | None) -> None:
    from penstock.message.wire import Wire
    from penstock.tail.opening import opened_together

    wire = Wire(dialect)
    with printing_messages(output, one_topic=False) as printer:
        for topic, entry in found:
            printer.show(topic, [entry], opened_together(wire, topic, [entry]))
