"""Error replies and connection failures, as errors of ours that say what to do.

Servers word the same failure differently (a stream that vanishes under a blocked reader is UNBLOCKED on Redis 7.0 and
NOGROUP on Valkey), so only the leading code and the few texts below decide. What was sent is never repeated.
"""

import hiredis

from penstock.errors import (
    AuthenticationError,
    GroupMissingError,
    PenstockError,
    ServerBusyError,
    ServerError,
    ServerOutOfMemoryError,
    ServerReadOnlyError,
    WrongKeyTypeError,
)

_ADVICE: dict[str, tuple[type[PenstockError], str]] = {
    "NOGROUP": (GroupMissingError, "the stream or the group was removed; create the group again, at 0 to skip nothing"),
    "WRONGTYPE": (WrongKeyTypeError, "another kind of value lives at that key; rename it, or use another topic name"),
    "OOM": (
        ServerOutOfMemoryError,
        "the server is at maxmemory; raise it, or make room: `penstock topic trim TOPIC --keep 0s --yes` drops what"
        " every group has settled",
    ),
    "READONLY": (ServerReadOnlyError, "this server is a replica; connect to the primary"),
    "NOREPLICAS": (ServerReadOnlyError, "too few replicas are in sync; wait, or lower min-replicas-to-write"),
    "MISCONF": (ServerReadOnlyError, "the server cannot write to its disk and refuses changes; look at its log"),
    "MASTERDOWN": (ServerReadOnlyError, "this replica lost its primary; connect to the primary"),
    "LOADING": (ServerBusyError, "the server is reading its data from disk; wait"),
    "BUSY": (ServerBusyError, "a script keeps the server busy; wait, or stop it with SCRIPT KILL"),
    "CLUSTERDOWN": (ServerBusyError, "the cluster has no owner for this slot at the moment; wait"),
    "TRYAGAIN": (ServerBusyError, "the slot is moving to another node; wait"),
    "NOAUTH": (AuthenticationError, "the server wants a password; put it into the URL"),
    "WRONGPASS": (AuthenticationError, "user or password is wrong; check the URL"),
    "NOPERM": (AuthenticationError, "the user may not do this; extend its ACL"),
    "CROSSSLOT": (ServerError, "the keys lie in different slots; give the topics one {tag}"),
    "MOVED": (ServerError, "this is one node of a cluster, and the key lives on another"),
}

# How Redis, and how Valkey, refuse a command inside a script to a user who may not run it.
_FORBIDDEN_IN_SCRIPT = ("user executing the script can't", "ACL failure in script")


def failure(reply: hiredis.ReplyError, doing: str) -> PenstockError:
    """The error to raise for an error reply; `doing` names the action and the topic, group or id it concerns."""
    # Servers repeat the arguments of a command they do not know: a payload, or a password.
    text = str(reply).split(", with args", 1)[0]
    code = _code(text)
    kind, advice = _ADVICE.get(code, (ServerError, "look at the server's log"))
    return kind(f"{doing}: the server answered {text!r}: {advice}")


def is_replica(text: str) -> bool:
    """Whether an error reply means that the server behind this connection is no primary (any more)."""
    return _code(text) in ("READONLY", "MASTERDOWN")


def _code(text: str) -> str:
    code = text.split(" ", 1)[0]
    if code == "UNBLOCKED":
        return "READONLY" if "replica" in text else "NOGROUP"
    if code == "ERR" and any(phrase in text for phrase in _FORBIDDEN_IN_SCRIPT):
        return "NOPERM"
    if code == "ERR" and "invalid password" in text.lower():
        return "WRONGPASS"
    if code == "ERR" and ("no such key" in text or "requires the key to exist" in text):
        return "NOGROUP"
    return code
