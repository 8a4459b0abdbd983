"""Fails when a file of the repository names a package index or a path of somebody's machine.

Such a line works for one person only, or sends everybody to a server they did not choose. Pins are hashes; where the
files come from is the configuration of whoever installs.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

# Written so that no pattern matches its own source.
FORBIDDEN = {
    # Whatever the host is called: these are the paths under which indexes and their files are served.
    "package index": re.compile(r"https?:" r"//[^\s'\"]+/(?:simple|packages|dists|debian|maven2)/", re.IGNORECASE),
    "index option": re.compile(r"^\s*(?:--(?:extra-)?index-url|--default-index|--find-links|-i\s|-f\s)", re.MULTILINE),
    "machine path": re.compile(r"(?<![\w.~$}/-])/(?:root|work|home|Users)/"),
    "local package": re.compile(r"@ file:" r"//"),
}


def problems(root: Path, files: list[str]) -> Iterator[str]:
    """One line for each finding, naming file and line."""
    for name in files:
        file = root / name
        if not file.is_file():
            continue
        text = file.read_bytes().decode("utf-8", "replace")
        for what, pattern in FORBIDDEN.items():
            for match in pattern.finditer(text):
                yield f"{name}:{text.count(chr(10), 0, match.start()) + 1}: {what}: {match.group().strip()}"


def repository_files(root: Path) -> list[str]:
    """What is tracked, and what would be with the next `git add`."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        check=True,
    )
    return sorted(name for name in listing.stdout.decode().split("\0") if name)


if __name__ == "__main__":
    here = Path(__file__).resolve().parent.parent
    found = list(problems(here, repository_files(here)))
    print("\n".join(found) if found else "hosts: no package index and no machine path in the repository")
    sys.exit(bool(found))
