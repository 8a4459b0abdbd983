"""What help costs: the parser and no more, whatever a command needs when it runs."""

import subprocess
import sys

HEAVY = {"redis", "hiredis", "pyspark", "py4j", "starlette", "uvicorn", "pyarrow", "duckdb", "pandas"}
LEAVES = [
    ["publish"], ["tail"], ["get"], ["ls"], ["trace"], ["up"],
    ["topic", "info"], ["topic", "trim"], ["topic", "export"], ["topic", "import"], ["topic", "rm"], ["topic", "adopt"],
    ["group", "ls"], ["group", "info"], ["group", "pending"], ["group", "reset"], ["group", "claim"], ["group", "ack"],
    ["group", "rm"], ["group", "pause"], ["group", "resume"],
    ["doctor"], ["why"], ["check"], ["context", "ls"], ["context", "add"], ["cron", "ls"], ["cron", "rm"],
    ["dead", "ls"], ["dead", "show"], ["dead", "replay"], ["dead", "edit"], ["dead", "purge"],
    ["job", "ls"], ["job", "show"], ["job", "stats"], ["job", "enqueue"], ["job", "result"], ["job", "cancel"],
    ["job", "retry"], ["job", "run"], ["job", "priority"], ["job", "pause"], ["job", "drain"],
    ["top"], ["bench"], ["completion"],
]  # fmt: skip


def loaded_by(*commands: list[str]) -> tuple[str, set[str]]:
    """What a new interpreter prints, and which packages it has then, if it is asked for the help of these."""
    calls = "; ".join(f"main({[*command, '--help']})" for command in commands)
    code = f"import sys; from penstock.cli.main import main; {calls}; print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50, check=True)
    return done.stdout, {name.partition(".")[0] for name in done.stderr.split()}


def test_the_help_of_the_tree_loads_nothing_but_the_parser() -> None:
    groups = ["topic", "group", "context", "cron", "job", "lake", "pipeline", "spark"]
    said, loaded = loaded_by([], *([name] for name in groups))
    assert "\n    4  the server cannot be reached\n" in said
    assert {"penstock", "cyclopts"} <= loaded
    assert not loaded & (HEAVY | {"msgspec"})


def test_the_help_of_commands_that_ask_a_server_loads_no_client_of_it() -> None:
    said, loaded = loaded_by(*LEAVES)
    for words in LEAVES:
        assert f"Usage: penstock {' '.join(words)}" in said
    assert not loaded & HEAVY
