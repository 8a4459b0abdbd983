"""Two agents in conversation: a planner that answers, and a critic that has something to say about every answer.

What they say is made up word by word, as a language model would: put yours where `_words` is.
"""

import asyncio
from collections.abc import AsyncIterator

from penstock import Delivery, Penstock
from penstock.agents import Agent, ChatMessage, Conversation

ROUNDS = 2
"""How often the critic is heard before the planner has the last word."""


def declare(app: Penstock, *, pause: float = 0.05) -> None:
    """Give `app` both agents; `pause` is how many seconds a word takes."""
    for name, partner in (("planner", "critic"), ("critic", "planner")):
        _declare(app, Agent(app, name), partner, pause)


def _declare(app: Penstock, agent: Agent, partner: str, pause: float) -> None:
    @agent.hears
    async def answer(heard: Delivery[ChatMessage]) -> None:
        turn = int(heard.body.metadata.get("turn", 0))
        conversation = Conversation(app, heard.body.conversation_id)
        # Should this process die half-way, another one begins the same message anew, under the same id.
        speech = conversation.speech(agent.name, answering=heard)
        async for word in _words(agent.name, heard.body.content, turn, pause):
            await speech.token(word)
        is_over = agent.name == "planner" and turn >= 2 * ROUNDS
        await speech.end(to=() if is_over else partner, metadata={"turn": turn + 1})


async def _words(name: str, heard: str, turn: int, pause: float) -> AsyncIterator[str]:
    subject = heard.rsplit(": ", maxsplit=1)[-1].rstrip(".?!")
    if name == "critic":
        text = f"I have read plan {turn // 2 + 1} and miss a way back in: {subject}."
    elif turn == 0:
        text = f"My plan has three steps, look, try, and look again: {subject}."
    else:
        text = f"Here is plan {turn // 2 + 1}, with a way back: {subject}."
    for number, word in enumerate(text.split()):
        await asyncio.sleep(pause)
        yield word if number == 0 else f" {word}"
