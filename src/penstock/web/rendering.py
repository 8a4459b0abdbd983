"""From what a tail gives to what is sent for it. Each message is written once for all who follow."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from penstock.continuity.gap import Gap
from penstock.continuity.place import Place
from penstock.message.message import Message
from penstock.message.strict_json import encode
from penstock.message.times import write_time
from penstock.tail.items import Item, Tailed, Unreadable
from penstock.web.frames import frame

_MOST_FRAMES = 1024
_MOST_BYTES = 8 * 1024 * 1024


class Rendered(NamedTuple):
    """A frame, and of which type the message in it is."""

    frame: bytes
    type: str
    """Empty if it has none."""

    concerns_all: bool = False
    """It is no message, so it has no type that anybody could have asked for."""


class Rendering:
    """Remembers the newest frames: a thousand followers of a topic ask for the same one within moments."""

    def __init__(self) -> None:
        self._frames: dict[tuple[str, Place], tuple[Sequence[bytes], Rendered]] = {}
        self._bytes = 0

    def of(self, item: Item) -> Rendered:
        if isinstance(item, Gap):
            # Without an id: whoever comes back from before it is told of it again.
            return Rendered(frame(encode(item), event="gap"), "", concerns_all=True)
        key = item.topic, item.place
        found = self._frames.get(key)
        # A server that fell back may have something else under that id. Mostly they are the same ones: it costs little.
        if found is not None and found[0] == item.fields:
            return found[1]
        return self._add(key, item.fields, _rendered(item))

    def _add(self, key: tuple[str, Place], fields: Sequence[bytes], rendered: Rendered) -> Rendered:
        self._drop(key)
        self._frames[key] = fields, rendered
        self._bytes += _weight(fields, rendered)
        while len(self._frames) > _MOST_FRAMES or self._bytes > _MOST_BYTES:
            self._drop(next(iter(self._frames)))
        return rendered

    def _drop(self, key: tuple[str, Place]) -> None:
        if (dropped := self._frames.pop(key, None)) is not None:
            self._bytes -= _weight(*dropped)


def _weight(fields: Sequence[bytes], rendered: Rendered) -> int:
    return sum(map(len, fields)) + len(rendered.frame)


def started(position: str) -> bytes:
    """Where the stream begins: who loses the connection before the first message comes back to there."""
    return frame(encode({"position": position}), event="start", id=position)


def failed(text: str) -> bytes:
    """Why the stream ends here."""
    return frame(encode({"error": text}), event="failure")


def _rendered(item: Tailed | Unreadable) -> Rendered:
    if isinstance(item, Unreadable):
        return _unreadable(item, item.error.reason)
    message = item.message
    try:
        data = encode(_told(message, item.entry_id))
    except Exception as error:  # noqa: BLE001 - a codec of the user's may have made anything of the payload
        return _unreadable(item, f"its body is no JSON: {type(error).__name__}: {error}")
    return Rendered(frame(data, id=item.position), message.type or "")


def _unreadable(item: Tailed | Unreadable, reason: str) -> Rendered:
    data = {"entry_id": item.entry_id, "reason": reason}
    return Rendered(frame(encode(data), event="unreadable", id=item.position), "", concerns_all=True)


def _told(message: Message[Any], entry_id: str) -> dict[str, Any]:
    """What a client is told of a message; what it has not is left out."""
    told: dict[str, Any] = {"id": message.id, "entry_id": entry_id}
    for name in ("type", "key", "headers", "traceparent", "tracestate"):
        if value := getattr(message, name):
            told[name] = value
    if message.time is not None:
        told["time"] = write_time(message.time)
    # msgspec would write bytes as base64 too, and nobody could tell them from text.
    told["body_base64" if isinstance(message.body, bytes | bytearray | memoryview) else "body"] = message.body
    return told
