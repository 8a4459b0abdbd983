"""Makes .venv hold exactly what requirements/ pins, and the project itself, editable.

Run by scripts/bootstrap with the name of a requirements file. When nothing changed it returns at once. The stamp is
taken away before the first change and written after the last, so an interrupted install is seen and made anew.
"""

import fcntl
import hashlib
import importlib.util
import json
import os
import shutil
import sys
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import system_packages
from say import SetupFailed, run, say

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
STAMP = VENV / "penstock-stamp.json"
PYTHON = VENV / "bin" / "python"

# Each holds all that those before it hold, in the same versions: what is there can be completed, and serves for less.
FILES = ("core", "spark", "dev")


def main(arguments: list[str]) -> int:
    """Make the environment for `core` (to run), `spark` (with the pipeline) or `dev` (to test and check).

    Returns the exit code.
    """
    if len(arguments) != 1 or arguments[0] not in FILES:
        print(f"usage: scripts/bootstrap {'|'.join(FILES)}", file=sys.stderr)
        return 2
    try:
        wait_for_our_turn()
        make(arguments[0])
        if arguments[0] == "dev":
            system_packages.install_missing()
    except SetupFailed as failure:
        say(str(failure))
        return 1
    except KeyboardInterrupt:
        say("interrupted; the next run starts afresh")
        return 130
    return 0


def make(wanted: str) -> None:
    stamp = read_stamp()
    if not is_reusable(stamp, identity()):
        create()
        stamp = {**identity(), "pins": {}, "project": ""}
    lacks_pins = stamp["pins"].keys().isdisjoint(FILES[FILES.index(wanted) :])
    lacks_project = stamp["project"] != project_digest()
    if not lacks_pins and not lacks_project:
        return
    STAMP.unlink(missing_ok=True)
    if lacks_pins:
        say(f"installing requirements/{wanted}.txt")
        install("--require-hashes", "--no-deps", "-r", str(requirements(wanted)))
        stamp["pins"][wanted] = digest(requirements(wanted))
    if lacks_project:  # else somebody may be running it now, as `make demo` does
        say("installing penstock itself, editable")
        install("--no-build-isolation", "--no-deps", "--editable", str(ROOT))
        stamp["project"] = project_digest()
    write_stamp(stamp)


def identity() -> dict[str, str]:
    """Of which checkout and Python an environment is: the same inside an activated .venv as outside it."""
    # A Python has many names, python3 and python3.11 among them, and inside .venv it is known by another one.
    return {"root": str(ROOT), "python": f"{os.path.realpath(base_python())} {sys.version}"}


def is_reusable(stamp: dict[str, Any], wanted: dict[str, str]) -> bool:
    """Whether what is in .venv belongs to this checkout, this Python and today's pins."""
    if not VENV.exists():
        reason = "there is none yet"
    elif not stamp or not PYTHON.exists():
        reason = "it is incomplete"
    elif any(stamp.get(name) != value for name, value in wanted.items()):
        reason = "the checkout moved or Python changed"
    elif any(digest(requirements(name)) != pinned for name, pinned in stamp["pins"].items()):
        reason = "the pinned requirements changed"
    else:
        return True
    say(f"making .venv ({reason}) with Python {sys.version.split()[0]}{' and uv' if uv() else ''}")
    return False


def create() -> None:
    if VENV.is_symlink() or VENV.is_file():
        VENV.unlink()
    elif VENV.exists():
        shutil.rmtree(VENV)
    if uv():
        run_with_the_lock([uv(), "venv", "--quiet", "--no-project", "--python", base_python(), str(VENV)])
        return
    if importlib.util.find_spec("ensurepip") is None:
        system_packages.install_venv_module()
    run_with_the_lock([base_python(), "-m", "venv", str(VENV)])


def install(*arguments: str) -> None:
    if uv():
        command = [uv(), "pip", "install", "--quiet", "--python", str(PYTHON), *arguments]
    else:
        pip = [str(PYTHON), "-m", "pip", "-qq", "--disable-pip-version-check", "--no-input"]
        command = [*pip, "install", "--no-warn-script-location", "--progress-bar", "off", *arguments]
    run_with_the_lock(command)


def run_with_the_lock(command: list[str]) -> None:
    # If we are killed, the installer goes on, and the next set-up must not work beside it.
    run(command, keep_open=[lock_file()])


def uv() -> str:
    return shutil.which("uv") or ""


def base_python() -> str:
    # Inside an activated .venv `python3` is the one we may be about to delete; go to the one it was made from.
    return str(getattr(sys, "_base_executable", sys.executable))


def requirements(name: str) -> Path:
    return ROOT / "requirements" / f"{name}.txt"


def digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else ""


def project_digest() -> str:
    """Changes with what the installed metadata and commands are made from, not with the settings of linters."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    relevant = [settings["build-system"], settings["project"], settings["tool"]["hatch"]]
    return hashlib.sha256(json.dumps(relevant, sort_keys=True).encode()).hexdigest()


def read_stamp() -> dict[str, Any]:
    try:
        stamp = json.loads(STAMP.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return stamp if isinstance(stamp, dict) and {"pins", "project"} <= stamp.keys() else {}


def write_stamp(stamp: dict[str, Any]) -> None:
    unfinished = STAMP.with_suffix(".new")
    unfinished.write_text(json.dumps(stamp, indent=1), encoding="utf-8")
    os.replace(unfinished, STAMP)


@cache
def lock_file() -> int:
    # Beside .venv, not inside: the holder may delete .venv.
    opened = os.open(ROOT / ".venv.lock", os.O_RDWR | os.O_CREAT, 0o644)
    # Started with a closed stdin we get its number, which our children use for a stdin of their own.
    return fcntl.fcntl(opened, fcntl.F_DUPFD_CLOEXEC, 3)


def wait_for_our_turn() -> None:
    """Take the lock. The kernel gives it back when we and the installers that inherited it are gone."""
    try:
        fcntl.flock(lock_file(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say("another set-up is running here; waiting for it")
        fcntl.flock(lock_file(), fcntl.LOCK_EX)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
