"""What `read_messages` returns: awaited it is one read, iterated it goes on."""

from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from typing import Any

from penstock.manager.message import StreamMessage

ReadOnce = Callable[[], Awaitable[list[StreamMessage]]]
ReadOn = Callable[[], AsyncIterator[StreamMessage]]


class MessageRead:
    """Nothing is read before it is awaited or iterated; each await, and each iteration, reads anew."""

    def __init__(self, once: ReadOnce, on: ReadOn) -> None:
        self._once = once
        self._on = on

    def __await__(self) -> Generator[Any, None, list[StreamMessage]]:
        return self._once().__await__()

    def __aiter__(self) -> AsyncIterator[StreamMessage]:
        return self._on()
