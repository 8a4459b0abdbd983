"""Entries that no Penstock wrote: put on the stream by a plain client, and noted in the journal like any other."""

from collections.abc import Sequence
from typing import Any

from tests.fault.behaviour import MALFORMED
from tests.fault.journal import payload_of, sha_of
from tests.fault.scene import Scene
from tests.fault.setup import BODY_CANARY
from tests.fault.state import raw_sha


def add(scene: Scene, fields: Sequence[bytes]) -> str:
    entry: bytes = scene.admin.execute_command("XADD", scene.topic, "*", *fields)
    return entry.decode()


def add_malformed(scene: Scene, name: str, fields: Sequence[bytes]) -> None:
    """It must end in the dead letters, every byte of it."""
    entry = add(scene, fields)
    scene.journal.write("intent", tag=name, sha=raw_sha(fields), do=MALFORMED, topic=scene.topic)
    scene.journal.write("acked", tag=name, entry=entry)


def add_welcome(scene: Scene, name: str, *fields: bytes) -> None:
    """Foreign, but fine: it must be handled."""
    body: dict[str, Any] = {"tag": name, "do": "ok", "for": 0.0, "secret": BODY_CANARY}
    payload = payload_of(body)
    entry = add(scene, [*fields, b"payload", payload])
    scene.journal.write("intent", tag=name, sha=sha_of(payload), do="ok", topic=scene.topic)
    scene.journal.write("acked", tag=name, entry=entry)
