"""Agents that talk to each other over topics: inboxes, conversations, streamed tokens, and control.

planner = Agent(app, "planner")

@planner.hears
async def answer(heard: Delivery[ChatMessage]) -> None:
    conversation = Conversation(app, heard.body.conversation_id)
    await conversation.say("It is done.", sender="planner", id=answer_id(heard, "planner"))

await Conversation(app).say("Do it.", sender="user", to="planner")
await Control(app, "planner").pause()
"""

from penstock.agents.agent import Agent
from penstock.agents.bodies import ChatMessage, Command, Order, Token, read_as
from penstock.agents.control import Control
from penstock.agents.conversation import Conversation, Said, answer_id
from penstock.agents.speech import Speech
from penstock.agents.topics import (
    AgentTopic,
    Purpose,
    control_topic,
    conversation_topic,
    inbox_topic,
    parse_topic,
    stream_topic,
)

__all__ = [
    "Agent",
    "AgentTopic",
    "ChatMessage",
    "Command",
    "Control",
    "Conversation",
    "Order",
    "Purpose",
    "Said",
    "Speech",
    "Token",
    "answer_id",
    "control_topic",
    "conversation_topic",
    "inbox_topic",
    "parse_topic",
    "read_as",
    "stream_topic",
]
