"""Servers by name, kept in a file of the user's own: what `--context` means, and which one is current."""

import os
from collections.abc import Mapping
from pathlib import Path
from tempfile import NamedTemporaryFile

import msgspec

from penstock.cli.usage import NotThereError
from penstock.errors import PenstockError


class ContextsError(PenstockError):
    """The file of contexts cannot be read, or not be written. Nothing on the command line mends that."""


class Contexts(msgspec.Struct):
    """What is in the file. URLs may hold passwords: show the `Address` that `parse` makes of one, never the URL."""

    current: str | None = None
    urls: dict[str, str] = {}

    def url(self, name: str) -> str:
        """`NotThereError` if there is no context of that name."""
        if name not in self.urls:
            known = f"there are {', '.join(sorted(self.urls))}" if self.urls else "there are none"
            raise NotThereError(f"there is no context {name!r}: {known}; penstock context add {name} URL makes it")
        return self.urls[name]


def contexts_file(environ: Mapping[str, str] = os.environ) -> Path:
    """`penstock/contexts.json` in `$XDG_CONFIG_HOME`, else in `~/.config`."""
    given = environ.get("XDG_CONFIG_HOME", "")
    home = Path(given) if os.path.isabs(given) else Path(environ.get("HOME") or os.path.expanduser("~"), ".config")
    return home / "penstock" / "contexts.json"


def load_contexts() -> Contexts:
    """Those that are kept; none if there is no file."""
    file = contexts_file()
    try:
        return msgspec.json.decode(file.read_bytes(), type=Contexts)
    except (FileNotFoundError, NotADirectoryError):
        return Contexts()
    except OSError as error:
        raise ContextsError(f"the contexts in {file} cannot be read: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise ContextsError(f"the contexts in {file} cannot be read: {error}; mend it or delete it") from error


def save_contexts(contexts: Contexts) -> None:
    """Replace the file in one step; nobody but its owner can read it."""
    file = contexts_file()
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Such a file is for its owner alone from the beginning.
        with NamedTemporaryFile(dir=file.parent, prefix=".contexts-", delete=False) as new:
            new.write(msgspec.json.format(msgspec.json.encode(contexts)) + b"\n")
        os.replace(new.name, file)
    except OSError as error:
        raise ContextsError(f"the contexts in {file} cannot be written: {error.strerror}") from error
