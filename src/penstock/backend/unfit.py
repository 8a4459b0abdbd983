"""Which dead letters cannot be given back to their group, and why."""

from penstock.backend.entry import DeadRecord, Letter
from penstock.backend.turn import IN_SEQUENCE


def unfit(letter: Letter, *, edited: bool = False) -> str | None:
    """Why the group that gave this letter up cannot be given it, if so; if `edited`, with other fields than its own."""
    record = letter.record
    if letter.broken is not None:
        return f"it cannot be opened, so publish it again from its source: {letter.broken}"
    if not record.group:
        return "it died before any group had it, or its record cannot be read: publish it again"
    if IN_SEQUENCE.items() <= record.details.items():
        return f"reader {record.group!r} reads in sequence, where it has no place any more: publish it again"
    return None if edited else _lack(record)


def _lack(record: DeadRecord) -> str | None:
    """Why its own fields are none that could be delivered, if so."""
    if record.unopened:
        return "what it holds is no message: it was put aside in a form that nobody can open"
    if record.lost:
        return "it was trimmed or deleted before it was settled: only its id is left"
    if record.packed:
        return "it has more fields than an entry of the retry stream can have"
    return None
