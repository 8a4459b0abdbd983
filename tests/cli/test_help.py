"""What help costs: the parser and no more, whatever a command needs when it runs."""

import inspect
import subprocess
import sys

import pytest

from scripts.reference import commands
from tests.support.command_line import CommandLine
from tests.support.commands import Leaf, leaves

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


@pytest.fixture(scope="module")
def helps(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What `--help` says, by the words of the command, or of the tree that it is in."""
    nowhere = CommandLine(None, tmp_path_factory.mktemp("config"))
    names = dict.fromkeys((*leaves(), *(name.rpartition(" ")[0] for name in leaves())))
    return {name: nowhere(*name.split(), "--help", columns=300).out for name in names}


def test_a_command_is_listed_by_one_line_and_explained_by_all_that_its_docstring_says(helps: dict[str, str]) -> None:
    page = flat(commands.page())
    for name, leaf in leaves().items():
        if name == "worker":  # nobody but its supervisor starts it
            continue
        told = flat(helps[name].partition("╭")[0])
        listed = leaf.app.help
        assert "\n" not in listed
        assert listed in helps[name.rpartition(" ")[0]]
        assert " " in name or f"#penstock-{name}): {listed}" in page
        for paragraph in paragraphs(leaf):
            assert paragraph in told, name
            assert paragraph in page, name


def paragraphs(leaf: Leaf) -> list[str]:
    text = inspect.getdoc(leaf.app.default_command) or ""
    return [flat(one) for one in text.partition("Parameters\n-----")[0].split("\n\n") if one.strip()]


def flat(text: str) -> str:
    return " ".join(text.split())


def test_help_shows_no_python_and_no_flags_that_do_nothing(helps: dict[str, str]) -> None:
    shown = {name: flat(text) for name, text in helps.items()}
    assert [name for name, text in shown.items() if "default: (" in text or "default: [" in text] == []
    assert [name for name, text in shown.items() if "--empty-" in text] == ["serve"]
    assert "--read STR... --empty-read" in shown["serve"]
    assert "[default: *]" in shown["serve"]
    assert "--empty-origin" not in shown["serve"]


def test_what_needs_a_yes_in_dead_edit_is_not_what_was_written_in_an_editor(helps: dict[str, str]) -> None:
    told = flat(helps["dead edit"])
    assert "Give a body back that is in --body or --file. Without this nothing is changed" in told
    assert "No editor needs it." in told
