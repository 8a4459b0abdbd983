"""A conversation: what is said in it, to whom, and what its followers see."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid5

import msgspec
from msgspec import Struct

from penstock.agents.bodies import ChatMessage
from penstock.agents.fan_out import FanOut
from penstock.agents.speech import Speech
from penstock.agents.topics import check_agent, check_conversation, conversation_topic, inbox_topic, stream_topic
from penstock.bus.publisher import Receipt, as_message
from penstock.delivery.delivery import AnyDelivery
from penstock.errors import PublishError
from penstock.message.ids import new_id
from penstock.message.message import Message
from penstock.options import Sending, check_kind
from penstock.tail.places import After
from penstock.tail.tail import Tail

if TYPE_CHECKING:
    from penstock.app import Penstock


class Said(Struct, frozen=True):
    """A message is in its conversation, before its followers, and in the inbox of each recipient."""

    id: str
    """Its UUID: one for all copies."""

    copies: tuple[Receipt, ...]
    """The conversation's own first, then the followers', then one for each recipient."""

    @property
    def duplicate(self) -> bool:
        """All of it was there already."""
        return all(copy.duplicate for copy in self.copies)


class Conversation:
    """One conversation, by its id; without one, a new conversation. Nothing is written before something is said."""

    def __init__(self, app: "Penstock", id: str | None = None) -> None:
        self.id = check_conversation(new_id() if id is None else id)
        self.topic = conversation_topic(self.id)
        self.stream = stream_topic(self.id)
        self._app = app
        self._fan_out = FanOut(app, self.topic)

    async def say(
        self,
        content: str,
        *,
        sender: str = "",
        to: str | Sequence[str] = (),
        id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Said:
        """Add a message, for followers and for the agents named in `to` too. All copies have one id.

        The conversation comes first, so whoever finds a message in an inbox finds it in the conversation too. If that
        fails half-way, say it again under the same `id` (the error carries it): what is missing is completed with what
        was said the first time, and nothing is there twice. In a handler, `answer_id` makes ids that stay the same when
        it runs again.
        """
        check_kind("say(...)", content, str)
        check_kind("say(sender=...)", sender, str)
        body = ChatMessage(content, sender, _agents(to), self.id, dict(metadata or {}))
        message = as_message(body, id=id)
        return Said(message.id, await self._fan_out.publish(message, self._places))

    def speech(self, sender: str, *, answering: AnyDelivery | None = None, part: int = 0) -> Speech:
        """Begin a message that is said piece by piece: followers see each piece as it comes.

        `answering` is the delivery that is being handled: run again, the handler then takes up the same message. One
        that says several things to one delivery numbers them by `part`.
        """
        id = answer_id(answering, sender, part) if answering is not None else new_id()
        fence = answering.fence if answering is not None else 0
        return Speech(self, id, sender, fence)

    async def emit(self, type: str, body: Any) -> Receipt:
        """Show followers something that is no message, such as a step that an agent takes, under a type of its own."""
        return await self._fan_out.bus(self.stream).publish(body, sending=Sending(type=type))

    def messages(self, *, after: After = "earliest") -> Tail:
        """Everything that was said, and what will be."""
        return self._app.tail(self.topic, after=after)

    def events(self, *, after: After = "latest") -> Tail:
        """What followers see: messages, tokens, and whatever else was shown."""
        return self._app.tail(self.stream, after=after)

    def _places(self, message: Message[Any]) -> list[str]:
        """Where copies of a message of ours belong, also if it was stored by somebody else."""
        try:
            body = msgspec.convert(message.body, ChatMessage)
        except msgspec.ValidationError as error:
            raise PublishError(
                f"message {message.id} of {self.topic!r} was published before, and is none of a chat ({error}): say"
                " this one under another id"
            ) from error
        return [self.stream, *map(inbox_topic, body.recipients)]

    def __repr__(self) -> str:
        return f"<Conversation {self.id}>"


def answer_id(heard: AnyDelivery, sender: str, part: int = 0) -> str:
    """The id of what `sender` says to a message it was delivered: the same however often it is delivered.

    Something else that it says to the same message needs another `part`, else it counts as said already.
    """
    return str(uuid5(UUID(heard.id), f"{sender}/{part}"))


def _agents(to: str | Sequence[str]) -> tuple[str, ...]:
    names = (to,) if isinstance(to, str) else tuple(to)
    return tuple(dict.fromkeys(map(check_agent, names)))
