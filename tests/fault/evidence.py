"""What rows count to show that their fault really bit."""

from tests.fault.journal import Line
from tests.fault.scene import Scene


def events(scene: Scene, *names: str) -> list[Line]:
    return [line for line in scene.lines("event") if line.name in names]


def taken_over(scene: Scene) -> int:
    return sum(line.facts["count"] for line in events(scene, "Reclaimed"))


def handled(scene: Scene) -> int:
    return len({(line.group, line.tag) for line in scene.lines("end")})


def acknowledged(scene: Scene) -> int:
    return len(scene.lines("acked"))


def refused(scene: Scene, error: str) -> int:
    """Publishes that failed with this error."""
    return sum(line.error.startswith(error) for line in scene.lines("failed", "unknown"))
