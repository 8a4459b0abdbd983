"""Dependable messaging on Redis and Valkey Streams.

Names load when they are first used, so that `import penstock` costs next to nothing and pulls in no client library.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock import errors
    from penstock.backend.entry import ClaimedMessage, DeadLetter, Malformed, Park
    from penstock.backend.redis import RedisBackend
    from penstock.message.message import Message
    from penstock.message.wire import Wire
    from penstock.options import Limits

__version__ = "0.1.0"

_HOMES = {
    "ClaimedMessage": "penstock.backend.entry",
    "DeadLetter": "penstock.backend.entry",
    "Limits": "penstock.options",
    "Malformed": "penstock.backend.entry",
    "Message": "penstock.message.message",
    "Park": "penstock.backend.entry",
    "RedisBackend": "penstock.backend.redis",
    "Wire": "penstock.message.wire",
}

__all__ = [
    "ClaimedMessage",
    "DeadLetter",
    "Limits",
    "Malformed",
    "Message",
    "Park",
    "RedisBackend",
    "Wire",
    "errors",
]


def __getattr__(name: str) -> Any:
    if name == "errors":
        return import_module("penstock.errors")
    if name not in _HOMES:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
