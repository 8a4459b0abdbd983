"""Asking a server many things without flooding it."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

_AT_ONCE = 16


async def in_turn(items: Iterable[T], look: Callable[[T], Awaitable[R]]) -> list[R]:
    """Look at each, a few at a time: one answer for each, in order."""
    left, found = list(items), list[R]()
    for start in range(0, len(left), _AT_ONCE):
        found += await asyncio.gather(*(look(one) for one in left[start : start + _AT_ONCE]))
    return found
