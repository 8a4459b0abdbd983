"""One message on several topics: the same id, the same content, and no topic twice, whatever breaks in between.

The topics of a conversation and of its agents lie in different slots of a cluster, so no script can write all of them.
They are written in an order instead that can be taken up again: first the topic of record, then the copies, each of
them once. Whoever does not know how far it came, does the same again.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from penstock.backend.entry import ClaimedMessage
from penstock.bus.bus import Bus
from penstock.bus.publisher import Receipt
from penstock.errors import PartlyPublishedError, PenstockError
from penstock.message.message import Message

if TYPE_CHECKING:
    from penstock.app import Penstock


class FanOut:
    """Publishes to a topic of record, and copies to others."""

    def __init__(self, app: "Penstock", record: str) -> None:
        self._app = app
        self._record = record
        self._buses: dict[str, Bus] = {}

    async def publish(
        self, message: Message[Any], others: Callable[[Message[Any]], Sequence[str]]
    ) -> tuple[Receipt, ...]:
        """Write it, and copies to the topics that `others` names for it. The receipt of the record comes first.

        Under an id that the record has already, what is stored there counts, and not what is given: copies that are
        missing get the content that the others have. Safe to call again within a day. `PartlyPublishedError` if it is
        in the record and some copy could not be written; any other error means that there are no copies.
        """
        first = await self.bus(self._record).publish(message, once=True)
        if first.duplicate:
            message = await self._stored(first) or message
        topics = others(message)
        results = await asyncio.gather(*[self._copy(topic, message) for topic in topics])
        receipts = (first, *[one for one in results if isinstance(one, Receipt)])
        missing = {topic: one for topic, one in zip(topics, results, strict=True) if isinstance(one, PenstockError)}
        if missing:
            written = [receipt.topic for receipt in receipts]
            raise PartlyPublishedError(message.id, written, missing) from next(iter(missing.values()))
        return receipts

    def bus(self, topic: str) -> Bus:
        """One for each topic that is used: a new one would have the topic listed again."""
        if topic not in self._buses:
            self._buses[topic] = self._app.bus(topic)
        return self._buses[topic]

    async def _copy(self, topic: str, message: Message[Any]) -> Receipt | PenstockError:
        try:
            return await self.bus(topic).publish(message, once=True)
        except PenstockError as error:
            return error

    async def _stored(self, receipt: Receipt) -> Message[Any] | None:
        """None if it is not there any more: then there is nothing that a copy could differ from."""
        if not receipt.entry_id:
            return None
        found = await self._app.backend.read_range(receipt.topic, receipt.entry_id, receipt.entry_id, 1)
        return found[0].message if found and isinstance(found[0], ClaimedMessage) else None
