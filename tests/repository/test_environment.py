"""When scripts/environment.py installs, when it starts anew, and when it leaves everything as it is."""

import importlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


class Checkout:
    """A checkout whose installer only writes down what it was asked for."""

    def __init__(self, root: Path, environment: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
        self.environment = environment
        self.monkeypatch = monkeypatch
        self.done: list[str] = []
        (root / "requirements").mkdir(parents=True)
        for name in environment.FILES:
            (root / "requirements" / f"{name}.txt").write_text(f"# {name}\n")
        shutil.copy(ROOT / "pyproject.toml", root)
        monkeypatch.setattr(environment, "create", self.create)
        monkeypatch.setattr(environment, "install", self.install)
        self.move_to(root)

    def move_to(self, root: Path) -> None:
        self.root = root
        venv = root / ".venv"
        paths = {"ROOT": root, "VENV": venv, "STAMP": venv / "penstock-stamp.json", "PYTHON": venv / "bin" / "python"}
        for name, path in paths.items():
            self.monkeypatch.setattr(self.environment, name, path)

    def create(self) -> None:
        self.done.append("create")
        python: Path = self.environment.PYTHON
        python.parent.mkdir(parents=True, exist_ok=True)
        python.touch()

    def install(self, *arguments: str) -> None:
        self.done.append(Path(arguments[-1]).stem if arguments[-2] == "-r" else "project")

    def set_up(self, wanted: str) -> list[str]:
        """What one run did."""
        self.done.clear()
        self.environment.make(wanted)
        return list(self.done)


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Checkout]:
    with monkeypatch.context() as patch:
        patch.syspath_prepend(ROOT / "scripts")
        yield Checkout(tmp_path / "here", importlib.import_module("environment"), patch)


def test_a_second_run_does_nothing(checkout: Checkout) -> None:
    assert checkout.set_up("dev") == ["create", "dev", "project"]
    assert checkout.set_up("dev") == []


@pytest.mark.parametrize("less", ["core", "spark"])
def test_what_serves_for_tests_serves_for_less(checkout: Checkout, less: str) -> None:
    checkout.set_up("dev")
    assert checkout.set_up(less) == []


def test_what_serves_without_spark_is_completed_beneath_a_demo_that_runs_and_then_for_tests(checkout: Checkout) -> None:
    checkout.set_up("core")
    assert checkout.set_up("spark") == ["spark"]
    assert checkout.set_up("core") == []
    assert checkout.set_up("dev") == ["dev"]
    assert checkout.set_up("spark") == []


def test_a_file_of_pins_that_is_none_of_ours_is_refused(checkout: Checkout) -> None:
    assert checkout.environment.main(["all"]) == 2
    assert checkout.done == []


def test_changed_pins_start_anew(checkout: Checkout) -> None:
    checkout.set_up("dev")
    (checkout.root / "requirements" / "dev.txt").write_text("# other\n")
    assert checkout.set_up("dev") == ["create", "dev", "project"]


def test_a_moved_checkout_starts_anew(checkout: Checkout, tmp_path: Path) -> None:
    checkout.set_up("core")
    checkout.root.rename(tmp_path / "there")
    checkout.move_to(tmp_path / "there")
    assert checkout.set_up("core") == ["create", "core", "project"]


def test_an_activated_environment_is_not_made_anew(tmp_path: Path) -> None:
    python, environment = tmp_path / "python3", tmp_path / "environment"
    python.symlink_to(sys._base_executable)  # type: ignore[attr-defined]
    subprocess.run([python, "-m", "venv", "--without-pip", environment], check=True)
    outside, inside = (
        subprocess.run(
            [each, "-c", "import environment; print(environment.identity())"],
            cwd=ROOT / "scripts", check=True, capture_output=True, text=True,
        ).stdout
        for each in (python, environment / "bin" / "python3")
    )  # fmt: skip
    assert outside == inside


def test_a_python_that_is_gone_starts_anew(checkout: Checkout) -> None:
    checkout.set_up("core")
    checkout.environment.PYTHON.unlink()
    assert checkout.set_up("core") == ["create", "core", "project"]


@pytest.mark.parametrize(("before", "step"), [(None, 1), (None, 2), ("core", 1)], ids=["pins", "project", "more pins"])
def test_an_interrupted_install_starts_anew(checkout: Checkout, before: str | None, step: int) -> None:
    if before is not None:
        checkout.set_up(before)
    calls: list[str] = []

    def interrupted(*arguments: str) -> None:
        calls.append(arguments[-1])
        if len(calls) == step:
            raise KeyboardInterrupt

    with checkout.monkeypatch.context() as patch:
        patch.setattr(checkout.environment, "install", interrupted)
        with pytest.raises(KeyboardInterrupt):
            checkout.set_up("dev")
    assert checkout.set_up("core") == ["create", "core", "project"]


def test_a_torn_stamp_starts_anew(checkout: Checkout) -> None:
    checkout.set_up("core")
    checkout.environment.STAMP.write_text('{"root": "')
    assert checkout.set_up("core") == ["create", "core", "project"]


def test_a_new_command_reinstalls_the_project_only(checkout: Checkout) -> None:
    checkout.set_up("dev")
    settings = checkout.root / "pyproject.toml"
    settings.write_text(settings.read_text().replace("[project.scripts]", '[project.scripts]\nother = "penstock:x"'))
    assert checkout.set_up("dev") == ["project"]


def test_a_new_setting_of_a_linter_installs_nothing(checkout: Checkout) -> None:
    checkout.set_up("dev")
    settings = checkout.root / "pyproject.toml"
    settings.write_text(settings.read_text().replace("line-length = 120", "line-length = 119"))
    assert checkout.set_up("dev") == []
