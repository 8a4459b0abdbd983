"""`penstock why`: why something is stuck, and what to do about it."""

from datetime import timedelta
from typing import TYPE_CHECKING

from penstock.cli.findings import print_findings
from penstock.cli.moments import Span
from penstock.cli.printing import Form
from penstock.cli.servers import HERE, At, Server, ask
from penstock.cli.usage import NotThereError
from penstock.message.ids import canonical

if TYPE_CHECKING:
    from penstock.app import Penstock
    from penstock.diagnosis.case import Patience
    from penstock.diagnosis.diagnosis import Diagnosis
    from penstock.diagnosis.finding import Finding


def why(target: str, /, *, quiet: Span = timedelta(minutes=2), output: Form = None, server: At = HERE) -> None:
    """Say why a topic, a queue, a group or a message does not get on: what is seen, and what mends it.

    Exit code 0: nothing keeps it. 1: something does. Nothing is changed.

    Parameters
    ----------
    target
        TOPIC, QUEUE, TOPIC/GROUP, or a message's UUID.
    quiet
        Who was silent for longer is taken for dead.
    """
    from penstock.diagnosis.case import Patience
    from penstock.diagnosis.diagnosis import Diagnosis

    id, patience = canonical(target), Patience(quiet=quiet)
    if id is not None:
        found = _of_message(server, id, patience)
    else:
        found = ask(server, lambda app: _of_topic(app, Diagnosis(app.backend, patience), target))
    print_findings(found, output, fine=f"nothing keeps {target}")


async def _of_topic(app: "Penstock", diagnosis: "Diagnosis", target: str) -> "list[Finding]":
    # A stream that was adopted may have a slash in its name; one that Penstock made has none.
    topic, slash, group = target.partition("/")
    if slash and (await app.backend.inspect(target)).exists:
        return await diagnosis.why(target)
    return await diagnosis.why(topic, group or None)


def _of_message(server: Server, id: str, patience: "Patience") -> "list[Finding]":
    from penstock.cli.seeing import seen_on
    from penstock.diagnosis import message_rules
    from penstock.diagnosis.diagnosis import Diagnosis

    seen = seen_on(server.address(), id)
    if not seen:
        raise NotThereError(
            f"message {id} is on no topic of {server.address()}: it was trimmed or never published, or its id tells no"
            " time; what was archived of it: penstock trace"
        )
    found = [finding for rule in message_rules.RULES for finding in rule(seen)]
    places = message_rules.places(seen)

    async def reasons(app: "Penstock") -> "list[Finding]":
        diagnosis = Diagnosis(app.backend, patience)
        return [finding for place in places for finding in await diagnosis.why(*place)]

    more = ask(server, reasons) if places else []
    return found + [finding for number, finding in enumerate(more) if finding not in more[:number]]
