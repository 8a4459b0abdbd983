"""From a stored entry to a message of the type that the reader wants."""

from collections.abc import Callable
from types import UnionType
from typing import Any, Union, get_args, get_origin

from msgspec.structs import replace

from penstock.backend.entry import Stored
from penstock.errors import ConfigurationError, MalformedError
from penstock.message.catalog import type_name
from penstock.message.codec import json_reader
from penstock.message.faults import Unreadable, describe
from penstock.message.message import Message
from penstock.message.strict_json import encode
from penstock.message.wire import Wire

_DEPTH = 1000  # the body has passed the topic's own limit already


class Opening:
    """Reads the entries of one topic. Without a type, bodies are what the wire makes of them: plain JSON, mostly.

    A message without a type is taken to be of the only one there is; with `any_name`, so is one of another name.
    """

    def __init__(self, topic: str, wire: Wire, of: Any = None, *, any_name: bool = False) -> None:
        self._topic = topic
        self._any_name = any_name
        self._wire = wire.copy()
        self._names: dict[str, Any] = {}
        self._check: Callable[[Message[Any]], Message[Any]] | None = None
        if of is None or of is Any:
            return
        if of is dict:
            self._check = _object
            return
        kinds = get_args(of) if get_origin(of) in (Union, UnionType) else (of,)
        for kind in kinds:
            name = type_name(kind) if isinstance(kind, type) else None
            if name is None:
                raise ConfigurationError(
                    f"changes of {kind!r} cannot be told from others: use a dataclass, a msgspec.Struct or a pydantic"
                    " model, `dict` for JSON objects, or nothing for whatever comes"
                )
            self._wire.types.add(kind)
            self._names[name] = kind
        self._check = self._typed

    def message(self, entry: Stored) -> Message[Any]:
        """What was said; `MalformedError` if it is nothing that this reader can take."""
        try:
            message = self._wire.try_unpack(self._topic, entry.id, entry.fields)
            return message if self._check is None else self._check(message)
        except Exception as error:
            raise self.refusal(entry, error) from error

    def refusal(self, entry: Stored, error: Exception) -> MalformedError:
        return self._wire.refusal(self._topic, entry.id, entry.fields, error)

    def _typed(self, message: Message[Any]) -> Message[Any]:
        if message.type in self._names:
            return message
        wanted = " or ".join(self._names)
        if len(self._names) > 1 or not (message.type is None or self._any_name):
            raise Unreadable(f"it is of type {message.type or 'none'!r}, and this stream is of {wanted}")
        ((name, kind),) = self._names.items()
        try:
            return replace(message, body=json_reader(kind)(encode(message.body), _DEPTH))
        except Exception as error:
            raise Unreadable(f"its payload cannot be read as {name}: {describe(error)}") from error


def _object(message: Message[Any]) -> Message[Any]:
    if not isinstance(message.body, dict):
        raise Unreadable(f"its payload is no JSON object, but {type(message.body).__name__}")
    return message
