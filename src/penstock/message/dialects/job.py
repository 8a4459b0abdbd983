"""A job document in field `data`, with its id once more in `job_id`. The message's type is the job's kind.

The job's metadata are the message's headers; whatever else the job says is header `job-<name>`, absent at its default.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from penstock.errors import EncodeError
from penstock.message import fields as f
from penstock.message.bodies import Bodies
from penstock.message.dialects.base import identify, optional_text, own_id, own_type, prove, read_text, write_text
from penstock.message.dialects.text import from_text, to_text
from penstock.message.faults import Unreadable
from penstock.message.headers import write_headers
from penstock.message.layout import Layouts
from penstock.message.message import Message
from penstock.message.strict_json import encode
from penstock.message.times import read_time, write_time

_PREFIX = "job-"
_METADATA = "job-metadata"
"""Metadata that cannot be headers of their own (a name that begins with `job-`, a value that is no text), as JSON."""

_DEFAULTS: dict[str, Any] = {
    "priority": "medium",
    "status": "queued",
    "max_retries": 3,
    "retry_count": 0,
    "progress": 0,
    "scheduled_for": None,
    "timeout_ms": 30_000,
}
_TEXTS = ("key", "traceparent", "tracestate")
"""Parts of a message that jobs do not know; readers of jobs skip names they do not know."""

_MAPPED = frozenset(("id", "kind", "payload", "created_at", "metadata", *_TEXTS))


class Job:
    def __init__(self, bodies: Bodies) -> None:
        self._bodies = bodies
        self._layouts = Layouts((f.DATA, f.JOB_ID), bodies.limits)

    def pack(self, message: Message[Any], topic: str) -> list[bytes]:
        kind = own_type(message)
        if kind is None:
            raise EncodeError("a job needs a kind: give the message a type")
        uuid = own_id(message)
        job: dict[str, Any] = {
            "id": uuid,
            "kind": write_text("type", kind, self._bodies.longest).decode(),
            "payload": msgspec.Raw(self._bodies.write(message.body, kind)),
            "created_at": write_time(datetime.now(UTC) if message.time is None else message.time),
            **_DEFAULTS,
        }
        for name in _TEXTS:
            if (value := getattr(message, name)) is not None:
                job[name] = write_text(name, value, self._bodies.longest).decode()
        self._add_headers(job, message.headers)
        return prove(self, [f.DATA, encode(job), f.JOB_ID, uuid.encode()], topic)

    def _add_headers(self, job: dict[str, Any], headers: dict[str, str]) -> None:
        write_headers(headers, self._bodies.longest)
        metadata: dict[str, Any] = {}
        for name, value in headers.items():
            if name == _METADATA:
                continue
            if not name.startswith(_PREFIX):
                metadata[name] = value
            elif name.removeprefix(_PREFIX) in _MAPPED:
                raise EncodeError(f"header {name!r} would overwrite the job's own {name.removeprefix(_PREFIX)}")
            else:
                job[name.removeprefix(_PREFIX)] = from_text(value, self._bodies.depth)
        if _METADATA in headers:
            odd = from_text(headers[_METADATA], self._bodies.depth)
            if not isinstance(odd, dict):
                raise EncodeError(f"header {_METADATA!r} must be a JSON object")
            metadata.update(odd)
        job["metadata"] = metadata

    def unpack(self, topic: str, entry_id: str, fields: Sequence[bytes]) -> Message[Any]:
        data_at, id_at = self._layouts.of(fields)
        if not data_at:
            raise Unreadable("no data")
        longest = self._bodies.longest
        if len(fields[data_at]) > longest:
            raise Unreadable(f"data has {len(fields[data_at])} bytes, the limit is {longest}")
        job = self._bodies.document(fields[data_at])
        if not isinstance(job, dict) or "payload" not in job:
            raise Unreadable("data is not a job: no payload")
        kind = optional_text(job, "kind")
        beside = read_text("job_id", fields[id_at], longest) if id_at else None
        raw_id = optional_text(job, "id") or beside or ""
        created = optional_text(job, "created_at")
        headers = self._headers(job)
        key, parent, state = (optional_text(job, name) for name in _TEXTS)
        return Message(
            self._bodies.typed(job["payload"], kind),
            identify(topic, entry_id, raw_id.encode(), headers),
            kind,
            key,
            headers,
            parent,
            state,
            None if created is None else read_time(created),
        )

    def _headers(self, job: dict[str, Any]) -> dict[str, str]:
        metadata = job.get("metadata") or {}
        if not isinstance(metadata, dict):
            raise Unreadable("the job's metadata is not an object")
        headers, odd = {}, {}
        for name, value in metadata.items():
            if isinstance(value, str) and not name.startswith(_PREFIX):
                headers[name] = value
            else:
                odd[name] = value
        if odd:
            headers[_METADATA] = to_text(odd, self._bodies.depth)
        for name, value in job.items():
            if name not in _MAPPED and (name not in _DEFAULTS or not _same(value, _DEFAULTS[name])):
                headers[_PREFIX + name] = to_text(value, self._bodies.depth)
        return headers


def _same(value: object, default: object) -> bool:
    """Equal and of one type: false is not 0 to the reader at the other end."""
    return type(value) is type(default) and value == default
