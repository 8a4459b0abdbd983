"""Which name on the wire means which Python type. A name has one meaning; a type without a name is plain JSON."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import is_dataclass
from functools import lru_cache
from typing import Any

from penstock.errors import ConfigurationError
from penstock.message.codec import json_reader
from penstock.message.pydantic_models import is_pydantic


@lru_cache(maxsize=1024)
def type_name(cls: type) -> str | None:
    """The name `cls` has on the wire: its `message_type`, else its bare class name; None for plain JSON and bytes."""
    declared = getattr(cls, "message_type", None)
    if isinstance(declared, str) and declared:
        return declared
    is_record = hasattr(cls, "__struct_fields__") or is_dataclass(cls) or is_pydantic(cls)
    return cls.__name__ if is_record or _is_typed_dict(cls) or hasattr(cls, "__attrs_attrs__") else None


class Catalog:
    """Types by wire name. What is not in it reads as plain JSON."""

    def __init__(self, types: "Iterable[Any] | Mapping[str, Any]" = ()) -> None:
        self._types: dict[str, Any] = {}
        self.json_readers: dict[str, Callable[[bytes, int], Any]] = {}
        """The strict JSON reader of each name, for the hot path."""
        if isinstance(types, Mapping):
            for name, tp in types.items():
                self.add(tp, name=name)
        else:
            for tp in types:
                self.add(tp)

    def add(self, tp: Any, *, name: str | None = None) -> None:
        """Read messages of this name as `tp`. A second type for a name, or one that JSON cannot fill, is refused."""
        if name is None:
            name = type_name(tp) if isinstance(tp, type) else None
        if not name:
            raise ConfigurationError(f"{tp!r} has no name of its own: use a record type, or give name=")
        known = self._types.get(name, tp)
        if known is not tp and known != tp:
            raise ConfigurationError(
                f"two types claim the wire name {name!r}: {known!r} and {tp!r}; set message_type on one of them"
            )
        try:
            self.json_readers[name] = json_reader(tp)
        except Exception as error:
            raise ConfigurationError(f"{tp!r} cannot be read from JSON: {error}") from error
        self._types[name] = tp

    def copy(self) -> "Catalog":
        return Catalog(self._types)

    def find(self, name: str | None) -> Any | None:
        """The type of that name, or None: plain JSON."""
        return self._types.get(name) if name is not None else None


def _is_typed_dict(cls: type) -> bool:
    return issubclass(cls, dict) and hasattr(cls, "__total__") and hasattr(cls, "__required_keys__")
