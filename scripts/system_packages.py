"""Programs that tests need and that no Python package brings. Installed only by root, and only with apt-get."""

import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from say import SetupFailed, run, say

# Program on PATH -> Debian or Ubuntu package.
NEEDED = {"redis-server": "redis-server", "chromium": "chromium"}

POLICY = Path("/usr/sbin/policy-rc.d")


def install_missing() -> None:
    """Install what is missing if we may. What stays missing is named; pytest lists the tests that did not run."""
    missing = [program for program in NEEDED if shutil.which(program) is None]
    if missing and may_install():
        try:
            apt_install([NEEDED[program] for program in missing])
        except SetupFailed as failure:
            say(str(failure))
        missing = [program for program in missing if shutil.which(program) is None]
    for program in missing:
        say(f"missing: {program} (as root: apt-get install {NEEDED[program]}); tests that need it will NOT RUN")


def install_venv_module() -> None:
    """Debian ships Python without the part that puts pip into a new environment."""
    package = f"python3.{sys.version_info.minor}-venv"
    # A Python built by hand does not gain ensurepip from a Debian package.
    if not may_install() or not sys.base_prefix.startswith("/usr"):
        raise SetupFailed(
            f"this Python has no ensurepip: install it (Debian, Ubuntu, as root: apt-get install {package})"
            " or put uv on PATH, then run this again"
        )
    apt_install([package])


def may_install() -> bool:
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def apt_install(packages: Sequence[str]) -> None:
    say(f"installing with apt-get: {' '.join(packages)}")
    settings = {"DEBIAN_FRONTEND": "noninteractive"}
    patient = ["-qq", "-o", "DPkg::Lock::Timeout=120", "-o", "Dpkg::Use-Pty=0"]
    with no_service_starts():
        run(["apt-get", "update", *patient], environment=settings, quiet=True)
        run(
            ["apt-get", "install", "-y", "--no-install-recommends", *patient, *packages],
            environment=settings,
            quiet=True,
        )
    if "redis-server" in packages and Path("/run/systemd/system").is_dir():
        say("the package starts a Redis on port 6379 at the next boot; 'systemctl disable redis-server' prevents that")


@contextmanager
def no_service_starts() -> Iterator[None]:
    """Debian starts a freshly installed server; tests start their own. Exit code 101 of this file means: do not."""
    if POLICY.exists():  # container images have one, with the same meaning
        yield
        return
    POLICY.write_text("#!/bin/sh\nexit 101\n", encoding="ascii")
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink(missing_ok=True)
