"""Message identity: every id in Penstock is a UUID in the one canonical spelling (lower case, 8-4-4-4-12, ASCII)."""

import os
from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha1
from uuid import UUID

from uuid_utils import reseed_rng, uuid7

_FOREIGN = UUID("b1c5fc4e-b46b-4b77-81c3-c8e6d5761c01")
_ENTRY = UUID("fcccbc70-5f0b-4127-919a-29501ed1b9ed")

SHAPE = b"hhhhhhhh-hhhh-hhhh-hhhh-hhhhhhhhhhhh"


def _shape_table(digits: bytes) -> bytes:
    table = bytearray(b"?" * 256)
    for digit in digits:
        table[digit] = ord("h")
    table[ord("-")] = ord("-")
    return bytes(table)


LOWER_SHAPE = _shape_table(b"0123456789abcdef")
_ANY_CASE_SHAPE = _shape_table(b"0123456789abcdefABCDEF")

_LINES_SHAPE = LOWER_SHAPE[:10] + b"\n" + LOWER_SHAPE[11:]

# A forked child inherits the state of the generator: unless seeded anew, parent and children hand out the same ids.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=reseed_rng)


def new_id() -> str:
    """A UUIDv7, greater than every id made before it in this process, by any thread; unique across forks."""
    return str(uuid7())


def canonical(text: str | bytes) -> str | None:
    """The canonical spelling of a UUID, or None for anything else.

    Only case is forgiven: no braces, `urn:`, signs, blanks or non-ASCII digits, all of which `uuid.UUID` accepts.
    """
    if isinstance(text, str):
        if not text.isascii():
            return None
        if text.encode("ascii").translate(LOWER_SHAPE) == SHAPE:
            return text
        text = text.encode("ascii")
    if text.translate(_ANY_CASE_SHAPE) == SHAPE:
        return text.lower().decode("ascii")
    return None


def canonical_all(raw: Sequence[bytes]) -> list[str] | None:
    """These ids, if every one of them is a UUID in canonical spelling."""
    if set(map(len, raw)) != {len(SHAPE)}:  # before they are joined: what is no id can be of any size
        return None
    lines = b"\n".join(raw)
    if lines.translate(_LINES_SHAPE) != b"\n".join([SHAPE] * len(raw)):
        return None
    return lines.decode("ascii").split("\n")


def milliseconds_of(id: str) -> int | None:
    """When a UUIDv7 was made, in milliseconds since 1970 by its maker's clock; None for anything else."""
    text = canonical(id)
    if text is None or text[14] != "7" or text[19] not in "89ab":
        return None
    return int(text[:8] + text[9:13], 16)


def foreign_id(topic: str, raw: bytes) -> str:
    """The UUIDv5 that stands for an id which is no UUID: the same for the same topic and bytes, everywhere."""
    return _uuid5(_topic_namespace(_FOREIGN, topic), raw)


def entry_uuid(topic: str, entry_id: str) -> str:
    """The UUIDv5 of a message that came without an id: its place is its identity."""
    return _uuid5(_topic_namespace(_ENTRY, topic), entry_id.encode("utf-8", "surrogatepass"))


@lru_cache(maxsize=1024)
def _topic_namespace(root: UUID, topic: str) -> bytes:
    return UUID(_uuid5(root.bytes, topic.encode("utf-8", "surrogatepass"))).bytes


def _uuid5(namespace: bytes, name: bytes) -> str:
    return str(UUID(bytes=sha1(namespace + name, usedforsecurity=False).digest()[:16], version=5))
