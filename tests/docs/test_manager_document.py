"""Every snippet of the stream manager's document, as it stands there but for the import path, on a real server."""

import ast
import asyncio
import dataclasses
import inspect
import logging
import re
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timezone
from enum import Enum
from pathlib import Path
from typing import Any, Dict, List, Optional  # noqa: UP035 - the words of the document

import pytest
import redis
import redis.asyncio

from penstock import manager as module
from penstock.backend import keys
from penstock.errors import ServerUnreachableError
from penstock.manager import DLQConfig, MessageStatus, RedisStreamManager, StreamMessage
from tests.support.servers import Server, free_port, redis_binary, valkey_binary

BUS, UPDATES = "xnai:agent_bus", "xnai:task_updates"
GROUP = "agent_wavefront"

INITIALIZE = """
from XNAi_rag_app.core.redis_streams import RedisStreamManager

# Initialize
manager = RedisStreamManager(
    redis=redis_client,    # Optional: creates new connection if None
    consumer_id="cline-1"  # Optional: defaults to consumer_<pid>
)

# Initialize connection
await manager.initialize()
"""

STREAM_TYPE = """
from XNAi_rag_app.core.redis_streams import StreamType

class StreamType(str, Enum):
    AGENT_BUS = "xnai:agent_bus"        # Agent coordination
    TASK_UPDATES = "xnai:task_updates"  # Task status updates
    MEMORY_UPDATES = "xnai:memory_updates"  # Memory bank changes
    ALERTS = "xnai:alerts"              # Alerts and escalations
    DLQ = "xnai:dlq"                    # Dead Letter Queue
"""

CREATE_GROUP = """
from XNAi_rag_app.core.redis_streams import ConsumerGroupConfig

config = ConsumerGroupConfig(
    name="agent_wavefront",
    streams=["xnai:agent_bus", "xnai:task_updates"],
    consumer_prefix="consumer_",
    block_ms=5000,
    batch_size=10,
    claim_idle_ms=60000
)

await manager.create_consumer_group(config)
"""

READ = """
messages = await manager.read_messages(
    group_name="agent_wavefront",
    count=10,
    block_ms=5000
)

for message in messages:
    print(f"ID: {message.id}")
    print(f"Stream: {message.stream}")
    print(f"Data: {message.data}")
"""

SEND = """
message_id = await manager.send_message(
    stream="xnai:agent_bus",
    data={
        "agent_id": "cline-1",
        "action": "task_complete",
        "task_id": "R003-1"
    },
    max_len=1000
)
"""

ACKNOWLEDGE = """
await manager.acknowledge(message, group_name="agent_wavefront")
"""

SEND_TO_DLQ = """
await manager.send_to_dlq(
    message=message,
    reason="Processing failed: timeout",
    group_name="agent_wavefront"  # Optional: acknowledges original
)
"""

RETRY = """
success = await manager.retry_message(message)
# Returns False if retry limit exceeded
"""

CLAIM = """
claimed = await manager.claim_pending_messages(
    group_name="agent_wavefront",
    idle_ms=60000  # Messages idle > 60 seconds
)

for message in claimed:
    await process_message(message)
"""

STATS = """
stats = await manager.get_stats()
# {
#     "messages_read": 150,
#     "messages_acknowledged": 148,
#     "messages_failed": 2,
#     "dlq_entries": 2,
#     "consumer_id": "consumer_12345",
#     "consumer_groups": ["agent_wavefront", "memory_sync"],
#     "initialized": True
# }
"""

STREAM_MESSAGE = '''
@dataclass
class StreamMessage:
    id: str                    # Redis message ID
    stream: str                # Stream name
    data: Dict[str, Any]       # Message data
    timestamp: str             # ISO 8601 timestamp
    retry_count: int           # Number of retries
    status: MessageStatus      # Current status
    error: Optional[str]       # Error message if failed
    
    @classmethod
    def from_redis(cls, stream, message_id, data) -> "StreamMessage":
        """Create from Redis XREADGROUP response."""
        ...
    
    def to_dict(self) -> Dict[str, Any]:
        """Convert to dictionary."""
        ...
'''  # noqa: W293 - as it stands there

MESSAGE_STATUS = """
class MessageStatus(str, Enum):
    PENDING = "pending"
    PROCESSING = "processing"
    COMPLETED = "completed"
    FAILED = "failed"
    RETRY = "retry"
    DLQ = "dlq"
"""

GROUP_CONFIG = """
@dataclass
class ConsumerGroupConfig:
    name: str                  # Consumer group name
    streams: List[str]         # Streams to consume
    consumer_prefix: str = "consumer_"
    block_ms: int = 5000       # Block time for reads
    batch_size: int = 10       # Max messages per read
    claim_idle_ms: int = 60000 # Idle time for claiming
"""

DLQ_CONFIG = """
@dataclass
class DLQConfig:
    enabled: bool = True
    max_retention_seconds: int = 86400  # 24 hours
    retry_limit: int = 3
    retry_backoff_seconds: int = 60
    dlq_prefix: str = "xnai:dlq"
    max_len: int = 10000
"""

CONTEXT_MANAGER = """
async with RedisStreamManager(consumer_id="cline-1") as manager:
    messages = await manager.read_messages("agent_wavefront")
    for message in messages:
        await process_message(message)
        await manager.acknowledge(message, "agent_wavefront")
"""

LOOP = """
async def process_messages():
    manager = RedisStreamManager()
    await manager.initialize()
    
    while True:
        messages = await manager.read_messages("agent_wavefront")
        
        for message in messages:
            try:
                await process_message(message)
                await manager.acknowledge(message, "agent_wavefront")
            except Exception as e:
                await manager.send_to_dlq(message, str(e), "agent_wavefront")
        
        # Claim abandoned messages
        claimed = await manager.claim_pending_messages("agent_wavefront")
        for message in claimed:
            await process_message(message)
            await manager.acknowledge(message, "agent_wavefront")
"""  # noqa: W293 - as it stands there

COORDINATION = """
# Agent publishes task update
await manager.send_message("xnai:task_updates", {
    "agent_id": "cline-1",
    "task_id": "R003-1",
    "status": "in_progress",
    "progress": "50%",
    "timestamp": datetime.now(timezone.utc).isoformat()
})

# MC-Overseer reads updates
updates = await manager.read_messages("agent_wavefront")
"""

INTEGRATION = """
from XNAi_rag_app.core.redis_streams import RedisStreamManager, StreamType

class AgentBusClient:
    def __init__(self):
        self.stream_manager = RedisStreamManager()
    
    async def publish_task(self, agent_id: str, task: dict):
        await self.stream_manager.send_message(
            StreamType.AGENT_BUS,
            {"agent_id": agent_id, "task": task}
        )
    
    async def subscribe_tasks(self, agent_id: str):
        async for message in self.stream_manager.read_messages("agent_wavefront"):
            if message.data.get("agent_id") == agent_id:
                yield message
"""  # noqa: W293 - as it stands there

ERRORS = """
try:
    messages = await manager.read_messages("agent_wavefront")
except Exception as e:
    logger.error(f"Failed to read messages: {e}")
    # Implement fallback or retry logic
"""

CREATE = """
from XNAi_rag_app.core.redis_streams import create_stream_manager

manager = await create_stream_manager(consumer_id="cline-1")
"""


async def run(snippet: str, **names: Any) -> dict[str, Any]:
    """What the snippet leaves behind; everything the module offers is imported."""
    code = snippet.replace("XNAi_rag_app.core.redis_streams", "penstock.manager")
    compiled = compile(code, "the document", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    space: dict[str, Any] = {name: getattr(module, name) for name in module.__all__}
    space |= {"datetime": datetime, "timezone": timezone, "Enum": Enum, "dataclass": dataclasses.dataclass}
    space |= {"Dict": Dict, "List": List, "Any": Any, "Optional": Optional, "__name__": __name__, **names}  # noqa: UP006
    running = eval(compiled, space)
    if inspect.isawaitable(running):
        await running
    return space


@pytest.fixture(scope="module", params=["valkey", "redis"])
def server(request: pytest.FixtureRequest, missing: Any) -> Iterator[Server]:
    binary = {"valkey": valkey_binary, "redis": redis_binary}[request.param]()
    if binary is None:
        missing(f"{request.param}-server")
    directory = Path(tempfile.mkdtemp(prefix="ps-"))
    started = Server(binary, directory)
    yield started
    started.stop()
    shutil.rmtree(directory)


@pytest.fixture(autouse=True)
def address(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The document's managers find the server where the environment says it is."""
    for name in ("PENSTOCK_URL", "REDIS_HOST", "REDIS_PORT", "REDIS_PASSWORD"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("REDIS_URL", server.url)


@pytest.fixture
def admin(server: Server) -> "Iterator[redis.Redis]":
    with server.client(decode_responses=True) as client:
        client.flushdb()
        yield client


@pytest.fixture
async def manager(admin: "redis.Redis") -> AsyncIterator[RedisStreamManager]:
    async with RedisStreamManager() as opened:
        yield opened


async def handed_out(manager: RedisStreamManager) -> StreamMessage:
    await run(SEND, manager=manager)
    (message,) = await manager.read_messages(GROUP, block_ms=5000)
    return message


def pending(admin: "redis.Redis", stream: str = BUS) -> int:
    return admin.xpending(stream, GROUP)["pending"]  # type: ignore[no-any-return]


@pytest.mark.parametrize("decode_responses", [True, False])
async def test_initialize(server: Server, admin: "redis.Redis", decode_responses: bool) -> None:
    client = redis.asyncio.Redis(unix_socket_path=str(server.socket), decode_responses=decode_responses)
    manager = (await run(INITIALIZE, redis_client=client))["manager"]
    expected = {
        BUS: GROUP, UPDATES: GROUP, "xnai:memory_updates": "memory_sync", "xnai:alerts": "alert_handlers",
    }  # fmt: skip
    for stream, group in expected.items():
        found = {one["name"] for one in admin.xinfo_groups(stream)} - {keys.OWN_GROUP}
        assert found == {group}, stream
        assert admin.xlen(stream) == 0
    message = await handed_out(manager)
    assert message.data == {"agent_id": "cline-1", "action": "task_complete", "task_id": "R003-1"}
    await manager.close()
    assert await client.ping()  # it is the caller's
    await client.aclose()


async def test_the_predefined_streams_and_statuses() -> None:
    documented = (await run(STREAM_TYPE))["StreamType"]
    assert {one.name: one.value for one in module.StreamType} == {one.name: one.value for one in documented}
    statuses = (await run(MESSAGE_STATUS))["MessageStatus"]
    assert {one.name: one.value for one in MessageStatus} == {one.name: one.value for one in statuses}
    assert issubclass(MessageStatus, str)
    assert issubclass(module.StreamType, str)


@pytest.mark.parametrize(("snippet", "name"), [(GROUP_CONFIG, "ConsumerGroupConfig"), (DLQ_CONFIG, "DLQConfig")])
async def test_the_configurations(snippet: str, name: str) -> None:
    documented, ours = (await run(snippet))[name], getattr(module, name)
    assert [(one.name, one.default) for one in dataclasses.fields(ours)] == [
        (one.name, one.default) for one in dataclasses.fields(documented)
    ]


async def test_the_message() -> None:
    documented = (await run(STREAM_MESSAGE))["StreamMessage"]
    names = [one.name for one in dataclasses.fields(documented)]
    assert [one.name for one in dataclasses.fields(StreamMessage)] == names
    made = StreamMessage("1-1", "s", {"a": 1}, "2026-01-01T00:00:00+00:00", 2, MessageStatus.RETRY, "why")
    assert made.to_dict() == dataclasses.asdict(made) == {**dict.fromkeys(names), **vars(made)}
    for method in ("from_redis", "to_dict"):
        assert list(inspect.signature(getattr(StreamMessage, method)).parameters) == [
            name for name in inspect.signature(getattr(documented, method)).parameters if name != "cls"
        ]


async def test_create_consumer_group(manager: RedisStreamManager, admin: "redis.Redis") -> None:
    await run(CREATE_GROUP, manager=manager)
    assert GROUP in (await manager.get_stats())["consumer_groups"]


async def test_send_and_read(
    manager: RedisStreamManager, admin: "redis.Redis", capsys: pytest.CaptureFixture[str]
) -> None:
    sent = (await run(SEND, manager=manager))["message_id"]
    ((entry_id, fields),) = admin.xrange(BUS)
    assert entry_id == sent
    assert fields.items() >= {"agent_id": "cline-1", "action": "task_complete", "task_id": "R003-1"}.items()
    (message,) = (await run(READ, manager=manager))["messages"]
    assert capsys.readouterr().out.splitlines() == [f"ID: {sent}", f"Stream: {BUS}", f"Data: {message.data}"]
    milliseconds = int(sent.partition("-")[0])
    assert datetime.fromisoformat(message.timestamp) == datetime.fromtimestamp(milliseconds / 1000, UTC)


async def test_acknowledge(manager: RedisStreamManager, admin: "redis.Redis") -> None:
    message = await handed_out(manager)
    assert pending(admin) == 1
    await run(ACKNOWLEDGE, manager=manager, message=message)
    assert pending(admin) == 0
    assert message.status is MessageStatus.COMPLETED


async def test_send_to_dlq(manager: RedisStreamManager, admin: "redis.Redis") -> None:
    message = await handed_out(manager)
    await run(SEND_TO_DLQ, manager=manager, message=message)
    assert pending(admin) == 0
    assert admin.xlen(f"xnai:dlq:{BUS}") == 1
    (letter,) = [one async for one in await manager.dead_letters(GROUP)]
    assert (letter.reason, letter.entry_id) == ("Processing failed: timeout", message.id)
    assert (message.status, message.error) == (MessageStatus.DLQ, "Processing failed: timeout")


async def test_retry_message(admin: "redis.Redis") -> None:
    async with RedisStreamManager(dlq_config=DLQConfig(retry_limit=1, retry_backoff_seconds=0)) as manager:
        message = await handed_out(manager)
        assert (await run(RETRY, manager=manager, message=message))["success"] is True
        assert pending(admin) == 0
        (again,) = await manager.read_messages(GROUP, block_ms=5000)
        assert (again.id, again.stream, again.data, again.retry_count) == (message.id, BUS, message.data, 1)
        assert (await run(RETRY, manager=manager, message=again))["success"] is False
        assert admin.xlen(BUS) == 1


async def test_claim_pending_messages(manager: RedisStreamManager, admin: "redis.Redis") -> None:
    sent = (await run(SEND, manager=manager))["message_id"]
    admin.xreadgroup(GROUP, "ghost", {BUS: ">"})
    processed: list[StreamMessage] = []

    async def process_message(message: StreamMessage) -> None:
        processed.append(message)

    await run(CLAIM, manager=manager, process_message=process_message)
    assert not processed
    admin.xclaim(BUS, GROUP, "ghost", 0, [sent], idle=60_001)
    await run(CLAIM, manager=manager, process_message=process_message)
    assert [message.id for message in processed] == [sent]


async def test_get_stats(manager: RedisStreamManager) -> None:
    for ending in (ACKNOWLEDGE, ACKNOWLEDGE, SEND_TO_DLQ):
        await run(ending, manager=manager, message=await handed_out(manager))
    stats = (await run(STATS, manager=manager))["stats"]
    shown = "".join(line.removeprefix("#") for line in STATS.splitlines() if line.startswith("#"))
    assert list(stats) == list(ast.literal_eval(shown.strip()))
    assert (stats["messages_read"], stats["messages_acknowledged"]) == (3, 2)
    assert (stats["messages_failed"], stats["dlq_entries"], stats["initialized"]) == (1, 1, True)
    assert stats["consumer_id"].startswith("consumer_")
    assert stats["consumer_groups"] == [GROUP, "memory_sync", "alert_handlers"]


async def test_context_manager(manager: RedisStreamManager, admin: "redis.Redis") -> None:
    sent = (await run(SEND, manager=manager))["message_id"]
    processed: list[str] = []

    async def process_message(message: StreamMessage) -> None:
        processed.append(message.id)

    await run(CONTEXT_MANAGER, process_message=process_message)
    assert processed == [sent]
    assert pending(admin) == 0
    assert not admin.xinfo_consumers(BUS, GROUP)  # it has left, and held nothing


async def test_the_processing_loop(manager: RedisStreamManager, admin: "redis.Redis") -> None:
    abandoned = await manager.send_message(BUS, {"n": "abandoned"})
    admin.xreadgroup(GROUP, "ghost", {BUS: ">"})
    admin.xclaim(BUS, GROUP, "ghost", 0, [abandoned], idle=61_000)
    good, bad = [await manager.send_message(BUS, {"n": kind}) for kind in ("good", "bad")]
    processed: list[str] = []
    seen = asyncio.Event()

    async def process_message(message: StreamMessage) -> None:
        processed.append(message.id)
        if message.data["n"] == "bad":
            raise ValueError("it is bad")
        if len(processed) == 4:
            seen.set()

    made: list[RedisStreamManager] = []

    def make() -> RedisStreamManager:
        made.append(RedisStreamManager())
        return made[0]

    space = await run(LOOP, process_message=process_message, RedisStreamManager=make)
    loop = asyncio.create_task(space["process_messages"]())
    try:
        async with asyncio.timeout(40):
            while len(processed) < 3:
                await asyncio.sleep(0.005)
            last = await manager.send_message(UPDATES, {"n": "last"})
            await seen.wait()
            while pending(admin) or pending(admin, UPDATES):
                await asyncio.sleep(0.005)
    finally:
        loop.cancel()
        await asyncio.gather(loop, return_exceptions=True)
        await made[0].close()  # the document leaves it open
    assert processed == [good, bad, abandoned, last]
    letters = [(one.entry_id, one.reason) async for one in await manager.dead_letters(GROUP)]
    assert letters == [(bad, "it is bad")]


async def test_agent_coordination(manager: RedisStreamManager) -> None:
    updates = (await run(COORDINATION, manager=manager))["updates"]
    assert [(update.stream, update.data["progress"]) for update in updates] == [(UPDATES, "50%")]


async def test_integration_with_agent_bus(admin: "redis.Redis") -> None:
    client = (await run(INTEGRATION))["AgentBusClient"]()
    for agent, number in (("other", 0), ("me", 1), ("me", 2), ("me", 3)):
        await client.publish_task(agent, {"n": number, "deep": [True, None]})
    tasks = client.subscribe_tasks("me")
    async with asyncio.timeout(30):
        first, second = await anext(tasks), await anext(tasks)
        assert [one.data["task"] for one in (first, second)] == [{"n": n, "deep": [True, None]} for n in (1, 2)]
        await tasks.aclose()
        # The fourth was fetched with them, and handed back: whoever reads next is given it.
        (third,) = await client.stream_manager.read_messages(GROUP)
    assert third.data["task"]["n"] == 3
    await client.stream_manager.close()


async def test_error_handling(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("REDIS_URL", f"redis://127.0.0.1:{free_port()}")
    manager = RedisStreamManager()
    with caplog.at_level(logging.ERROR, logger="document"):
        await run(ERRORS, manager=manager, logger=logging.getLogger("document"))
    assert "Failed to read messages: cannot connect to" in caplog.text
    with pytest.raises(ServerUnreachableError):
        await manager.initialize()
    assert (await manager.get_stats())["initialized"] is False


async def test_create_stream_manager(admin: "redis.Redis") -> None:
    manager = (await run(CREATE))["manager"]
    stats = await manager.get_stats()
    assert (stats["consumer_id"], stats["initialized"]) == ("cline-1", True)
    await handed_out(manager)
    (consumer,) = admin.xinfo_consumers(BUS, GROUP)
    assert consumer["name"].startswith("cline-1.")
    await manager.close()


PAGE = (Path(__file__).parents[2] / "docs" / "manager.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```\n\n```\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize(("code", "output"), EXAMPLES)
async def test_our_own_page_prints_what_it_says(
    admin: "redis.Redis", capsys: pytest.CaptureFixture[str], code: str, output: str
) -> None:
    assert len(EXAMPLES) == PAGE.count("```python")
    await run(code)
    assert capsys.readouterr().out == output
