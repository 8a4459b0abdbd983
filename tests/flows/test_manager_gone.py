"""A message that is not pending any more when its outcome is settled: whoever took it, no success is claimed."""

import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import redis
import redis.asyncio

from penstock.errors import LeaseLostError
from penstock.manager import RedisStreamManager, StreamMessage
from tests.support.managing import GROUP, Managing, taken
from tests.support.proxy import Proxy
from tests.support.servers import Server, valkey_binary

BOTH = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)


@pytest.fixture
async def managing(server: Server, admin: "redis.Redis", topic: str) -> AsyncIterator[Managing]:
    async with Managing(server, admin, topic) as opened:
        yield opened


ACTS: dict[str, Callable[[RedisStreamManager, StreamMessage], Awaitable[bool]]] = {
    "acknowledge": lambda manager, message: manager.acknowledge(message, GROUP),
    "retry": lambda manager, message: manager.retry_message(message),
    "bury": lambda manager, message: manager.send_to_dlq(message, "why", GROUP),
}


async def is_refused(act: str, manager: RedisStreamManager, message: StreamMessage) -> bool:
    """False from `acknowledge`, and an error from those that would have to leave a copy; and nothing is told."""
    status = message.status
    if act == "acknowledge":
        refused = await ACTS[act](manager, message) is False
    else:
        with pytest.raises(LeaseLostError, match="before"):
            await ACTS[act](manager, message)
        refused = True
    return refused and message.status is status


@BOTH
@pytest.mark.parametrize("act", ACTS)
async def test_a_reply_that_was_lost_leaves_one_outcome_and_claims_none(
    managing: Managing, proxy: Proxy, act: str
) -> None:
    """The call is sent again, and finds the message gone: who has settled it, nothing shows."""
    client = redis.asyncio.Redis(unix_socket_path=str(proxy.path))
    manager = await managing.manager(client=client)
    first, message = await taken(manager, managing.first, 0), await taken(manager, managing.first)
    assert await ACTS[act](manager, first) is True  # the server knows the script by now
    proxy.drop_reply_to("EVALSHA")
    assert await is_refused(act, manager, message)
    assert (proxy.dropped, managing.pending()) == (1, 0)
    assert len(managing.parked()) == (2 if act == "retry" else 0)
    assert managing.admin.xlen(f"xnai:dlq:{managing.first}") == (2 if act == "bury" else 0)
    await manager.close()  # as long as there is a wire to the server
    await client.aclose()


@pytest.mark.parametrize("act", ACTS)
async def test_what_another_one_has_settled_meanwhile_is_not_taken_for_ours(managing: Managing, act: str) -> None:
    manager, other = await managing.manager(), await managing.manager()
    message = await taken(manager, managing.first)
    (stolen,) = await other.claim_pending_messages(GROUP, idle_ms=0)
    assert await other.acknowledge(stolen) is True
    assert await is_refused(act, manager, message)
    assert managing.parked() == []


@pytest.mark.parametrize("disturbance", ["consumer deleted", "group made anew", "acknowledged by hand"])
@pytest.mark.parametrize("act", ACTS)
async def test_what_was_taken_from_us_by_hand_is_not_taken_for_settled(
    managing: Managing, act: str, disturbance: str
) -> None:
    """Nothing counts such a theft, so nothing but the message, which is gone, tells; a success would be a loss."""
    manager, admin, stream = await managing.manager(), managing.admin, managing.first
    message = await taken(manager, stream)
    if disturbance == "consumer deleted":
        for consumer in admin.xinfo_consumers(stream, GROUP):
            admin.xgroup_delconsumer(stream, GROUP, consumer["name"])
    elif disturbance == "group made anew":
        admin.xgroup_destroy(stream, GROUP)
        admin.xgroup_create(stream, GROUP, "$")
    else:
        admin.xack(stream, GROUP, message.id)
    assert await is_refused(act, manager, message)
    assert (managing.parked(), admin.xlen(f"xnai:dlq:{stream}")) == ([], 0)


@pytest.mark.parametrize("act", ACTS)
async def test_what_the_server_has_lost_is_not_taken_for_settled(act: str) -> None:
    """It comes back from an older state, and who has read the message has the last copy of it."""
    with tempfile.TemporaryDirectory(prefix="ps-") as directory:
        server = Server(valkey_binary(), Path(directory))
        try:
            with server.client() as admin:
                async with Managing(server, admin, "t") as managing:
                    manager = await managing.manager()
                    await manager.acknowledge(await taken(manager, managing.first, 0))
                    admin.save()
                    message = await taken(manager, managing.first)
                    server.kill()
                    server.start()
                    assert await is_refused(act, manager, message)
        finally:
            server.stop()


async def test_a_dead_letter_without_a_group_is_a_copy_and_the_message_can_still_be_acknowledged(
    managing: Managing,
) -> None:
    manager = await managing.manager()
    message = await taken(manager, managing.first)
    for letters in (1, 2):
        assert await manager.send_to_dlq(message, "a copy") is True
        assert (managing.pending(), managing.admin.xlen(f"xnai:dlq:{managing.first}")) == (1, letters)
    assert await manager.acknowledge(message, GROUP) is True
    assert await manager.acknowledge(message, GROUP) is False
