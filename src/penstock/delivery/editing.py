"""A dead letter with another body: a new message that tells which one it is made of."""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from penstock.backend.entry import Letter
from penstock.errors import MalformedError
from penstock.message import fields as f
from penstock.message.ids import new_id
from penstock.message.message import Message
from penstock.message.wire import Wire


def edited(wire: Wire, topic: str, entry_id: str, raw: Sequence[bytes], body: Any) -> Message[Any]:
    """What is stored in `raw`, with this body and an id of its own.

    Type, key, headers, trace and time stay, as far as they can be read; header `edited-from` is the former id.
    """
    former = _opened(wire, topic, entry_id, raw)
    if former is None:
        return Message(body, headers={f.EDITED_FROM: entry_id})
    return replace(former, body=body, id=new_id(), headers={**former.headers, f.EDITED_FROM: former.id})


def seems_native(letter: Letter) -> bool:
    """Whether nothing in a dead letter tells that its topic is written in another dialect than Penstock's own.

    What its group could read, it read by another dialect if natively it is no message, or another one.
    """
    names, known = letter.raw[::2], letter.record.id
    if names and (f.PAYLOAD not in names or f.FLAT_ID in names):
        return False
    try:
        return not known or Wire().unpack(letter.record.topic, letter.record.entry, letter.raw).id == known
    except MalformedError:
        return False


def _opened(wire: Wire, topic: str, entry_id: str, raw: Sequence[bytes]) -> Message[Any] | None:
    """The message; without its body if that is what cannot be read; None if nothing can be."""
    for content in (raw, _without_body(raw)):
        try:
            return wire.unpack(topic, entry_id, content)
        except MalformedError:
            continue
    return None


def _without_body(raw: Sequence[bytes]) -> list[bytes]:
    """The same entry, if it is laid out as Penstock does it, with a payload that is no trouble."""
    pairs = zip(raw[::2], raw[1::2], strict=False)
    return [word for name, value in pairs if name != f.PAYLOAD for word in (name, value)] + [f.PAYLOAD, b"null"]
