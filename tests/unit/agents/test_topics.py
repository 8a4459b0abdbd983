"""Names of agents' topics: built, taken apart, and never two things under one name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.agents import (
    AgentTopic,
    Purpose,
    control_topic,
    conversation_topic,
    inbox_topic,
    parse_topic,
    stream_topic,
)
from penstock.backend import keys
from penstock.errors import ConfigurationError
from penstock.message.ids import new_id

REST = st.text("abcdefABCDEF0123456789._-", max_size=40)
UUIDS = st.uuids().map(str)
CONVERSATIONS = st.one_of(UUIDS, st.builds("{}{}".format, st.sampled_from("0123456789"), REST))
AGENTS = st.builds("{}{}".format, st.sampled_from("abcXYZ"), REST)
SOME_ID = "f198c0de-5a5a-7abc-8def-0123456789ab"  # it begins with a letter
BUILDERS = {
    Purpose.CONVERSATION: conversation_topic,
    Purpose.INBOX: inbox_topic,
    Purpose.STREAM: stream_topic,
    Purpose.CONTROL: control_topic,
}


@st.composite
def built(draw: st.DrawFn) -> tuple[AgentTopic, str]:
    purpose = draw(st.sampled_from(Purpose))
    name = draw(CONVERSATIONS if purpose in (Purpose.CONVERSATION, Purpose.STREAM) else AGENTS)
    return AgentTopic(purpose, name), BUILDERS[purpose](name)


@given(built(), built(), st.sampled_from(["", "prod:", "{team}:", "chat:"]))
def test_every_topic_tells_what_it_is_for_and_whose(
    one: tuple[AgentTopic, str], other: tuple[AgentTopic, str], prefix: str
) -> None:
    parts, topic = one
    assert parse_topic(prefix + topic, prefix=prefix) == parts
    assert parts.topic == topic
    assert keys.may_create(prefix + topic)
    assert (one[0] == other[0]) == (one[1] == other[1])


@given(st.text("chatsremonl:abAB019.-_{} é", max_size=30))
def test_what_is_parsed_is_built_again_exactly(topic: str) -> None:
    try:
        parts = parse_topic(topic)
    except ConfigurationError:
        return
    assert parts.topic == topic


def test_the_topics_of_seed_002_are_these() -> None:
    assert conversation_topic("42") == "chat:42"
    assert inbox_topic("DevAgent") == "chat:DevAgent"
    assert stream_topic("42") == "stream:42"
    assert control_topic("DevAgent") == "control:DevAgent"
    assert parse_topic("chat:42").purpose is Purpose.CONVERSATION
    assert parse_topic("chat:DevAgent").purpose is Purpose.INBOX


@pytest.mark.parametrize("name", ["", "conv", "conv_1", "a b", "7:1", "é", "1" * 129, None, 7])
def test_what_would_be_an_agent_is_no_conversation(name: object) -> None:
    with pytest.raises(ConfigurationError, match="conversation id"):
        conversation_topic(name)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["", "7up", "a b", "a:b", "ä", "a" * 129, SOME_ID, SOME_ID.upper(), None])
def test_what_would_be_a_conversation_is_no_agent(name: object) -> None:
    with pytest.raises(ConfigurationError, match="agent's name"):
        inbox_topic(name)  # type: ignore[arg-type]


def test_a_uuid_in_capitals_is_the_same_conversation_and_no_topic_of_its_own() -> None:
    id = new_id()
    assert conversation_topic(id.upper()) == conversation_topic(id)
    with pytest.raises(ConfigurationError, match="lower case"):
        parse_topic(f"chat:{id.upper()}")


@pytest.mark.parametrize(
    "topic", ["orders", "chat", "chat:", "dlq:a", "stream:DevAgent", "control:42", "chat:a:b", None]
)
def test_other_topics_are_refused(topic: object) -> None:
    with pytest.raises(ConfigurationError):
        parse_topic(topic)  # type: ignore[arg-type]
