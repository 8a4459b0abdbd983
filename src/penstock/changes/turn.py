"""One holding of a reader's turn, as its own process knows it."""

import time
from collections.abc import Callable
from datetime import timedelta


class Turn:
    """Kept alive by a thread, used by an event loop: what both write are single values."""

    def __init__(self, topic: str, reader: str, token: int, lease: timedelta, asked_at: float) -> None:
        self.topic = topic
        self.reader = reader
        self.token = token
        self.lease = lease
        self.seconds = lease.total_seconds()
        self.until = asked_at + self.seconds
        """Until then nobody else can have it. It counts from before we asked, so it is never too long."""

        self.due = asked_at + self.seconds / 3
        self.is_lost = False
        self.is_given_up: Callable[[], bool] = lambda: False
        """Whether its holder shows no sign of life: then it is not kept any more."""

        self.on_lost: Callable[[], None] = lambda: None

    @property
    def is_sure(self) -> bool:
        return not self.is_lost and time.monotonic() < self.until

    def renewed(self, asked_at: float) -> None:
        self.until = asked_at + self.seconds
        self.due = asked_at + self.seconds / 3

    def lose(self) -> None:
        if not self.is_lost:
            self.is_lost = True
            self.on_lost()
