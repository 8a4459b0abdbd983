"""`penstock why`: why something is stuck, and what to do about it."""

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from penstock.cli.dialects import Dialect
from penstock.cli.findings import print_findings
from penstock.cli.moments import Span
from penstock.cli.printing import Form
from penstock.cli.seeing import NAME_ITS_TOPIC, seen_on, told
from penstock.cli.servers import HERE, At, Server, ask
from penstock.cli.usage import UsageError
from penstock.errors import GroupMissingError
from penstock.message.ids import canonical

if TYPE_CHECKING:
    from penstock.app import Penstock
    from penstock.diagnosis.case import Patience
    from penstock.diagnosis.diagnosis import Diagnosis
    from penstock.diagnosis.finding import Finding
    from penstock.whereabouts.sighting import Whereabouts


def why(
    target: str,
    /,
    *topics: str,
    quiet: Span = timedelta(minutes=2),
    dialect: Dialect = "native",
    output: Form = None,
    server: At = HERE,
) -> None:
    """Say why a topic, a queue, a group or a message does not get on: what is seen, and what mends it.

    Exit code 0: nothing keeps it. 1: something does, or nobody can tell. Nothing is changed.

    Parameters
    ----------
    target
        TOPIC, QUEUE, TOPIC/GROUP, or a message's UUID.
    topics
        For a message: look on these, on their partitions and on the lanes of such queues, entry by entry among the last
        100,000; on every known topic, where it can be found at once, unless given.
    quiet
        Who was silent for longer is taken for dead.
    """
    from penstock.diagnosis.case import Patience

    id, patience, fine = canonical(target), Patience(quiet=quiet), f"nothing keeps {target}"
    if id is None and topics:
        raise UsageError(f"{target!r} is no UUID of a message: the topics say where a message is looked for.")
    if id is not None:
        seen = seen_on(server, id, topics=topics, dialect=dialect)
        told(
            seen.sightings,
            seen.unseen,
            f"message {id} was found on no topic of {server.address()}",
            "it was trimmed or never published",
            "" if topics else NAME_ITS_TOPIC,
            "what was archived of it: penstock trace",
        )
        found = _of_message(server, seen, patience, dialect)
        fine += ", as far as it could be looked for" if seen.unseen else ""
    else:
        found = ask(server, lambda app: _of_topic(app, target, patience, dialect))
    if any(one.rule == "nobody-reads" for one in found):
        fine = f"nothing has kept {target} for long"
    print_findings(found, output, fine=fine)


async def _of_topic(app: "Penstock", target: str, patience: "Patience", dialect: str) -> "list[Finding]":
    # A stream that was adopted may have a slash in its name; one that Penstock made has none.
    topic, slash, group = target.partition("/")
    diagnosis = _diagnosis(app, [topic, target], patience, dialect)
    if slash and (await app.backend.inspect(target)).exists:
        return await diagnosis.why(target)
    return await diagnosis.why(topic, group or None)


def _of_message(server: Server, seen: "Whereabouts", patience: "Patience", dialect: str) -> "list[Finding]":
    from penstock.diagnosis import message_rules

    found = [finding for rule in message_rules.RULES for finding in rule(seen)]
    places = message_rules.places(seen)

    async def reasons(app: "Penstock") -> "list[Finding]":
        diagnosis = _diagnosis(app, [topic for topic, _ in places], patience, dialect)
        found: list[Finding] = []
        for topic, group in places:
            try:
                found += await diagnosis.why(topic, group)
            except GroupMissingError:  # all that waited for it was settled or removed since it was seen
                continue
        return found

    more = ask(server, reasons) if places else []
    return found + [finding for number, finding in enumerate(more) if finding not in more[:number]]


def _diagnosis(app: "Penstock", topics: Sequence[str], patience: "Patience", dialect: str) -> "Diagnosis":
    """One that reads these topics in the way they are written."""
    from penstock.diagnosis.diagnosis import Diagnosis
    from penstock.message.wire import Wire

    return Diagnosis(app.backend.speaking({topic: Wire(dialect) for topic in topics}), patience)
