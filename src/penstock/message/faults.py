"""The one exception that reading code inside this room raises; `Wire` turns it into `MalformedError`."""

_LONGEST = 300


class Unreadable(Exception):
    """Stored bytes break a rule. The text is the reason an operator will read in the dead letters."""


def describe(error: BaseException) -> str:
    """A short reason, even for an exception whose own `__str__` is broken."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - it may be the user's, and this is the last place that can fail
        text = "(its text cannot be shown)"
    if isinstance(error, Unreadable):
        reason = text
    else:
        reason = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return reason if len(reason) <= _LONGEST else reason[: _LONGEST - 1] + "…"
