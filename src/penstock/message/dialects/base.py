"""What every dialect shares: the shape of a dialect, the rules of identity, and the checks of single values."""

from base64 import b64decode
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from penstock.errors import EncodeError
from penstock.message import fields as f
from penstock.message.catalog import type_name
from penstock.message.faults import Unreadable, describe
from penstock.message.ids import canonical, entry_uuid, foreign_id
from penstock.message.message import Message


class Dialect(Protocol):
    """Both methods may raise anything; `Wire` turns it into the error its caller was promised."""

    def pack(self, message: Message[Any], topic: str) -> list[bytes]: ...

    def unpack(self, topic: str, entry_id: str, fields: Sequence[bytes]) -> Message[Any]: ...


def identify(topic: str, entry_id: str, raw: bytes, headers: dict[str, str]) -> str:
    """The message's UUID. An id that is none is kept in `headers`; an empty one counts as no id at all."""
    if not raw:
        return entry_uuid(topic, entry_id)
    found = canonical(raw)
    if found is not None:
        return found
    headers[f.FOREIGN_ID] = raw.decode("utf-8", "backslashreplace")
    return foreign_id(topic, raw)


def own_id(message: Message[Any]) -> str:
    found = canonical(message.id) if isinstance(message.id, str) else None
    if found is None:
        raise EncodeError(f"a message's id must be a UUID, not {message.id!r}")
    return found


def own_type(message: Message[Any]) -> str | None:
    if message.type is not None:
        return message.type
    cls = message.body.__class__
    # Before the look-up: most bodies are one of these, and they have no name.
    return None if cls is dict or cls is list else type_name(cls)


def write_text(name: str, value: object, longest: int) -> bytes:
    """A text value for the wire. Empty is refused, since on the wire it means absent."""
    if not isinstance(value, str) or not value:
        raise EncodeError(f"a message's {name} must be None or a text that is not empty, not {value!r:.80}")
    try:
        raw = value.encode()
    except UnicodeEncodeError as error:
        raise EncodeError(f"the message's {name} holds a lone surrogate") from error
    if len(raw) > longest:
        raise EncodeError(f"the message's {name} has {len(raw)} bytes, the limit is {longest}")
    return raw


def read_text(name: str, raw: bytes, longest: int) -> str | None:
    """A text value from the wire; empty means absent."""
    if len(raw) > longest:
        raise Unreadable(f"{name} has {len(raw)} bytes, the limit is {longest}")
    try:
        return raw.decode() or None
    except UnicodeDecodeError as error:
        raise Unreadable(f"{name} is not UTF-8") from error


def optional_text(document: Mapping[str, Any], name: str) -> str | None:
    """A text in a JSON document, where absent, null and empty are one."""
    value = document.get(name)
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        raise Unreadable(f"{name!r} is not a string")
    return value


def read_base64(name: str, value: object) -> bytes:
    if not isinstance(value, str):
        raise Unreadable(f"{name!r} is not base64 text")
    try:
        return b64decode(value, validate=True)
    except ValueError as error:
        raise Unreadable(f"{name!r} is not base64: {error}") from error


def prove(dialect: Dialect, fields: list[bytes], topic: str) -> list[bytes]:
    """`fields`, once the dialect has read them back; a document can break a cap that its payload alone keeps."""
    try:
        dialect.unpack(topic, "0-0", fields)
    except MemoryError:
        raise
    except Exception as error:
        raise EncodeError(f"no reader could read this message back: {describe(error)}") from error
    return fields
