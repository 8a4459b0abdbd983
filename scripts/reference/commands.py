"""The page on the command line, from the tree of commands itself."""

import re

from penstock.cli import usage
from penstock.cli.main import app

HEAD = """# The command line

Made from the code by `make docs`. `penstock COMMAND --help` says the same.

`--url` names the server, or `--context` one that `penstock context` knows; without either `$PENSTOCK_URL` does. Errors
are one line on stderr. Commands that show rows take `-o table|json|ndjson|csv|raw`: a table on a terminal, a JSON
object for each row in a pipe, unless said otherwise.

"""


def page() -> str:
    text: str = app.generate_docs(output_format="markdown", heading_level=1)
    body = text.partition("**Commands**:")[2].partition("\n## ")
    commands = "**Commands**:" + body[0] + body[1] + body[2]
    # Fenced as what they are: a usage line is nothing that a shell could run.
    usage = re.sub(r"```console\n(.*?)```", r"```\n\1```", commands, flags=re.DOTALL)
    return HEAD + _exit_codes() + "\n" + usage.replace("\\[", "[").rstrip() + "\n"


def _exit_codes() -> str:
    """As the module that gives them tells them."""
    rows = re.findall(r"^(\d+) {2,}(.+)$", usage.__doc__ or "", re.MULTILINE)
    told = [(code, meaning.replace("|", "\\|")) for code, meaning in rows]
    return "| exit code | means |\n|---|---|\n" + "".join(f"| {code} | {meaning} |\n" for code, meaning in told)
