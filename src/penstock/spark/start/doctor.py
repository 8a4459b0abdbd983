"""What a Spark session needs of this machine, and what of it is there. Works without the `spark` extra too."""

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from penstock.errors import SetupError
from penstock.spark.start.java import REMEDY, candidates, home_for_spark

EXTRA = {
    "pyspark": ((4, 3), (4, 4)),
    "pandas": ((2, 2), (3,)),
    "pyarrow": ((18,), None),
    "numpy": ((1, 26), None),
    "protobuf": ((6, 33, 5), (7,)),
}
"""Package -> oldest version that will do, and the first that will not. The same as the extra `spark`."""

_MODULES = {"protobuf": "google.protobuf"}
_INSTALL = "pip install 'penstock[spark]'"
_WORKER_SECONDS = 60
_WORKER_IMPORTS = "import sys, pyspark, pyarrow, numpy, penstock.spark; print(*sys.version_info[:2])"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that Spark needs. With a `remedy` it is not as it should be; the remedy is what to do.

    A remedy that begins with a command is nothing else, so that it can be pasted.
    """

    what: str
    found: str
    remedy: str = ""
    besides: str = ""
    """What to know about the remedy."""


def examine(environ: Mapping[str, str] = os.environ) -> Iterator[Finding]:
    """Everything that decides whether `penstock.spark.session()` can start, each looked at now."""
    for package in EXTRA:
        yield _package(package)
    yield _registration()
    yield _java(environ)
    yield from _spark_home(environ)
    yield _workers(environ)
    yield _bash(environ)


def missing() -> list[str]:
    """Which of these packages cannot be imported."""
    return [package for package in EXTRA if not _is_there(_MODULES.get(package, package))]


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # not even the package that it is in
        return False


def _package(name: str) -> Finding:
    oldest, too_new = EXTRA[name]
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return Finding(name, "not installed", _INSTALL)
    numbers = tuple(int(number) for number in re.findall(r"\d+", version)[:3])
    fits = numbers >= oldest and (too_new is None or numbers < too_new)
    return Finding(name, version) if fits else Finding(name, version, _INSTALL, f"it takes {_range(oldest, too_new)}")


def _range(oldest: tuple[int, ...], too_new: tuple[int, ...] | None) -> str:
    words = [f"{oldest[0]}.{oldest[1]} or newer" if len(oldest) > 1 else f"{oldest[0]} or newer"]
    if too_new is not None:
        words.append(f"older than {'.'.join(map(str, too_new))}")
    return ", ".join(words)


def _registration() -> Finding:
    # Spark walks sys.path for modules named pyspark_*; a penstock put together by hand may lack the second package.
    if find_spec("pyspark_penstock") is None:
        return Finding(
            'format("penstock")', "module pyspark_penstock is not installed", "pip install --force-reinstall penstock"
        )
    return Finding('format("penstock")', "registers itself")


def _java(environ: Mapping[str, str]) -> Finding:
    found = list(candidates(environ))
    java = next((java for java in found if not java.fault), None)
    if java is None:
        return Finding("java", ", ".join(map(str, found)) or "none", REMEDY)
    try:
        home = home_for_spark(java, environ)
    except SetupError as error:
        return Finding("java", str(java), str(error))
    starter = "" if home == java.home else f", started through {home}"
    return Finding("java", f"{java}{starter}")


def _spark_home(environ: Mapping[str, str]) -> Iterator[Finding]:
    chosen, spec = environ.get("SPARK_HOME"), find_spec("pyspark")
    if not chosen or spec is None or spec.origin is None:
        return
    own = Path(spec.origin).parent
    same = os.path.realpath(chosen) == os.path.realpath(own)
    yield Finding("$SPARK_HOME", chosen, "" if same else f"unset SPARK_HOME: the Spark that fits this Python is {own}")


def _workers(environ: Mapping[str, str]) -> Finding:
    """Spark runs our code in Python processes of its own choice, which must be able to import it."""
    python = environ.get("PYSPARK_PYTHON", sys.executable)
    ours = f"{sys.version_info.major} {sys.version_info.minor}"
    if "PYSPARK_PYTHON" not in environ:
        return Finding("workers' Python", f"{python} (this one)")
    remedy = "unset PYSPARK_PYTHON, or set it to a Python of the same version with penstock[spark] installed"
    try:
        done = subprocess.run(
            [python, "-c", _WORKER_IMPORTS],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_WORKER_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding("workers' Python", f"$PYSPARK_PYTHON is {python}: {error}", remedy)
    if done.returncode != 0:
        return Finding("workers' Python", f"{python}: {done.stderr.strip().splitlines()[-1:]}", remedy)
    fits = done.stdout.strip() == ours
    return Finding(
        "workers' Python", f"{python} (Python {done.stdout.strip().replace(' ', '.')})", "" if fits else remedy
    )


def _bash(environ: Mapping[str, str]) -> Finding:
    found = shutil.which("bash", path=environ.get("PATH", os.defpath))
    if found is None:
        return Finding("bash", "not on PATH", "install bash: Spark is started by scripts written for it")
    return Finding("bash", found)
