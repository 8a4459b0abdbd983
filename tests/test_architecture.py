"""The shape of the code: who imports whom, how long things are, what an import costs, what is public."""

import importlib.util
import inspect
import re
import subprocess
import sys
import tomllib
from dataclasses import is_dataclass
from pathlib import Path
from types import ModuleType

import pytest

import penstock

ROOT = Path(__file__).resolve().parent.parent
MUST_STAY_UNLOADED = {"redis", "hiredis", "pyspark", "starlette", "pandas", "pydantic", "msgspec"}


def test_imports_keep_to_the_floors() -> None:
    lint = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"
    done = subprocess.run(
        [sys.executable, "-c", lint], cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Contracts: 6 kept, 0 broken." in done.stdout


def test_files_and_functions_stay_small() -> None:
    assert run_script("check_sizes.py") == "sizes: every file and function is within its ceiling\n"


def test_the_size_check_sees_a_long_function() -> None:
    check = load_script("check_sizes")
    source = "def f():\n" + "    x = 1\n" * 60
    assert list(check.long_functions(source)) == ["1: f() has 61 lines, at most 60"]
    assert not list(check.long_functions("def f():\n" + "    x = 1\n" * 59))


@pytest.mark.parametrize(
    "line",
    [
        "--index-" + "url mirror.example.test",
        "https:" + "//mirror.example.test/simple/penstock/",
        "https:" + "//mirror.example.test/packages/ab/cd/x.whl",
        "cd /" + "root/x",
        "x @ file:" + "///y",
    ],
)
def test_the_host_check_sees_what_must_not_be_committed(tmp_path: Path, line: str) -> None:
    (tmp_path / "some.txt").write_text(f"first\n{line}\n")
    (finding,) = load_script("check_hosts").problems(tmp_path, ["some.txt"])
    assert finding.startswith("some.txt:2: ")


def test_the_pins_name_no_host_and_cover_every_dependency() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    core = settings["project"]["dependencies"] + settings["dependency-groups"]["build"]
    spark = core + settings["project"]["optional-dependencies"]["spark"]
    dev = spark + settings["dependency-groups"]["test"] + settings["dependency-groups"]["lint"]
    for file, wanted in (("core.txt", core), ("spark.txt", spark), ("dev.txt", dev)):
        text = (ROOT / "requirements" / file).read_text()
        assert "://" not in text
        pins = dict(re.findall(r"^([a-z0-9-]+)==(\S+)", text, re.MULTILINE))
        assert {re.match(r"[\w-]+", requirement)[0] for requirement in wanted} <= pins.keys(), file  # type: ignore[index]


def test_every_file_of_pins_holds_the_smaller_ones_in_the_same_versions() -> None:
    core, spark, dev = (
        set(re.findall(r"^[a-z0-9-]+==\S+", (ROOT / "requirements" / file).read_text(), re.MULTILINE))
        for file in ("core.txt", "spark.txt", "dev.txt")
    )
    assert core < spark < dev


def test_importing_penstock_loads_nothing_heavy() -> None:
    before, after = fresh("import sys; a = set(sys.modules); import penstock; print(*a, '|', *sys.modules)").split("|")
    loaded = {name.partition(".")[0] for name in set(after.split()) - set(before.split())}
    assert "penstock" in loaded
    assert not loaded & MUST_STAY_UNLOADED


def test_importing_penstock_costs_less_than_one_and_a_half_times_asyncio() -> None:
    # The least of several interleaved runs: a busy neighbour makes a run slower, never faster.
    ours, theirs = [], []
    for _ in range(7):
        ours.append(seconds_to_import("penstock"))
        theirs.append(seconds_to_import("asyncio, dataclasses"))
    assert min(ours) < 1.5 * min(theirs), f"{min(ours) * 1000:.1f} ms against {min(theirs) * 1000:.1f} ms"


def test_every_public_name_resolves_and_is_documented() -> None:
    assert len(set(penstock.__all__)) == len(penstock.__all__)
    undocumented = [name for name in penstock.__all__ if not is_documented(name, getattr(penstock, name))]
    assert not undocumented


def test_the_version_is_the_same_wherever_it_is_written() -> None:
    assert penstock.__version__ == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


def test_the_package_says_that_it_is_typed() -> None:
    assert (Path(inspect.getfile(penstock)).parent / "py.typed").is_file()


def is_documented(name: str, value: object) -> bool:
    if isinstance(value, type):
        written = value.__dict__.get("__doc__") or ""
        # A dataclass without a docstring is given its signature for one.
        return bool(written) and not (is_dataclass(value) and written.startswith(f"{name}("))
    if isinstance(value, ModuleType) or callable(value):
        return bool(inspect.getdoc(value))
    # A constant or an alias cannot carry a docstring of its own.
    return any(f"`{name}`" in page.read_text() for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])


def fresh(code: str) -> str:
    """What a new interpreter prints when it runs this code."""
    return subprocess.run(
        [sys.executable, "-c", code], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=True
    ).stdout


def seconds_to_import(modules: str) -> float:
    return float(fresh(f"import time; t = time.perf_counter(); import {modules}; print(time.perf_counter() - t)"))


def run_script(name: str) -> str:
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / name)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    return done.stdout


def load_script(name: str) -> ModuleType:
    specification = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module
