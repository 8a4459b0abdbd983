"""One message on several topics: one id, one content, and nothing twice, whatever breaks in between."""

import asyncio
import json
import signal
import subprocess
import sys
from typing import Any

import pytest
import redis

from penstock import Delivery, Penstock
from penstock.agents import Agent, ChatMessage, Conversation, answer_id
from penstock.errors import ConfigurationError, EncodeError, PartlyPublishedError, PublishError, WrongKeyTypeError
from penstock.message.ids import new_id
from tests.support.servers import Server
from tests.support.stage import QUICK, Stage

BOTH = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)

DYING = """
import asyncio, os, signal, sys
from penstock import Bus, Penstock
from penstock.agents import Conversation

url, conversation, id, content, copies, *to = sys.argv[1:]
turn, publish, left = asyncio.Lock(), Bus.publish, int(copies)

async def until_it_dies(*args, **options):
    global left
    async with turn:
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1
        return await publish(*args, **options)

Bus.publish = until_it_dies

async def main():
    async with Penstock.connect(url) as app:
        await Conversation(app, conversation).say(content, sender="user", to=to, id=id)

asyncio.run(main())
"""


def names(count: int) -> list[str]:
    return [f"agent-{new_id()}" for _ in range(count)]


def copies(admin: "redis.Redis", *topics: str) -> list[list[tuple[str, Any]]]:
    """For each topic what is there: ids and contents."""
    return [
        [(fields[b"id"].decode(), json.loads(fields[b"payload"])["content"]) for _, fields in admin.xrange(topic)]
        for topic in topics
    ]


def die_after(count: int, url: str, conversation: str, id: str, to: list[str]) -> None:
    """A process that says something, and is killed when so many copies are written."""
    done = subprocess.run(
        [sys.executable, "-c", DYING, url, conversation, id, "first", str(count), *to], timeout=30, check=False
    )
    assert done.returncode == -signal.SIGKILL


@pytest.mark.parametrize("count", [1, 2, 3])
async def test_what_a_killed_process_began_is_completed_by_the_same_call(
    server: Server, stage: Stage, admin: "redis.Redis", count: int
) -> None:
    to, id, conversation = names(2), new_id(), Conversation(stage.app)
    topics = [conversation.topic, conversation.stream, *[f"chat:{name}" for name in to]]
    await asyncio.to_thread(die_after, count, server.url, conversation.id, id, to)
    assert sorted(map(len, copies(admin, *topics)), reverse=True) == [1] * count + [0] * (4 - count)
    assert len(copies(admin, topics[0])[0]) == 1, "the conversation comes first"
    for _ in range(2):
        said = await conversation.say("another wording", sender="user", to=to, id=id)
        assert said.id == id
        assert [copy.topic for copy in said.copies] == topics
        assert copies(admin, *topics) == [[(id, "first")]] * 4
    assert said.duplicate


@BOTH
async def test_a_copy_that_cannot_be_written_is_named_and_added_later(stage: Stage, admin: "redis.Redis") -> None:
    (good, bad), conversation = names(2), Conversation(stage.app)
    admin.set(f"chat:{bad}", "in the way")
    with pytest.raises(PartlyPublishedError, match=f"not known to be in 'chat:{bad}'") as raised:
        await conversation.say("hello", to=[good, bad])
    error = raised.value
    assert error.written == (conversation.topic, conversation.stream, f"chat:{good}")
    assert error.missing == (f"chat:{bad}",)
    assert isinstance(error.__cause__, WrongKeyTypeError)
    admin.delete(f"chat:{bad}")
    said = await conversation.say("hello", to=[good, bad], id=error.id)
    assert [copy.duplicate for copy in said.copies] == [True, True, True, False]
    assert copies(admin, *[copy.topic for copy in said.copies]) == [[(error.id, "hello")]] * 4


async def test_whoever_was_addressed_first_gets_what_is_completed(stage: Stage, admin: "redis.Redis") -> None:
    (meant, other), conversation, id = names(2), Conversation(stage.app), new_id()
    admin.set(f"chat:{meant}", "in the way")
    with pytest.raises(PartlyPublishedError):
        await conversation.say("hello", to=meant, id=id)
    admin.delete(f"chat:{meant}")
    await conversation.say("hello", to=other, id=id)
    assert copies(admin, f"chat:{meant}", f"chat:{other}") == [[(id, "hello")], []]


async def test_where_the_record_is_trimmed_the_given_content_counts(stage: Stage, admin: "redis.Redis") -> None:
    (name,), conversation, id = names(1), Conversation(stage.app), new_id()
    admin.set(f"chat:{name}", "in the way")
    with pytest.raises(PartlyPublishedError):
        await conversation.say("hello", to=name, id=id)
    admin.delete(f"chat:{name}")
    admin.xtrim(conversation.topic, 0, approximate=False)
    await conversation.say("hello again", to=name, id=id)
    assert copies(admin, conversation.topic, f"chat:{name}") == [[], [(id, "hello again")]]


async def test_without_the_record_there_are_no_copies(stage: Stage, admin: "redis.Redis") -> None:
    (name,), conversation = names(1), Conversation(stage.app)
    admin.set(conversation.topic, "in the way")
    with pytest.raises(WrongKeyTypeError):
        await conversation.say("hello", to=name)
    with pytest.raises(EncodeError):
        await Conversation(stage.app).say("hello", to=name, id="no uuid")
    assert not admin.exists(conversation.stream, f"chat:{name}")


async def test_an_id_that_something_else_has_is_refused(stage: Stage) -> None:
    conversation, id = Conversation(stage.app), new_id()
    await stage.app.bus(conversation.topic).publish(["no chat"], id=id)
    with pytest.raises(PublishError, match="another id"):
        await conversation.say("hello", id=id)


async def test_a_handler_that_runs_again_answers_once(stage: Stage, admin: "redis.Redis") -> None:
    (asker, answerer), conversation = names(2), Conversation(stage.app)
    agent = Agent(stage.app, answerer, retry=QUICK)
    fences: list[int] = []

    @agent.hears
    async def answer(heard: Delivery[ChatMessage]) -> None:
        talk = Conversation(stage.app, heard.body.conversation_id)
        speech = talk.speech(answerer, answering=heard)
        fences.append(heard.fence)
        await speech.token(f"wording {heard.attempt}")
        await speech.end(to=heard.body.sender)
        await talk.say("and one more", sender=answerer, id=answer_id(heard, answerer, 1))
        if heard.attempt < 3:
            raise OSError("after all was said")

    async with stage.running(agent.bus):
        said = await conversation.say("question", sender=asker, to=answerer)
        await stage.settled(answerer, topic=f"chat:{answerer}")
    kept, asked = copies(admin, conversation.topic, f"chat:{asker}")
    assert [content for _, content in kept] == ["question", "wording 1", "and one more"]
    assert [content for _, content in asked] == ["wording 1"]
    assert len({said.id, *[id for id, _ in kept]}) == 3
    tokens = [json.loads(one[b"payload"]) for _, one in admin.xrange(conversation.stream) if one[b"type"] == b"token"]
    assert [token["fence"] for token in tokens] == fences == sorted(set(fences))
    assert len({token["message_id"] for token in tokens}) == 1


async def test_a_speech_is_ended_once(stage: Stage) -> None:
    speech = Conversation(stage.app).speech("planner")
    await speech.token("so")
    await speech.end()
    for again in (speech.end, lambda: speech.token("on")):
        with pytest.raises(ConfigurationError, match="said already"):
            await again()


@pytest.mark.parametrize("to", ["7up", ["ok", "not ok"], "f198c0de-5a5a-7abc-8def-0123456789ab"])
async def test_who_is_addressed_must_be_an_agent(stage: Stage, to: "str | list[str]") -> None:
    conversation = Conversation(stage.app)
    with pytest.raises(ConfigurationError, match="agent's name"):
        await conversation.say("hello", to=to)
    assert not stage.admin.exists(conversation.topic)


async def test_what_is_said_must_be_text(stage: Stage) -> None:
    conversation = Conversation(stage.app)
    for wrong in ({"content": None}, {"content": "x", "sender": 7}, {"content": "x", "id": 7}):
        with pytest.raises(ConfigurationError):
            await conversation.say(**wrong)  # type: ignore[arg-type]
    assert not stage.admin.exists(conversation.topic)


async def test_an_apps_prefix_goes_before_all_of_it(server: Server, admin: "redis.Redis") -> None:
    (name,) = names(1)
    async with Penstock.connect(server.url, prefix="{team}:") as app:
        said = await Conversation(app, "7").say("hello", to=name, id=new_id())
    topics = ["{team}:chat:7", "{team}:stream:7", f"{{team}}:chat:{name}"]
    assert [copy.topic for copy in said.copies] == topics
    assert [admin.exists(topic) for topic in topics] == [1, 1, 1]
    admin.delete(*topics)
