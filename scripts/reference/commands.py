"""The page on the command line, from the tree of commands itself."""

import re
from collections.abc import Iterator

from cyclopts import App

from penstock.cli.help_pages import explaining
from penstock.cli.tree import app
from penstock.cli.usage import EXIT_CODES

HEAD = """# The command line

Made from the code by `make docs`. `penstock COMMAND --help` says the same.

`--url` names the server, or `--context` one that `penstock context` knows; without either `$PENSTOCK_URL` does. Errors
are one line on stderr. Commands that show rows take `-o table|json|ndjson|csv|raw`: a table on a terminal, a JSON
object for each row in a pipe, unless said otherwise.

A `TIMEDELTA` is a number and a unit, or several: `500ms`, `10s`, `2m`, `1h30m`, `7d`, `2w`, `90 minutes` (quoted, for
the blank). A `DATETIME` is `2026-11-15T08:00Z`; `2026-11-15 08:00` or `8:00`, by the clock of this machine; `now`,
`today`, `yesterday` or `tomorrow`; or how long ago it was: `10m`, `-10m` and `10 minutes ago` are the same, and `+10m`
is yet to come. Only where a moment to come is asked for, as by `--at`, `10m` is in ten minutes, and `8:00` tomorrow's
if today's is past.

"""


def page() -> str:
    lines = dict(_listed(app, "penstock"))
    with explaining([command for command, _ in lines.values()]):
        text: str = app.generate_docs(output_format="markdown", heading_level=1)
    body = text.partition("**Commands**:")[2].partition("\n## ")
    commands = "**Commands**:" + body[0] + body[1] + body[2]
    # Fenced as what they are: a usage line is nothing that a shell could run.
    usage = re.sub(r"```console\n(.*?)```", r"```\n\1```", commands, flags=re.DOTALL)
    # In lists by the line that is meant for them, as `--help` has it, not by the first of the docstring.
    lists = re.sub(r"^(\* \[`.*?`\]\(#(.*?)\)): .*$", lambda one: f"{one[1]}: {lines[one[2]][1]}", usage, flags=re.M)
    return HEAD + _exit_codes() + "\n" + lists.replace("\\[", "[").rstrip() + "\n"


def _listed(tree: App, name: str) -> Iterator[tuple[str, tuple[App, str]]]:
    """Where on the page each command is → it, and the line that lists it."""
    for word in tree:
        if not word.startswith("-"):
            command = tree[word]
            yield f"{name} {word}".replace(" ", "-"), (command, command.help)
            yield from _listed(command, f"{name} {word}")


def _exit_codes() -> str:
    rows = "".join(f"| {code} | {meaning} |\n" for code, meaning in EXIT_CODES.items())
    return f"| exit code | means |\n|---|---|\n{rows}"
