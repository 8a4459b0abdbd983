"""Remedies as findings print them: taken apart, and run as they are written."""

import asyncio
import shlex
import subprocess
from collections.abc import Awaitable, Callable
from typing import Any

from penstock import Penstock
from penstock.cli.tree import app as command_line
from tests.support.command_line import CommandLine


def prepared(penstock: CommandLine, do: Callable[[Penstock], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        async with Penstock.connect(penstock.url) as app:
            return await do(app)

    return asyncio.run(run())


FIRST_TRIED = (
    *(["group", "rm"], ["topic", "rm"], ["cursor", "rm"], ["dead", "purge"], ["topic", "trim"]),
    *(["group", "reset"], ["cursor", "reset"], ["lake", "replay"]),
)
"""What takes away for good what somebody may want yet, or gives much of it again. As printed, these only say what they
would do."""


def told(penstock: CommandLine, rule: str, *asking: str) -> list[dict[str, Any]]:
    """What a rule has found. A remedy that begins with a command is one, and no prose follows: it is to be pasted."""
    rows = [row for row in penstock(*asking, code=None).rows if row["rule"] == rule]
    for words in (shlex.split(row["remedy"]) for row in rows):
        if words[0] in ("penstock", "valkey-cli", "redis-cli"):
            assert not any(word.endswith((",", ";", ":")) for word in words), words
            assert words[0] != "penstock" or command_line.parse_commands(words[1:])[0], words
        else:
            assert not set(words) & {"penstock", "valkey-cli", "redis-cli"}, words
    for words in (words for row in rows for words in commands(row)):
        assert words[:2] not in FIRST_TRIED or "--yes" not in words, words
    return rows


def commands(row: dict[str, Any]) -> list[list[str]]:
    """The remedy, if it is a command of ours; then every command of ours that is named besides, up to the end of its
    part of the sentence."""
    remedy, parts = row["remedy"], row["besides"].split("penstock ")[1:]
    own = [shlex.split(remedy)[1:]] if remedy.startswith("penstock ") else []
    return own + [shlex.split(part.split("; ")[0].split(", ")[0]) for part in parts]


def pasted(remedy: str) -> str:
    """What the server's own client answers to a remedy; Redis's client does for both."""
    words = shlex.split(remedy)[1:]
    done = subprocess.run(["redis-cli", *words], capture_output=True, text=True, timeout=30, check=True)
    return done.stdout.strip()


def filled(words: list[str], **values: str) -> list[str]:
    """A command with its words in capitals filled in."""
    return [values.get(word, word) for word in words]
