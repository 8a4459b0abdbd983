"""The end of every row: wait until all is settled, send everybody home, and let the checker look at what is left."""

from typing import Any

import msgspec

from tests.fault.checker import Verdict, check
from tests.fault.rules import Rules
from tests.fault.scene import Scene
from tests.fault.setup import BODY_CANARY, PASSWORD
from tests.fault.state import State

_CONNECTIONS_EACH = 5
"""Of a worker: commands, reads and leases, and one that is being replaced; or of the scene itself."""


def rules_of(scene: Scene, **changes: Any) -> Rules:
    setup = scene.setups[0]
    rules = Rules(
        attempts=setup.attempts,
        initial=setup.initial,
        maximum=setup.maximum,
        longest_pause=setup.longest_pause,
        texts={program.log.name: program.printed() for program in scene.programs},
        canaries=(PASSWORD, BODY_CANARY),
    )
    return msgspec.structs.replace(rules, **changes)


def look(scene: Scene) -> State:
    return scene.inspector().look()


async def audit(scene: Scene, **changes: Any) -> Verdict:
    """Everything published, settled, and every worker gone in order; then every invariant must hold."""
    await scene.published()
    await scene.settled()
    scene.journal.write("seen", name="server", facts={"clients": scene.admin.info("clients")["connected_clients"]})
    changes.setdefault("most_connections", _CONNECTIONS_EACH * (len(scene.workers()) + 1))
    await scene.dismissed()
    return verdict(scene, **changes)


def verdict(scene: Scene, **changes: Any) -> Verdict:
    found = check(scene.journals.all(), look(scene), rules_of(scene, **changes))
    assert not found.violations, f"{scene.row} on {scene.version}:\n{found}"
    assert found.intended > 0
    scene.verdict = found
    return found
