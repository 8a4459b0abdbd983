"""Seed 002's wire on agents' topics: plain redis-py and agents write for each other, and read each other."""

import asyncio
import json
import uuid

import pytest

from penstock import Delivery, Retry, Tailed
from penstock.agents import Agent, ChatMessage, Control, Conversation, Token, read_as
from penstock.bus.bus import Bus
from penstock.errors import WrongKeyTypeError
from penstock.message.ids import foreign_id, new_id
from tests.support.servers import Server
from tests.support.stage import Stage
from tests.support.tailing import take

BOTH = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)


@pytest.fixture
def name() -> str:
    """Of an agent that nobody else uses."""
    return f"agent-{new_id()}"


def collecting(agent: Agent) -> "asyncio.Queue[Delivery[ChatMessage]]":
    heard: asyncio.Queue[Delivery[ChatMessage]] = asyncio.Queue()
    agent.hears(heard.put)
    return heard


@BOTH
async def test_an_agent_hears_what_the_seeds_snippet_appends(server: Server, stage: Stage, name: str) -> None:
    agent = Agent(stage.app, name)
    heard = collecting(agent)
    topic, bus_id = f"chat:{name}", str(uuid.uuid4())
    with server.client(decode_responses=True) as r:
        r.xgroup_create(topic, name, id="0", mkstream=True)  # as the seed's own group set-up does
        r.xadd(topic, {"id": bus_id, "payload": json.dumps({"content": "hello"})})
        r.xadd(topic, {"id": "123", "payload": '{"content":"hi"}'})
        r.xadd(topic, {"id": str(uuid.uuid4()), "payload": '{"no content": 1}'})
        r.xadd(topic, {"payload": json.dumps({"content": "more", "sender": "u", "created_at": "2026-01-01"})})
        async with stage.running(agent.bus), asyncio.timeout(10):
            found = {one.body.content: one for one in [await heard.get() for _ in range(3)]}
            await stage.settled(name, topic=topic)
        assert {text: one.id for text, one in found.items() if text != "more"} == {
            "hello": bus_id,
            "hi": foreign_id(topic, b"123"),
        }
        assert found["more"].body == ChatMessage("more", "u")
        assert [letter.reason for letter in [one async for one in agent.bus.dead]] == [
            "its payload cannot be read as chat: ValidationError: Object missing required field `content`"
        ]
        assert r.xpending(topic, name)["pending"] == 0


@BOTH
async def test_the_seeds_snippets_tail_and_read_what_a_conversation_wrote(
    server: Server, stage: Stage, name: str
) -> None:
    conversation = Conversation(stage.app)
    said = await conversation.say("hello", sender="user", to=name)
    speech = conversation.speech(name)
    for piece in ("Hel", "lo"):
        await speech.token(piece)
    answered = await speech.end()
    with server.client(decode_responses=True) as r:
        entries = r.xrevrange(f"chat:{conversation.id}", "+", "-", count=10) or []
        entries.reverse()
        payloads = [(fields.get("id"), json.loads(fields.get("payload", "{}"))) for _, fields in entries]
        assert payloads == [
            (
                said.id,
                {"content": "hello", "sender": "user", "recipients": [name], "conversation_id": conversation.id},
            ),
            (answered.id, {"content": "Hello", "sender": name, "conversation_id": conversation.id}),
        ]
        group, consumer = "g1", "c1"
        r.xgroup_create(f"chat:{name}", group, id="0", mkstream=True)
        ((_, items),) = r.xreadgroup(groupname=group, consumername=consumer, streams={f"chat:{name}": ">"}, count=10)
        assert [fields["id"] for _, fields in items] == [said.id]
        assert [r.xack(f"chat:{name}", group, entry_id) for entry_id, _ in items] == [1]
        shown = r.xrange(f"stream:{conversation.id}")
        assert [(fields["type"], fields["id"] == speech.id) for _, fields in shown] == [
            ("chat", False), ("token", False), ("token", False), ("chat", True),
        ]  # fmt: skip
        tokens = [json.loads(fields["payload"]) for _, fields in shown if fields["type"] == "token"]
        assert tokens == [
            {"text": "Hel", "message_id": answered.id, "sender": name},
            {"text": "lo", "message_id": answered.id, "sender": name, "index": 1},
        ]


async def test_a_piece_that_could_not_be_shown_is_no_part_of_the_message(stage: Stage, name: str) -> None:
    conversation = Conversation(stage.app)
    speech = conversation.speech(name)
    stage.admin.set(conversation.stream, "in the way")
    with pytest.raises(WrongKeyTypeError):
        await speech.token("Hel")
    stage.admin.delete(conversation.stream)
    await asyncio.gather(*map(speech.token, ("Hel", "lo")))
    await speech.end()
    async with conversation.events(after="earliest") as events:
        *tokens, whole = await take(events, 3)
    shown = [read_as(token, Token) for token in tokens if isinstance(token, Tailed)]
    assert [(token.text, token.index) for token in shown] == [("Hel", 0), ("lo", 1)]
    assert isinstance(whole, Tailed)
    assert read_as(whole, ChatMessage).content == "Hello"


async def test_followers_read_what_was_said_as_what_it_is(stage: Stage, name: str) -> None:
    conversation = Conversation(stage.app, "42-" + new_id())
    async with conversation.events() as events, conversation.messages() as messages:
        said = await conversation.say("hello", to=[name, name], metadata={"mood": 1})
        await conversation.speech(name).token("Hm")
        await conversation.emit("tool_step", {"tool": "search"})
        first, token, step = await take(events, 3)
        (kept,) = await take(messages, 1)
    assert isinstance(first, Tailed)
    assert isinstance(kept, Tailed)
    expected = ChatMessage("hello", "", (name,), conversation.id, {"mood": 1})
    assert read_as(first, ChatMessage) == read_as(kept, ChatMessage) == expected
    assert first.message.id == kept.message.id == said.id
    assert isinstance(token, Tailed)
    assert read_as(token, Token).text == "Hm"
    assert isinstance(step, Tailed)
    assert (step.message.type, step.message.body) == ("tool_step", {"tool": "search"})


@BOTH
async def test_commands_travel_as_plain_json_in_both_directions(server: Server, stage: Stage, name: str) -> None:
    agent = Agent(stage.app, name, retry=Retry(attempts=1))
    collecting(agent)
    with server.client(decode_responses=True) as r:
        receipt = await Control(stage.app, name).pause("lunch")
        ((entry_id, fields),) = r.xrange(f"control:{name}")
        assert (entry_id, fields["id"]) == (receipt.entry_id, receipt.id)
        assert json.loads(fields["payload"]) == {"command": "pause", "reason": "lunch"}
        async with stage.running(agent.bus) as run:
            r.xadd(f"control:{name}", {"id": str(uuid.uuid4()), "payload": json.dumps({"command": "stop"})})
            async with asyncio.timeout(10):
                await run


def test_an_agent_is_a_bus_of_its_inbox(stage: Stage) -> None:
    agent = Agent(stage.app, "planner")
    assert isinstance(agent.bus, Bus)
    assert (agent.bus.topics, agent.bus.group, repr(agent)) == (("chat:planner",), "planner", "<Agent planner>")
