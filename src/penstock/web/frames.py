"""Frames of server-sent events. Whatever is in the data, a client reads back what was written, as one event."""

import re

from penstock.errors import ConfigurationError

HEARTBEAT = b":\n\n"
"""A comment: it moves nobody's position, and no client shows it."""

_LINE_BREAK = re.compile(rb"\r\n|\r|\n")
_UNSAFE = re.compile(r"[\r\n\0]")


def frame(data: bytes, *, event: str = "", id: str = "") -> bytes:
    """One event. A line break of any kind in `data` arrives as `\\n`; `event` and `id` must have none."""
    head = b""
    for name, value in ((b"event", event), (b"id", id)):
        if value:
            if _UNSAFE.search(value):
                raise ConfigurationError(f"the {name.decode()} of a frame is one line, not {value!r}")
            head += b"%b: %b\n" % (name, value.encode())
    if b"\n" in data or b"\r" in data:
        data = b"\ndata: ".join(_LINE_BREAK.split(data))
    return b"%bdata: %b\n\n" % (head, data)


def retry_hint(seconds: float) -> bytes:
    """How long a client waits before it comes back."""
    return b"retry: %d\n\n" % round(seconds * 1000)
