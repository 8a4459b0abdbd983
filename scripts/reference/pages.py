"""Which files are made, and their text as it has to be now."""

from pathlib import Path

from scripts.reference import api, commands, examples, figures, keys

ROOT = Path(__file__).resolve().parents[2]


def made() -> dict[str, str]:
    """Path within the repository → whole text."""
    return {
        "docs/reference/api.md": api.page(),
        "docs/reference/cli.md": commands.page(),
        "docs/reference/keys.md": keys.page(),
        "examples/README.md": examples.page(),
        **figures.pages(),
    }
