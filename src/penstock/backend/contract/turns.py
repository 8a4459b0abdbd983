"""Verbs for those who read one at a time. The words are those of `backend/base.py`.

The position of a reader is the cursor of the group of its name, so that retention and the overview know of it. Nothing
is ever pending: whoever has the turn reads ahead as it likes, and moves the cursor when a message is done.
"""

from datetime import timedelta
from typing import Protocol

from penstock.backend.entry import DeadLetter
from penstock.backend.survey import Position
from penstock.backend.turn import Standing


class TakesTurns(Protocol):
    """Verbs for those who read one at a time."""

    async def take_turn(self, topic: str, reader: str, holder: str, lease: timedelta) -> int | timedelta:
        """Become, or stay, the one who reads `topic` as `reader`: the fencing token, or how long the turn is taken.

        Atomic. A new holder's token is larger than every earlier one; staying keeps the token and renews the lease. Two
        who take it under one name are not told apart.
        """
        ...

    async def keep_turn(self, topic: str, reader: str, token: int, lease: timedelta) -> bool:
        """Start the lease anew; False if the turn is not ours any more. Idempotent.

        One that ran out is ours still, as long as nobody else took the turn.
        """
        ...

    async def leave_turn(self, topic: str, reader: str, token: int) -> bool:
        """Give the turn up at once; False if it was not ours any more. Idempotent."""
        ...

    async def unsubscriptions(self, topic: str, reader: str) -> int:
        """How often this reader was removed by `forget_reader`; what `stand` is to be told."""
        ...

    async def stand(self, topic: str, reader: str, token: int, start: str, unsubscriptions: int) -> Standing | None:
        """Where the reader stands; a new one is placed at `start`, as `create_group` takes it. Atomic, idempotent.

        None if the reader was removed since the caller came. Raises `LeaseLostError` if the turn is not ours, and
        `TopicError` if consumers read with the group of that name.
        """
        ...

    async def advance(
        self,
        topic: str,
        reader: str,
        token: int,
        *,
        expected: str,
        to: str,
        entries: int = 1,
        ordinal: int | None = None,
    ) -> None:
        """Move the reader's position from `expected` to `to`, `entries` further on. Atomic; counts once.

        `ordinal` is how many entries were ever added up to `to`, where the caller knows. Raises `LeaseLostError` if
        somebody else took the turn meanwhile, `AckOutOfSequenceError` if the position is not `expected`; nothing has
        moved then.
        """
        ...

    async def begin_head(self, topic: str, reader: str, token: int, entry_id: str) -> int:
        """Note that work begins on the next entry; how often it failed by now. Atomic, idempotent.

        If another holder of the turn had noted it, and it was neither acknowledged, failed nor left in good order
        since, then that holder is dead, and that counts as a failure. Raises `LeaseLostError` if the turn is not ours.
        """
        ...

    async def fail_head(self, topic: str, reader: str, token: int, entry_id: str, attempt: int) -> int:
        """Note that this attempt at the next entry failed; how often it did by now. Atomic, idempotent."""
        ...

    async def bury_head(
        self, topic: str, reader: str, token: int, letter: DeadLetter, *, expected: str, ordinal: int | None = None
    ) -> None:
        """As `advance` over the one entry of `letter`, which is put to the dead letters first. Atomic; counts once.

        Such a letter cannot be replayed: it has no place in its reader's order any more. Refused by a server that is
        out of memory; nothing has moved then.
        """
        ...

    async def place_reader(
        self, topic: str, reader: str, token: int, to: Position, *, snapshot: bool = False, told_upto: str = ""
    ) -> None:
        """Put the reader's position anywhere in the stream of that epoch, also further back. Atomic, idempotent.

        `snapshot` and `told_upto` are what `stand` is to tell from then on, see `Standing`.
        Raises `LeaseLostError` if the turn is not ours, `DataLossError` if the stream is not that one any more.
        """
        ...

    async def forget_reader(self, topic: str, reader: str) -> bool:
        """Remove a reader and its position, whoever has the turn; False if there was none. Atomic.

        Whoever came before cannot `stand` any more; who comes later begins anew.
        """
        ...
