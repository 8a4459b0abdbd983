"""The stage for every row, on the server the row is to run on."""

import json
import os
from collections.abc import AsyncIterator, Callable, Generator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests.fault.scene import Scene
from tests.fault.servers import BINARIES
from tests.fault.size import FULL, TIMEOUT

RESULTS_VARIABLE = "FAULT_RESULTS"


_OUTCOME = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.when == "call":
        item.stash[_OUTCOME] = report.passed
    return report


@pytest.fixture
async def scene(request: pytest.FixtureRequest, missing: Callable[[str], NoReturn]) -> AsyncIterator[Scene]:
    row, kind = request.param
    binary = BINARIES[kind]()
    if binary is None:
        missing(f"{kind}-server")
    async with Scene(row, binary) as opened:
        yield opened
        keep(opened, request.node)


def keep(scene: Scene, test: pytest.Function) -> None:
    """Leave the verdict where the table is made from, if one is made."""
    directory, verdict, passed = os.environ.get(RESULTS_VARIABLE), scene.verdict, test.stash.get(_OUTCOME, False)
    if directory is None or (verdict is None and passed):
        return
    variant = test.callspec.id.partition("-")[2]
    row: dict[str, Any] = {"row": f"{scene.row}: {variant}" if variant else scene.row, "server": scene.version}
    row |= {"passed": passed, "proofs": scene.proofs}
    if verdict is not None:
        row |= {name: getattr(verdict, name) for name in verdict.__struct_fields__ if name != "violations"}
    name = "".join(letter if letter.isalnum() else "-" for letter in test.name)
    (Path(directory) / f"{name}.json").write_text(json.dumps(row))


def pytest_itemcollected(item: pytest.Item) -> None:
    if item.get_closest_marker("timeout") is None:
        item.add_marker(pytest.mark.timeout(TIMEOUT))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A row names itself by `@row(...)`; it runs on Valkey, and on Redis too if it says so, or in full size."""
    if "scene" not in metafunc.fixturenames:
        return
    name, on_redis = metafunc.function.row
    kinds = ["valkey", "redis"] if on_redis or FULL else ["valkey"]
    metafunc.parametrize("scene", [(name, kind) for kind in kinds], ids=kinds, indirect=True)
