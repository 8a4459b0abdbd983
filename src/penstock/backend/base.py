"""The verbs of a stream server, and what each of them promises.

*Atomic* means all or nothing on the server, whatever dies when. *Idempotent* means that doing it again after a lost
reply does no harm. Streams are named by their key: a topic, or a group's retry stream (`keys.retry`). Every verb raises
`ConfigurationError` for arguments that cannot work, `ServerUnreachableError` if no answer came, and the other kinds of
`ServerError` and `TopicError` for what the server refused.
"""

from collections.abc import Mapping
from typing import Protocol, Self

from penstock.backend.contract.crons import KeepsCrons
from penstock.backend.contract.examining import Examines
from penstock.backend.contract.following import Follows
from penstock.backend.contract.letters import KeepsLetters
from penstock.backend.contract.migrating import TakesOver
from penstock.backend.contract.operating import Operates
from penstock.backend.contract.publishing import Publishes
from penstock.backend.contract.reading import Reads
from penstock.backend.contract.records import KeepsRecords
from penstock.backend.contract.settling import Settles
from penstock.backend.contract.sharing import SharesOut
from penstock.backend.contract.turns import TakesTurns
from penstock.backend.contract.upkeep import LooksAfter
from penstock.backend.trail import Trail
from penstock.message.wire import Wire


class StreamBackend(
    Publishes,
    Reads,
    Settles,
    KeepsLetters,
    LooksAfter,
    TakesTurns,
    SharesOut,
    Follows,
    KeepsRecords,
    KeepsCrons,
    TakesOver,
    Operates,
    Examines,
    Protocol,
):
    """What the delivery engine needs of a server that keeps streams."""

    async def another(self) -> Self:
        """A second backend to the same place, with the same wire formats, for the event loop that awaits this.

        Closing either leaves the other alone; but an embedded server ends with the backend that started it.
        """
        ...

    def speaking(self, wires: Mapping[str, Wire], trail: Trail | None = None) -> Self:
        """The same server over the same connections, for somebody who reads and writes these topics in another way.

        With a `trail` it keeps records of messages that move between topics.

        Closing it ends its reads and leaves the connections to the first.
        """
        ...

    def looking(self) -> Self:
        """The same server over the same connections, for somebody who only looks: `glimpse` then gives no epoch.

        So it can be asked of a replica, and for a user who may not write. Closing it is as with `speaking`.
        """
        ...

    async def aclose(self) -> None:
        """Let go of the server. What was read and not settled stays pending. Idempotent."""
        ...
