"""The names of agents' topics, and what each name is for.

| topic                      | holds |
|----------------------------|-------|
| `chat:<conversation id>`   | everything that was said in a conversation |
| `chat:<agent name>`        | what was said to an agent: its inbox |
| `stream:<conversation id>` | what followers of a conversation watch: messages, and the tokens they are made of |
| `control:<agent name>`     | commands to an agent |

Two kinds of topic begin with `chat:`, so the name behind it must tell them apart by itself, to every program, without
asking anybody: a conversation id is a UUID or begins with a digit; an agent's name begins with a letter and is no UUID.
"""

import re
from dataclasses import dataclass
from enum import Enum

from penstock.errors import ConfigurationError
from penstock.message.ids import canonical

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_SPELLING = "of up to 128 letters, digits, '.', '_' and '-'"


class Purpose(Enum):
    """What a topic is for."""

    CONVERSATION = "conversation"
    INBOX = "inbox"
    STREAM = "stream"
    CONTROL = "control"


@dataclass(frozen=True, slots=True)
class AgentTopic:
    """A topic, taken apart."""

    purpose: Purpose

    name: str
    """The conversation's id, or the agent's name."""

    @property
    def topic(self) -> str:
        """The topic's name again, without an app's prefix."""
        return _BUILD[self.purpose](self.name)


def conversation_topic(conversation_id: str) -> str:
    """Where everything is that was said in a conversation."""
    return f"chat:{check_conversation(conversation_id)}"


def inbox_topic(agent: str) -> str:
    """Where an agent finds what was said to it."""
    return f"chat:{check_agent(agent)}"


def stream_topic(conversation_id: str) -> str:
    """What followers of a conversation watch."""
    return f"stream:{check_conversation(conversation_id)}"


def control_topic(agent: str) -> str:
    """Where an agent finds its commands."""
    return f"control:{check_agent(agent)}"


_BUILD = {
    Purpose.CONVERSATION: conversation_topic,
    Purpose.INBOX: inbox_topic,
    Purpose.STREAM: stream_topic,
    Purpose.CONTROL: control_topic,
}


def parse_topic(topic: str, *, prefix: str = "") -> AgentTopic:
    """What a topic is for, and whose. `ConfigurationError` if it is none of these.

    `prefix` is that of the app, which goes before every topic. Built again, it has exactly the name that is left.
    """
    if not isinstance(topic, str):
        raise ConfigurationError(f"a topic is a string, not {topic!r}")
    kind, colon, name = topic.removeprefix(prefix).partition(":")
    if not colon or kind not in ("chat", "stream", "control"):
        raise ConfigurationError(f"{topic!r} is no agents' topic: those begin with 'chat:', 'stream:' or 'control:'")
    is_conversation = kind == "stream" or (kind == "chat" and _is_conversation(name))
    if (check_conversation if is_conversation else check_agent)(name) != name:
        raise ConfigurationError(f"{topic!r} is another topic than the one in lower case: write its UUID like that")
    if kind == "chat":
        return AgentTopic(Purpose.CONVERSATION if is_conversation else Purpose.INBOX, name)
    return AgentTopic(Purpose(kind), name)


def check_conversation(conversation_id: str) -> str:
    """The id as topics have it: a UUID in lower case, or as it is."""
    if not isinstance(conversation_id, str) or _NAME.fullmatch(conversation_id) is None:
        raise ConfigurationError(f"a conversation id is a UUID, or a name {_SPELLING}, not {conversation_id!r:.200}")
    if not _is_conversation(conversation_id):
        raise ConfigurationError(
            f"a conversation id is a UUID or begins with a digit: {conversation_id!r} would be an agent of that name"
        )
    return canonical(conversation_id) or conversation_id


def check_agent(name: str) -> str:
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise ConfigurationError(f"an agent's name is one {_SPELLING}, not {name!r:.200}")
    if _is_conversation(name):
        raise ConfigurationError(
            f"an agent's name begins with a letter and is no UUID: {name!r} would be a conversation of that id"
        )
    return name


def _is_conversation(name: str) -> bool:
    return name[:1].isdigit() or canonical(name) is not None
