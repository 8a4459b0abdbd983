"""What a consumer is known by at a topic and its retries, whichever of these streams it reads or settles."""

import secrets

from penstock.backend import keys
from penstock.backend.redis.links import Links
from penstock.backend.redis.scripts import load

NO_FENCE = -1
"""No counter has this value: whoever settles with it is looked at entry by entry."""


class Standing:
    """One consumer of one group at one home topic: its steal counter, and where its scans for idle entries go on."""

    def __init__(self, home: str, group: str, consumer: str) -> None:
        self.home = home
        self.group = group
        self.consumer = consumer
        self.steals = keys.steals(home, group)
        self.starts = keys.starts(home, group)
        self.cursors = keys.cursors(home)
        self.fence: int | None = None
        self.reclaim_from: dict[str, str] = {}

    async def enroll(self, links: Links) -> int:
        """The fence for what is read from now on, on any stream of this home: the server has one counter for all."""
        if self.fence is None:
            doing = f"cannot enroll consumer {self.consumer!r} of {self.home!r}"
            start = secrets.randbits(48)
            self.fence = int(await links.script(doing, load("enroll"), [self.steals], self.consumer, start))
        return self.fence
