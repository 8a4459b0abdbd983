"""JSON with one meaning: what is accepted here reads the same for every reader, or it is refused.

msgspec already refuses bad UTF-8, lone surrogates, NaN, numbers out of range, trailing bytes, and keeps whole numbers
exact up to 4,300 characters. Added here: a bound on nesting before anything is decoded, and no duplicate keys.
"""

import json
import re
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, NoReturn

import msgspec

from penstock.message.faults import Unreadable

encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder().decode
_encode_lines = msgspec.json.Encoder().encode_lines
_decode_lines = msgspec.json.Decoder().decode_lines

# Possessive: linear on any input, with nothing to back-track into. An unclosed string runs to the end.
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*+"?', re.DOTALL)
_NOT_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")
_BACKSLASH = ord("\\")
_NO_BEGINNING, _NO_END = set(b",:]} \t\r\n"), set(b"[{,: \t\r\n")
_STEP = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}


class NotJson(Unreadable):
    """Not JSON text at all, as opposed to JSON that breaks one of our rules."""


def parse(payload: bytes, depth: int) -> Any:
    """The plain value of one JSON document, or `Unreadable`."""
    # A document nests at most half as deep as it is long.
    if len(payload) > 2 * depth:
        refuse_deep(payload, depth)
    try:
        value = decode(payload)
    except msgspec.ValidationError as error:
        raise Unreadable(f"JSON out of range: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise NotJson(f"not valid JSON: {error}") from error
    # An object with as many keys as its text has colons lost none, and holds no other object that could have.
    if (type(value) is dict and payload.count(b":") != len(value)) or type(value) is list:
        again = encode(value)
        # Byte for byte what a decoded value is written as: no key can have been dropped.
        if again != payload:
            _refuse_duplicates(payload, again)
    return value


def parse_together(payloads: Sequence[bytes], depth: int, longest: int) -> list[Any] | None:
    """What `parse` makes of each, in half the time. None if one of them needs a look of its own, or is no good.

    `longest` is how many bytes the longest of them has.
    """
    try:
        lines = b"\n".join(payloads)
        are_objects = _are_objects(payloads, lines)
        if not are_objects and _may_go_on(payloads):
            return None
        if longest > 2 * depth:
            for payload in payloads:
                refuse_deep(payload, depth)
        values = _decode_lines(lines)
        is_proven = len(values) == len(payloads) and (
            # None has fewer colons than keys, so what `parse` asks of each holds if it holds for the sums.
            (are_objects and lines.count(b":") == sum(map(len, values))) or _encode_lines(values) == lines + b"\n"
        )
    except Exception:  # noqa: BLE001 - `parse` will stumble over it too, and can say why
        return None
    return values if is_proven else None


def _are_objects(payloads: Sequence[bytes], lines: bytes) -> bool:
    """Whether each is one line that begins with a brace, and all but the last end with one.

    Then no object can go on over the break, and as many values as lines are one for each.
    """
    return lines.startswith(b"{") and lines.count(b"}\n{") == len(payloads) - 1 and b"\n" not in b"".join(payloads)


def _may_go_on(payloads: Sequence[bytes]) -> bool:
    """Whether a value may go on over the break, and so nest as deep as all of them together."""
    firsts, lasts = {payload[0] for payload in payloads}, {payload[-1] for payload in payloads}
    return bool(firsts & _NO_BEGINNING or lasts & _NO_END)


def strict_reader(decode_as: Callable[[bytes], Any]) -> Callable[[bytes, int], Any]:
    """`decode_as` under the same rules as `parse`, also for the parts of a document that it skips."""

    def read(payload: bytes, depth: int) -> Any:
        if len(payload) > 2 * depth:
            refuse_deep(payload, depth)
        value = decode_as(payload)
        try:
            proven = encode(value) == payload
        except Exception:  # noqa: BLE001
            # A type that can be read but not written proves nothing; the plain reading below does.
            proven = False
        if not proven:
            parse(payload, depth)
        return value

    return read


def refuse_deep(payload: bytes, depth: int) -> None:
    """Raise `Unreadable` if any bracket outside a string is nested deeper than `depth`. Linear time."""
    if len(payload) - len(payload.translate(None, b"[{")) <= depth:
        return  # fewer brackets than that, wherever they are
    brackets = _STRING.sub(b"", payload).translate(None, _NOT_BRACKETS)
    if max(accumulate(map(_STEP.__getitem__, brackets)), default=0) > depth:
        raise Unreadable(f"JSON nested deeper than {depth} levels")


def _refuse_duplicates(payload: bytes, again: bytes) -> None:
    """`again` is the decoded payload written anew, where each key is left once.

    Escapes apart, both hold one colon per key plus those inside strings; dropping a duplicate drops at least one. Only
    an escaped colon could make up for it, so without one equal counts prove that nothing was dropped.
    """
    no_escaped_colon = _BACKSLASH not in payload or b"\\u003" not in payload
    if no_escaped_colon and payload.count(b":") == again.count(b":"):
        return
    json.loads(payload.decode(), object_pairs_hook=_refuse_repeated_key, parse_int=len, parse_float=len)


def _refuse_repeated_key(pairs: list[tuple[str, Any]]) -> None:
    seen = set()
    for key, _ in pairs:
        if key in seen:
            _refuse_key(key)
        seen.add(key)


def _refuse_key(key: str) -> NoReturn:
    raise Unreadable(f"duplicate key {key[:80]!r} in a JSON object")
