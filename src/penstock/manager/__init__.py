"""Redis streams for several agents: consumer groups over many streams, retries, and a dead letter queue.

manager = RedisStreamManager(consumer_id="cline-1")
await manager.initialize()
for message in await manager.read_messages("agent_wavefront"):
    ...
    await manager.acknowledge(message, "agent_wavefront")
"""

from penstock.manager.configuration import ConsumerGroupConfig, DLQConfig, StreamType
from penstock.manager.manager import RedisStreamManager, create_stream_manager
from penstock.manager.message import MessageStatus, StreamMessage

__all__ = [
    "ConsumerGroupConfig",
    "DLQConfig",
    "MessageStatus",
    "RedisStreamManager",
    "StreamMessage",
    "StreamType",
    "create_stream_manager",
]
