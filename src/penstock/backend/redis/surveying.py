"""What `survey.lua` takes and gives."""

import secrets
from collections.abc import Sequence

from penstock.backend import keys
from penstock.backend.survey import Survey


def seen_from(id: str, *, gives_epoch: bool = True) -> tuple[str, str, str]:
    """Its arguments, for a reader that stands at this id."""
    return keys.OWN_GROUP, secrets.token_hex(8) if gives_epoch else "", id


def survey_of(reply: Sequence[bytes | int]) -> Survey | None:
    """What it found; None if there is no stream."""
    if not reply:
        return None
    epoch, first, newest, last, deleted = (one.decode() for one in reply[:5] if isinstance(one, bytes))
    length, added, present = (one for one in reply[5:] if isinstance(one, int))
    return Survey(epoch, first or None, newest or None, last, deleted, length, added, bool(present))
