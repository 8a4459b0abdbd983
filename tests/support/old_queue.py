"""A queue in a sorted set, as the programs that use it do: ids by score, a document for each, a list of the dead."""

import json
import uuid
from datetime import UTC, datetime
from typing import Any

import redis

from penstock.backend.old_queue import OldQueue

_SCORES = {"critical": 0, "high": 1000, "medium": 2000, "low": 3000}


class OldPrograms:
    """The producers and workers of such a queue."""

    def __init__(self, server: "redis.Redis", name: str = "") -> None:
        self._server = server
        self.keys = OldQueue(f"{name}queue:main", f"{name}jobs:", f"{name}queue:dlq", f"{name}active:jobs")

    def document(self, **facts: Any) -> dict[str, Any]:
        return {
            "id": str(uuid.uuid4()),
            "kind": "email.send",
            "payload": {"to": "a@example.org"},
            "priority": "medium",
            "status": "queued",
            "max_retries": 3,
            "retry_count": 0,
            "progress": 0,
            "created_at": datetime.now(UTC).isoformat(),
            "scheduled_for": None,
            "timeout_ms": 30000,
            "metadata": {},
            **facts,
        }

    def enqueue(self, **facts: Any) -> str:
        """Both keys in one step, as their script does."""
        job = self.document(**facts)
        created = datetime.fromisoformat(job["created_at"])
        score = _SCORES[job["priority"]] + created.microsecond // 1000
        with self._server.pipeline() as both:
            both.set(self.keys.records + job["id"], json.dumps(job))
            both.zadd(self.keys.waiting, {job["id"]: score})
            both.execute()
        id: str = job["id"]
        return id

    def take(self) -> str | None:
        """What a worker does before it runs a job."""
        found = self._server.zpopmin(self.keys.waiting)
        return found[0][0].decode() if found else None

    def bury(self, **facts: Any) -> str:
        job = self.document(**{"status": "deadletter", "retry_count": 3, **facts})
        self._server.set(self.keys.records + job["id"], json.dumps(job))
        self._server.lpush(self.keys.dead, job["id"])
        id: str = job["id"]
        return id

    def waiting(self) -> list[str]:
        return [member.decode() for member in self._server.zrange(self.keys.waiting, 0, -1)]

    def dead(self) -> list[str]:
        return [member.decode() for member in self._server.lrange(self.keys.dead, 0, -1)]

    def record(self, id: str) -> bytes | None:
        found: bytes | None = self._server.get(self.keys.records + id)
        return found
