"""Codecs, by content type: what turns a body into payload bytes and back.

A codec may raise anything; `Bodies` turns it into the error its caller was promised.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Protocol

import msgspec

from penstock.errors import EncodeError
from penstock.message.pydantic_models import adapter_for, is_pydantic
from penstock.message.strict_json import encode, parse, strict_reader

JSON = "application/json"
OCTETS = "application/octet-stream"


class Codec(Protocol):
    """One content type. `decode(encode(body), type)` is the body again, or `encode` raises."""

    @property
    def content_type(self) -> str: ...

    def encode(self, body: Any) -> bytes: ...

    def decode(self, payload: bytes, type: Any | None) -> Any:
        """`type` is what the catalog knows the message's type as; None asks for the plain form."""


class BytesCodec:
    """Bytes as they are."""

    content_type = OCTETS

    def encode(self, body: Any) -> bytes:
        if not isinstance(body, (bytes, bytearray, memoryview)):
            raise EncodeError(f"content type {OCTETS} needs a body of bytes, not {type(body).__name__}")
        return bytes(body)

    def decode(self, payload: bytes, type: Any | None) -> Any:
        return payload


class JsonCodec:
    """JSON for plain values, dataclasses, Structs, TypedDicts and pydantic models.

    What JSON has no word for (datetime, UUID, Decimal, set, …) is written in its usual JSON form; only a type turns it
    back. What a type declares as `msgspec.Raw` is handed over unread.
    """

    content_type = JSON

    def __init__(self, depth: int) -> None:
        self._depth = depth

    def encode(self, body: Any) -> bytes:
        if isinstance(body, (bytes, bytearray, memoryview)):
            raise EncodeError(f"content type {JSON} cannot hold a body of bytes; leave {OCTETS} to say what it is")
        cls = body.__class__
        if is_pydantic(cls):
            payload: bytes = adapter_for(cls).dump_json(body, by_alias=True)
        else:
            payload = encode(body)
        # NaN and infinities are written as null without a word, by msgspec and by pydantic.
        if b"null" in payload and _has_unwritable_float(body):
            raise EncodeError("the body holds NaN or an infinity, which JSON cannot say")
        return payload

    def decode(self, payload: bytes, type: Any | None) -> Any:
        if type is None:
            return parse(payload, self._depth)
        return json_reader(type)(payload, self._depth)


@lru_cache(maxsize=1024)
def json_reader(tp: Any) -> Callable[[bytes, int], Any]:
    """A strict reader of JSON into `tp`; raises when `tp` is nothing that JSON can fill."""
    if is_pydantic(tp):
        validate = adapter_for(tp).validate_json

        def read_model(payload: bytes, depth: int) -> Any:
            parse(payload, depth)
            return validate(payload, by_alias=True, by_name=True)

        return read_model
    return strict_reader(msgspec.json.Decoder(tp).decode)


def _has_unwritable_float(body: Any) -> bool:
    cls = body.__class__
    todo = [adapter_for(cls).dump_python(body) if is_pydantic(cls) else msgspec.to_builtins(body)]
    while todo:
        value = todo.pop()
        if isinstance(value, float):
            if not math.isfinite(value):
                return True
        elif isinstance(value, dict):
            todo.extend(value.keys())
            todo.extend(value.values())
        elif isinstance(value, (list, tuple, set, frozenset)):
            todo.extend(value)
    return False
