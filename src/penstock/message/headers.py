"""Headers on the wire: one JSON object, text to text."""

from collections.abc import Mapping
from typing import Any

import msgspec

from penstock.errors import EncodeError
from penstock.message.faults import Unreadable
from penstock.message.strict_json import encode, parse

_decode = msgspec.json.Decoder(dict[str, str]).decode
_BACKSLASH = ord("\\")


def write_headers(headers: Mapping[Any, Any], longest: int) -> bytes:
    for name, value in headers.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise EncodeError(f"headers map text to text, but {name!r} is {type(value).__name__}")
    try:
        raw = encode(dict(headers))
    except UnicodeEncodeError as error:
        raise EncodeError(f"a header holds a lone surrogate: {error}") from error
    if len(raw) > longest:
        raise EncodeError(f"the headers have {len(raw)} bytes, the limit is {longest}")
    return raw


def read_headers(raw: bytes, depth: int, longest: int) -> dict[str, str]:
    """The headers; an empty value counts as none."""
    if not raw:
        return {}
    if len(raw) > longest:
        raise Unreadable(f"headers have {len(raw)} bytes, the limit is {longest}")
    try:
        headers = _decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Unreadable(f"headers are not a JSON object of strings: {error}") from error
    # Without escapes every pair has four quotes: one more pair than we got was a duplicate.
    if _BACKSLASH in raw or raw.count(b'"') != 4 * len(headers):
        parse(raw, depth)
    return headers
