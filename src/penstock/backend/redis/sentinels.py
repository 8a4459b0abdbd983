"""A Sentinel's pool for another event loop: what one has open to its sentinels belongs to the loop that opened it."""

from typing import Any

import redis.asyncio
from redis.asyncio.sentinel import Sentinel, SentinelConnectionPool

from penstock.errors import ConfigurationError


def same_place(pool: SentinelConnectionPool) -> SentinelConnectionPool:
    """A pool that asks the same sentinels for the same service, and shares no connection with this one."""
    followed = pool.sentinel_manager
    if type(followed) is not Sentinel:
        raise ConfigurationError(
            f"a backend made from a client of {type(followed).__name__} cannot be opened again: only redis-py's own"
            " Sentinel can be copied; make a backend for each event loop instead"
        )
    options = {name: value for name, value in pool.connection_kwargs.items() if name != "connection_pool"}
    facts = (followed.min_other_sentinels, followed.sentinel_kwargs, getattr(followed, "_force_master_ip", None))
    copy: Any = Sentinel([], *facts, **followed.connection_kwargs)  # type: ignore[no-untyped-call]
    copy.sentinels = [_same_client(client) for client in followed.sentinels]
    options |= {"is_master": pool.is_master, "check_connection": pool.check_connection}
    options["connection_class"] = pool.connection_class
    return SentinelConnectionPool(pool.service_name, copy, **options)  # type: ignore[no-untyped-call]


async def let_go(pool: Any) -> None:
    """Close what the pool's sentinels were asked through; the next question opens it again."""
    for client in pool.sentinel_manager.sentinels:
        # Not those in use: another connection may be opening at this moment, and closes them when it is done.
        await client.connection_pool.disconnect(inuse_connections=False)


def _same_client(client: "redis.asyncio.Redis") -> "redis.asyncio.Redis":
    pool = client.connection_pool
    return redis.asyncio.Redis(
        connection_pool=redis.asyncio.ConnectionPool(connection_class=pool.connection_class, **pool.connection_kwargs)
    )
