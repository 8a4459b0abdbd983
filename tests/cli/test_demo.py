"""The demo as a newcomer meets it: no terminal, no input, one command."""

import os
import subprocess
import sys

COMMAND = [sys.executable, "-c", "from penstock.cli.main import main; main()", "demo"]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": "120"}
    return subprocess.run(
        [*COMMAND, *arguments],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )


def test_the_demo_reconciles_and_says_what_became_of_every_message() -> None:
    result = run()
    assert result.returncode == 0, result.stderr
    assert "Published 1,000 orders" in result.stdout
    rows = {
        cells[0].strip(): cells[1].strip()
        for line in result.stdout.splitlines()
        if len(cells := line.strip("│ ").split("│")) == 3
    }
    assert rows == {"published": "1,001", "handled": "1,000", "retries": "3", "dead letters": "1"}
    assert "after 3 attempts: ConnectionError: the bank refused order 13" in result.stdout
    assert "replayed 1 dead letter to group billing" in result.stdout
    assert "Nothing was lost" in result.stdout


def test_the_demo_fails_if_its_books_do_not_balance() -> None:
    """One order is charged twice in the books: the demo must notice."""
    script = (
        "from penstock.cli import demo, main\n"
        "table = demo._table\n"
        "def forgetful(books):\n"
        "    books.charged[999] += 1\n"
        "    return table(books)\n"
        "demo._table = forgetful\n"
        "main.main(['demo'])\n"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=50, check=False)
    assert result.returncode == 1
    assert "do not balance" in result.stderr
