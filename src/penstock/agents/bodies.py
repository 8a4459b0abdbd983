"""What is said on agents' topics. Each is a JSON object that any program can write: only its first field is needed."""

from enum import Enum
from typing import Any, ClassVar, TypeVar

import msgspec
from msgspec import Struct

from penstock.errors import MalformedError
from penstock.tail.items import Tailed

T = TypeVar("T")


class ChatMessage(Struct, frozen=True, omit_defaults=True):
    """Something said, in a conversation or to an agent."""

    message_type: ClassVar[str] = "chat"

    content: str

    sender: str = ""
    """Who said it: an agent's name, or what a user is called."""

    recipients: tuple[str, ...] = ()
    """The agents that have a copy in their inbox."""

    conversation_id: str = ""
    """Empty if it was said to an agent outside of any conversation."""

    metadata: dict[str, Any] = {}


class Token(Struct, frozen=True, omit_defaults=True):
    """A piece of a message that is still being said.

    A message may be begun more than once, because its agent failed: what has a larger `fence` replaces everything that
    has a smaller one, and what has a smaller one and comes late is to be ignored.
    """

    message_type: ClassVar[str] = "token"

    text: str

    message_id: str = ""
    """The id that the whole message will have."""

    index: int = 0
    """The first piece is 0."""

    fence: int = 0
    sender: str = ""


class Order(Enum):
    """What an agent can be told."""

    PAUSE = "pause"
    """Take nothing up any more; what is under way goes on. It lasts over restarts."""

    RESUME = "resume"

    STOP = "stop"
    """End, in good order. It is for those that run now: one that starts later is not concerned."""


class Command(Struct, frozen=True, omit_defaults=True):
    """A word to an agent's subscription, wherever it runs."""

    message_type: ClassVar[str] = "control"

    command: Order
    reason: str = ""


def read_as(item: Tailed, tp: type[T]) -> T:
    """The body of what a tail gave, as one of these; `MalformedError` if it is none."""
    try:
        return msgspec.convert(item.message.body, tp)
    except msgspec.ValidationError as error:
        reason = f"its payload is no {tp.__name__}: {error}"
        raise MalformedError(item.topic, item.entry_id, reason, item.fields) from error
