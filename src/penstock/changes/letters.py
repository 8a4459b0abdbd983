"""What is kept of a message that a change stream gives up."""

import traceback
from datetime import UTC, datetime

from penstock.backend.entry import ClaimedMessage, DeadLetter, Malformed, PartialDeliveryState, Stored
from penstock.backend.turn import IN_SEQUENCE
from penstock.changes.change import Change
from penstock.errors import MalformedError


def letter(
    topic: str, entry: Stored, message: "Change[object] | MalformedError", reason: str, error: BaseException | None
) -> DeadLetter:
    """With every byte it had, and what an operator wants to know, as plain text."""
    now = datetime.now(UTC)
    if isinstance(message, MalformedError):
        state = PartialDeliveryState(1, now, now)
        return DeadLetter(Malformed(entry.id, message, state, topic, entry.id, 0), reason, IN_SEQUENCE)
    state = PartialDeliveryState(message.attempt, now, now)
    held = ClaimedMessage(entry.id, message.message, state, topic, entry.id, message.token, entry.fields)
    if error is None:
        return DeadLetter(held, reason, IN_SEQUENCE)
    kind = type(error)
    return DeadLetter(held, reason, IN_SEQUENCE, f"{kind.__module__}.{kind.__qualname__}", trace_of(error))


def trace_of(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(error))
    except BaseException as unprintable:  # noqa: BLE001 - an exception can be as broken as the code that made it
        return f"it cannot be shown: {type(unprintable).__name__}"
