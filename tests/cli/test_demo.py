"""The demo as a newcomer meets it: no terminal, no input, one command."""

import os
import subprocess
import sys

import pytest

COMMAND = [sys.executable, "-c", "from penstock.cli.main import main; main()", "demo"]


def run(*arguments: str, seconds: float = 50) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": "120"}
    return subprocess.run(
        [*COMMAND, *arguments],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )


def rows(output: str, columns: int) -> dict[str, list[str]]:
    """The tables of so many columns, by the first."""
    lines = [[cell.strip() for cell in line.split("│")[1:-1]] for line in output.splitlines()]
    return {name: cells[:-1] for name, *cells in filter(None, lines) if len(cells) == columns - 1}


def test_the_demo_reconciles_and_says_what_became_of_every_message() -> None:
    result = run("--no-archive")
    assert result.returncode == 0, result.stderr
    assert "Published 1,000 orders" in result.stdout
    assert rows(result.stdout, 3) == {
        "published": ["1,001"],
        "handled": ["1,000"],
        "retries": ["3"],
        "dead letters": ["1"],
    }
    assert "after 3 attempts: ConnectionError: the bank refused order 13" in result.stdout
    assert "replayed 1 dead letter to group billing" in result.stdout
    assert "Nothing was lost" in result.stdout
    lanes = rows(result.stdout, 5)
    assert {lane: cells[0] for lane, cells in lanes.items()} == {"high": "200", "normal": "200", "low": "200"}
    # The urgent ones were enqueued last; of 16 that are begun each other lane has one.
    assert [int(lanes[lane][1]) for lane in ("high", "normal", "low")] == pytest.approx([140, 10, 10], abs=4)
    assert "Spark" not in result.stdout


@pytest.mark.xdist_group("spark")
@pytest.mark.timeout(180)
def test_the_demo_archives_what_the_bus_handled_and_nothing_of_spark_spoils_the_view() -> None:
    result = run(seconds=170)
    assert result.returncode == 0, result.stderr
    assert "Archived 1,001 entries to Parquet" in result.stdout
    assert rows(result.stdout, 4) == {
        "published": ["1,001", "1,001"],
        "distinct": ["1,001", "1,001"],
        "handled": ["1,000", "1,000"],
        "dead": ["1", "1"],
        "charged": ["599,500", "599,500"],
    }
    assert "Bus and archive agree" in result.stdout
    assert result.stderr == ""


def test_without_spark_the_demo_says_what_to_install_and_the_rest_of_it_runs() -> None:
    script = "import sys; sys.modules['pyspark'] = None; from penstock.cli.main import main; main(['demo'])"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=50, check=False)
    assert result.returncode == 0, result.stderr
    assert "Nothing was lost" in result.stdout
    (said,) = (line for line in result.stdout.splitlines() if "no archive" in line)
    assert "not installed are pyspark" in said
    assert said.endswith("run `pip install 'penstock[spark]'`")


def test_the_demo_fails_if_its_books_do_not_balance() -> None:
    """One order is charged twice in the books: the demo must notice."""
    script = (
        "from penstock.cli import demo, main\n"
        "table = demo._table\n"
        "def forgetful(books):\n"
        "    books.charged[999] += 1\n"
        "    return table(books)\n"
        "demo._table = forgetful\n"
        "main.main(['demo', '--no-archive'])\n"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=50, check=False)
    assert result.returncode == 1
    assert "do not balance" in result.stderr
