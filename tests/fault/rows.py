"""How a test says which row of the fault table it is."""

from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def row(name: str, *, redis: bool = False) -> Callable[[F], F]:
    """Row `name`; always on Valkey, on Redis too if `redis`, and on both in full size."""

    def mark(test: F) -> F:
        test.row = name, redis  # type: ignore[attr-defined]
        return test

    return mark
