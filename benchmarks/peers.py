"""`make bench-peers`: other libraries in an environment of their own, outside the repository.

It is made in $PENSTOCK_BENCH_PEERS, else under the system's temporary directory, with the newest versions the package
index has. Benchmarks find it there and run it beside Penstock; without it they say so and leave those rows out.
"""

import json
import os
import subprocess
import sys
import tempfile
import venv
from functools import cache
from pathlib import Path

PLACE = "PENSTOCK_BENCH_PEERS"
PACKAGES = {
    "": ("faststream[redis]", "taskiq", "taskiq-redis", "streaq", "dramatiq[redis]", "pydocket"),
    "jobs": ("rq", "celery[redis]"),
    "arq": ("arq", "msgpack"),
    "saq": ("saq[redis]", "typing_extensions"),
}
"""By environment. Those with a name are beside the first: some want another Redis client than the others."""

FAST = ("hiredis", "uvloop", "orjson")


def directory(environment: str = "") -> Path:
    place = Path(os.environ.get(PLACE) or Path(tempfile.gettempdir()) / "penstock-bench-peers")
    return place.with_name(f"{place.name}-{environment}") if environment else place


def python(environment: str = "") -> Path | None:
    """The interpreter that has the peers; None if nobody has installed them."""
    found = directory(environment) / "bin" / "python"
    return found if found.exists() and versions(environment) else None


@cache
def versions(environment: str = "") -> dict[str, str]:
    """What is installed there; empty unless all of it is."""
    names = [name.partition("[")[0] for name in (*PACKAGES[environment], "uvloop")]
    code = f"import importlib.metadata as m, json; print(json.dumps({{n: m.version(n) for n in {names!r}}}))"
    python_there = directory(environment) / "bin" / "python"
    done = subprocess.run([python_there, "-c", code], capture_output=True, text=True, check=False)
    found: dict[str, str] = json.loads(done.stdout) if done.returncode == 0 else {}
    return found


def main() -> None:
    for environment in sys.argv[1:] or PACKAGES:
        install(environment)


def install(environment: str) -> None:
    place, packages = directory(environment), PACKAGES[environment]
    if place.exists() and any(place.iterdir()) and not (place / "pyvenv.cfg").exists():
        sys.exit(f"bench-peers: {place} holds something else; point ${PLACE} to a directory of its own")
    print(f"bench-peers: installing {', '.join(packages)} in {place}", flush=True)
    venv.create(place, with_pip=True, clear=True)
    pip = [str(place / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if subprocess.run([*pip, *packages, *FAST], check=False).returncode:
        sys.exit("bench-peers: pip failed; this step needs a package index. The benchmarks run without peers.")
    print("bench-peers: " + ", ".join(f"{name} {number}" for name, number in versions(environment).items()))


if __name__ == "__main__":
    main()
