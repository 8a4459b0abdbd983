"""`penstock get`: one message, by its id."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.cli.dialects import Dialect
from penstock.cli.given import id_given, is_entry_id
from penstock.cli.looking import named_there
from penstock.cli.messages import WHOLE, facts_of, printing_messages
from penstock.cli.printing import Form, chosen, print_one
from penstock.cli.seeing import NAME_ITS_TOPIC, seen_on, told
from penstock.cli.servers import HERE, At, ask
from penstock.cli.usage import NotThereError

if TYPE_CHECKING:
    from penstock.app import Penstock
    from penstock.backend.entry import Stored
    from penstock.whereabouts.sighting import Whereabouts

_NAMED = 3


def get(id: str, /, *topics: str, dialect: Dialect = "native", output: Form = None, server: At = HERE) -> None:
    """Show a message, wherever it is on the topics. See penstock trace for what became of it.

    One that is on no topic, because it waits until it is due, is to be tried again, or died, is not shown: where it is
    then is said.

    Parameters
    ----------
    id
        The message's UUID, or the entry id of where it is.
    topics
        Look on these, on their partitions and on the lanes of such queues; on every known topic unless given. Only
        where topics are named, a UUID that tells no time is looked for entry by entry, among the last 100,000.
    """
    wanted = id_given(id)
    found, unseen = ask(server, lambda app: _everywhere(app, wanted, topics, dialect))
    if not found and not is_entry_id(wanted):
        _refuse_if_elsewhere(seen_on(server, wanted, topics=topics, dialect=dialect))
    told(
        found,
        unseen,
        f"{id} is in no topic, as far as it was looked for",
        "it was trimmed or deleted, or never was there",
        "" if topics or is_entry_id(wanted) else NAME_ITS_TOPIC,
    )
    _show(found, dialect, output)


async def _everywhere(
    app: "Penstock", id: str, topics: Sequence[str], dialect: str
) -> "tuple[list[tuple[str, Stored]], dict[str, str]]":
    """Its entries, each with its topic, and the topics that could not be looked at."""
    from penstock.backend.entry import Stored
    from penstock.backend.in_turn import in_turn
    from penstock.errors import TopicError
    from penstock.message.wire import Wire
    from penstock.whereabouts.finder import Found, find, looked_on

    if is_entry_id(id):
        where = Found({topic: [id] for topic in await looked_on(app.backend, topics)}, {})
    else:
        where = await find(app.backend, id, topics, Wire(dialect))
    places, unseen = [(topic, entry) for topic, ids in where.entries.items() for entry in ids], dict(where.unseen)

    async def read(place: tuple[str, str]) -> "Stored | None":
        try:
            entries = await app.backend.read_range(place[0], place[1], place[1], 1)
        except TopicError as error:
            if topics:
                raise
            unseen[place[0]] = str(error)
            return None
        return Stored(entries[0].id, list(entries[0].raw)) if entries else None

    entries = zip(places, await in_turn(places, read), strict=True)
    found = [(topic, entry) for (topic, _), entry in entries if entry is not None]
    if not found:
        await named_there(app, topics)
    return found, unseen


def _refuse_if_elsewhere(seen: "Whereabouts") -> None:
    """`NotThereError` that says where it is, if the server has it beside the topics."""
    from penstock.diagnosis.finding import command, place
    from penstock.whereabouts.sighting import NotDue, Unsettled

    held = [one for one in seen.sightings if one.letter_id is not None or isinstance(one, NotDue | Unsettled)]
    if not held:
        return
    letters = [(one.topic, one.letter_id) for one in held if one.letter_id is not None]
    places = [f"{place(one.topic, one.group)}: {one.detail}" for one in held[:_NAMED]]
    if len(held) > _NAMED:
        places.append(f"and {len(held) - _NAMED:,} more")
    shown = f"; {command('dead', 'show', *letters[0])} shows the dead letter" if letters else ""
    known = command("trace", seen.id, *dict.fromkeys(one.topic for one in held))
    raise NotThereError(
        f"{seen.id} is on no topic now, but the server has it: {'; '.join(places)}{shown}; what became of it: {known}"
    )


def _show(found: "list[tuple[str, Stored]]", dialect: str, output: str | None) -> None:
    from penstock.message.wire import Wire
    from penstock.tail.opening import opened_together

    wire = Wire(dialect)
    opened = [(topic, entry, opened_together(wire, topic, [entry])[0]) for topic, entry in found]
    if chosen(output) == "table":
        for number, (topic, entry, one) in enumerate(opened):
            print("\n" if number else "", end="")
            print_one(facts_of(topic, entry, one), output)
        return
    with printing_messages(output, WHOLE) as printer:
        for topic, entry, one in opened:
            printer.show(topic, [entry], [one])
