"""What help costs: the parser and no more, whatever a command needs when it runs."""

import subprocess
import sys

import pytest

from tests.support.commands import leaves

HEAVY = {"redis", "hiredis", "pyspark", "py4j", "starlette", "uvicorn", "pyarrow", "duckdb", "pandas"}

# One interpreter for all: it says after each what is loaded by then that must not be.
HELP = f"""
import sys
from penstock.cli.main import main
loaded = lambda: {{name.partition(".")[0] for name in sys.modules}}
for words in sys.argv[1:]:
    main([*words.split(), "--help"])
    print(words, *sorted(loaded() & {HEAVY | {"msgspec"}}), sep=",", file=sys.stderr)
"""


@pytest.mark.timeout(180)  # the help of every command, one after the other
def test_the_help_of_every_command_says_how_to_use_it_and_loads_no_client_of_a_server() -> None:
    above = dict.fromkeys(name.rpartition(" ")[0] for name in leaves())  # of the tree first: it loads even less
    command = [sys.executable, "-c", HELP, *above, *leaves()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=150, check=True)
    loaded = {name: set(found) for name, *found in (line.split(",") for line in done.stderr.splitlines())}
    assert {name: found for name, found in loaded.items() if found & HEAVY} == {}
    assert {name for name in above if loaded[name]} == set()
    assert "\n    4  the server cannot be reached\n" in done.stdout
    used = [line for line in done.stdout.splitlines() if line.startswith("Usage: ")]
    for name in (*above, *leaves()):
        assert any(f"{line} ".startswith(f"Usage: penstock {name}".strip() + " ") for line in used), name
