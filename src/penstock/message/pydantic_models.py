"""Bodies that are pydantic models, for users who have pydantic; nothing here is loaded for those who have not."""

import importlib
from functools import lru_cache
from typing import Any


def is_pydantic(tp: object) -> bool:
    """Whether `tp` is a pydantic model or a pydantic dataclass, told without importing pydantic."""
    return isinstance(tp, type) and hasattr(tp, "__pydantic_validator__")


@lru_cache(maxsize=1024)
def adapter_for(tp: type) -> Any:
    """pydantic's own reader and writer of `tp`."""
    return importlib.import_module("pydantic").TypeAdapter(tp)
