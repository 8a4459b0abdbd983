"""The example's two agents: who says what, and every word of it on the stream."""

import json

from examples.agents.talk import declare
from penstock.agents import Conversation
from tests.support.stage import Stage


async def test_two_agents_talk_until_the_planner_has_the_last_word(stage: Stage) -> None:
    declare(stage.app, pause=0)
    conversation = Conversation(stage.app)
    async with stage.running(*stage.app.handled_faces):
        await conversation.say("Plan: a garden.", sender="you", to="planner")
        await stage.until(lambda: stage.admin.xlen(conversation.topic) == 6)
        await stage.settled("planner", topic="chat:planner")
        await stage.settled("critic", topic="chat:critic")
    said = [json.loads(fields[b"payload"]) for _, fields in stage.admin.xrange(conversation.topic)]
    assert [one["sender"] for one in said] == ["you", "planner", "critic", "planner", "critic", "planner"]
    assert all("a garden" in one["content"] for one in said)
    spoken: dict[str, str] = {}
    for _, fields in stage.admin.xrange(conversation.stream):
        if fields[b"type"] == b"token":
            token = json.loads(fields[b"payload"])
            spoken[token["message_id"]] = spoken.get(token["message_id"], "") + token["text"]
    assert list(spoken.values()) == [one["content"] for one in said[1:]]
