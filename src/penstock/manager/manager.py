"""The stream manager: groups over several streams, pulled by hand, with retries and dead letters."""

import secrets
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.delivery.letters import DeadLetters
from penstock.errors import ConfigurationError
from penstock.manager.configuration import DLQConfig, stream_name
from penstock.manager.health import health_of
from penstock.manager.message import FLAT, StreamMessage
from penstock.manager.outcomes import Outcomes
from penstock.manager.participant import Participant
from penstock.manager.processing import Process, Processing
from penstock.manager.reads import MessageRead
from penstock.manager.sending import Sender
from penstock.options import check_count

if TYPE_CHECKING:
    import redis.asyncio


class RedisStreamManager(Participant):
    """Sends, reads and settles for agents that share streams. Everything it cannot do raises."""

    def __init__(
        self,
        redis: "redis.asyncio.Redis | None" = None,
        consumer_id: str | None = None,
        *,
        dlq_config: DLQConfig | None = None,
    ) -> None:
        """`redis` is a client to connect like; it is neither used nor closed. Without one, see `place.server_url`."""
        super().__init__(redis, consumer_id, dlq_config)
        self._sender = Sender(self._connected, self._listeners)
        self._outcomes = Outcomes(self._connected, self._listeners, self._dlq)

    def read_messages(self, group_name: str, count: int | None = None, block_ms: int | None = None) -> MessageRead:
        """Await it for up to `count` messages of all the group's streams together, retries that are due included.

        It waits up to `block_ms` for the first, 0: not at all; the group's own numbers count where none are given.
        Or iterate it: that goes on until it is left, or the manager closed, and hands back what it had fetched. What
        was handed out stays with this consumer until it is settled, or claimed after its idle time.
        """
        if count is not None:
            check_count("read_messages(count=...)", count, least=0)
        if block_ms is not None:
            check_count("read_messages(block_ms=...)", block_ms, least=0)
        return MessageRead(
            partial(self._read, group_name, count, block_ms), partial(self._read_on, group_name, count, block_ms)
        )

    async def send_message(
        self,
        stream: str,
        data: Mapping[str, Any],
        max_len: int | None = 1000,
        *,
        force_trim: bool = False,
        id: str | None = None,
    ) -> str:
        """Append a message and return its entry id; it is on the server then.

        `max_len` drops the oldest messages beyond it, now and then, as far as every group is done with them; with
        `force_trim` also those that groups still need, which are lost then. Under an `id` of your own, a UUID, it may
        be sent again, and is stored only once within a day.
        """
        await self.initialize()
        return await self._sender.send(stream_name(stream), data, max_len, force_trim=force_trim, id=id)

    async def acknowledge(self, message: StreamMessage, group_name: str | None = None) -> bool:
        """The message is done. False: it was done before. `LeaseLostError`: another consumer has claimed it."""
        await self.initialize()
        return await self._outcomes.acknowledge(message, group_name)

    async def retry_message(self, message: StreamMessage) -> bool:
        """Have the message come back to its group, by `read_messages`, after its backoff. It is settled here.

        False past `retry_limit`: nothing was done, and what becomes of the message is for you to say.
        """
        await self.initialize()
        delay = await self._outcomes.retry(message)
        if delay is not None and message.hold is not None and (known := self._groups.get(message.hold.group)):
            known.expect(message.stream, delay)
        return delay is not None

    async def send_to_dlq(self, message: StreamMessage, reason: str, group_name: str | None = None) -> bool:
        """Put the message among the dead letters, with the reason; True when it is there.

        With `group_name` it is acknowledged in the same step, else it stays pending. False: the DLQ is disabled, and
        nothing was done.
        """
        await self.initialize()
        return await self._outcomes.bury(message, reason, group_name)

    async def claim_pending_messages(
        self, group_name: str, idle_ms: int | None = None, count: int | None = None
    ) -> list[StreamMessage]:
        """Take over up to `count` messages that were handed out, to anybody, and left alone for `idle_ms`.

        One whose consumer died before, too, comes alone. If that happens more often than it may be retried, it goes to
        the dead letters instead.
        """
        for name, number in (("idle_ms", idle_ms), ("count", count)):
            if number is not None:
                check_count(f"claim_pending_messages({name}=...)", number, least=0)
        membership = await self._member_of(group_name)
        return self._counted(await membership.claim(idle_ms, count))

    async def process(self, group_name: str, handler: Process, *, concurrency: int = 1, signals: bool = True) -> None:
        """Call `handler` with every message, until SIGTERM, SIGINT, `close` or a cancellation; then end in good order.

        It returns: the message is acknowledged. It raises: the message is retried, and past `retry_limit` it goes to
        the dead letters. Leases are renewed while it runs, for up to five minutes. What others left behind is taken
        over, and what kills its process runs alone.
        """
        if not self._dlq.enabled:
            raise ConfigurationError("process() needs a place for what fails for good: DLQConfig(enabled=True)")
        check_count("process(concurrency=...)", concurrency)
        membership = await self._member_of(group_name)
        consumer = f"{membership.consumer}.{secrets.token_hex(2)}"
        processing = Processing(handler, membership.config, self._dlq, consumer, self._tally)
        self._processes += 1
        try:
            await processing.run(
                self._connected(), self._listeners, self._stop, concurrency=concurrency, signals=signals
            )
        finally:
            self._processes -= 1
            self._idle.set()

    async def dead_letters(self, group_name: str) -> DeadLetters:
        """The dead letters of a group: iterate them, oldest first; `replay` and `purge` them."""
        membership = await self._member_of(group_name)
        wires = dict.fromkeys(membership.config.streams, FLAT)
        return DeadLetters(self._connected, wires, group_name, self._listeners)

    async def get_stats(self) -> dict[str, Any]:
        """What this manager has done since it was made. How the server stands is in `get_health`."""
        return {
            "messages_read": self._tally.read,
            "messages_acknowledged": self._tally.acknowledged,
            "messages_failed": self._tally.failed,
            "dlq_entries": self._tally.dead,
            "consumer_id": self.consumer_id,
            "consumer_groups": list(self._configs),
            "initialized": self._is_initialized,
        }

    async def get_health(self) -> dict[str, Any]:
        """How every stream and group of this manager stands on the server, and what is wrong. Raises if it is down."""
        await self.initialize()
        return await health_of(self._connected(), [membership.config for membership in self._groups.values()])

    async def _read(self, group_name: str, count: int | None, block_ms: int | None) -> list[StreamMessage]:
        membership = await self._member_of(group_name)
        return self._counted(await membership.read(count, block_ms))

    async def _read_on(
        self, group_name: str, count: int | None, block_ms: int | None
    ) -> AsyncGenerator[StreamMessage, None]:
        membership = await self._member_of(group_name)
        async with aclosing(membership.read_on(count, block_ms)) as messages:
            async for message in messages:
                self._tally.read += 1
                yield message

    def _counted(self, messages: list[StreamMessage]) -> list[StreamMessage]:
        self._tally.read += len(messages)
        return messages

    def __repr__(self) -> str:
        return f"<RedisStreamManager {self.consumer_id!r} {self._backend or 'not connected'}>"


async def create_stream_manager(
    redis: "redis.asyncio.Redis | None" = None,
    consumer_id: str | None = None,
    *,
    dlq_config: DLQConfig | None = None,
) -> RedisStreamManager:
    """A manager that is connected and has its default groups."""
    manager = RedisStreamManager(redis, consumer_id, dlq_config=dlq_config)
    try:
        await manager.initialize()
    except BaseException:
        await manager.close()
        raise
    return manager
