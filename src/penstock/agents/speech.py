"""A message that is said piece by piece."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from penstock.agents.bodies import Token
from penstock.errors import ConfigurationError

if TYPE_CHECKING:
    from penstock.agents.conversation import Conversation, Said


class Speech:
    """Made by `Conversation.speech`. Followers see its tokens; the conversation has the message when it is ended."""

    def __init__(self, conversation: "Conversation", id: str, sender: str, fence: int) -> None:
        self.id = id
        """The id that the message will have."""

        self._conversation = conversation
        self._sender = sender
        self._fence = fence
        self._pieces: list[str] = []
        self._is_over = False
        self._turn = asyncio.Lock()

    async def token(self, text: str) -> None:
        """Show followers the next piece. If that fails, it is no part of the message: show it again, or go on."""
        async with self._turn:  # those who do not wait for one another would show two pieces at one index
            self._check_goes_on()
            token = Token(text, self.id, len(self._pieces), self._fence, self._sender)
            await self._conversation.emit(Token.message_type, token)
            self._pieces.append(text)

    async def end(self, *, to: str | Sequence[str] = (), metadata: Mapping[str, Any] | None = None) -> "Said":
        """Say the whole message, to these agents too. Idempotent until it has succeeded."""
        async with self._turn:
            self._check_goes_on()
            whole = "".join(self._pieces)
            said = await self._conversation.say(whole, sender=self._sender, to=to, id=self.id, metadata=metadata)
            self._is_over = True
            return said

    def _check_goes_on(self) -> None:
        if self._is_over:
            raise ConfigurationError(f"message {self.id} of {self._conversation!r} was said already: begin another")
