"""How large a page may be, where many read pages of their own at once: they share what one process has for that."""

import asyncio

from penstock.tail.mouthful import PAGE_BYTES

IN_ALL = 16 * 1024 * 1024
"""What all pages of an app hold together, as long as each can be of the least size."""

LEAST = 16 * 1024
"""The size of a page, however many share."""


class Shares:
    """Knows who reads a page or holds one: each has as much room as the others."""

    def __init__(self) -> None:
        self._holders: set[object] = set()

    @property
    def size(self) -> int:
        """Of the page that one of them may read now, in bytes."""
        return max(LEAST, min(PAGE_BYTES, IN_ALL // max(1, len(self._holders))))

    async def share(self, holder: object) -> None:
        """From now on this one counts, until it gives back. It is called before each page."""
        if holder not in self._holders:
            self._holders.add(holder)
            await asyncio.sleep(0)  # all who begin in this turn of the loop count, before the first of them reads

    def give_back(self, holder: object) -> None:
        """This one holds no page any more. Idempotent."""
        self._holders.discard(holder)
