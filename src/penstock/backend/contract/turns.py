"""Verbs for those who read one at a time. The words are those of `backend/base.py`."""

from datetime import timedelta
from typing import Protocol


class TakesTurns(Protocol):
    """Verbs for those who read one at a time."""

    async def take_turn(self, topic: str, reader: str, holder: str, lease: timedelta) -> int | timedelta:
        """Become, or stay, the one who reads `topic` as `reader`: the fencing token, or how long the turn is taken.

        Atomic. A new holder's token is larger than every earlier one; staying keeps the token and renews the lease.
        """
        ...

    async def leave_turn(self, topic: str, reader: str, token: int) -> bool:
        """Give the turn up at once; False if it was not ours any more. Idempotent."""
        ...

    async def advance(self, topic: str, reader: str, token: int, *, expected: str, to: str, entries: int = 1) -> None:
        """Move the reader's position from `expected` to `to`, `entries` further on. Atomic; counts once.

        Raises `LeaseLostError` if somebody else took the turn meanwhile, `AckOutOfSequenceError` if the position is not
        `expected`; nothing has moved then.
        """
        ...
