"""The examples of the page on change streams run, and do what it says."""

import os
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "changes.md").read_text()
LEDGER, SNAPSHOT, BY_KEY = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)

AROUND_SNAPSHOT = """
import asyncio
from types import SimpleNamespace

from penstock import Penstock


async def main():
    async with Penstock.connect() as app:
        orders = app.bus("orders")
        receipts = [await orders.publish({{"n": number}}) for number in range(5)]

        async def read():
            return [0, 1, 2], receipts[2].entry_id

        async def replace(rows):
            print("copied", rows)

        database = SimpleNamespace(read_all_with_the_id_of_the_last_change=read)
        replica = SimpleNamespace(replace=replace)
{example}

asyncio.run(main())
"""


def printed(code: str, directory: Path) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PENSTOCK_URL": f"embedded://{directory}"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_ledger_adds_up(tmp_path: Path) -> None:
    assert printed(LEDGER, tmp_path) == [
        "Deposited(account='a', amount=100) -> 100",
        "Deposited(account='a', amount=20) -> 120",
    ]


def test_the_snapshot_is_followed_by_what_is_not_in_it(tmp_path: Path) -> None:
    reading = """print(change.body)
        await change.ack()
        if change.body["n"] == 4:
            break"""
    assert SNAPSHOT.count("...") == 1
    example = SNAPSHOT.replace("...", reading).replace("\n", "\n        ")
    found = printed(AROUND_SNAPSHOT.format(example=f"        {example}"), tmp_path)
    assert found == ["copied [0, 1, 2]", "{'n': 3}", "{'n': 4}"]


def test_the_moves_of_each_account_are_booked_in_order(tmp_path: Path) -> None:
    assert printed(BY_KEY, tmp_path) == ["[0, 100, 30, 50] [0, 100, 30, 50]"]


def test_a_smaller_token_changes_nothing() -> None:
    (statement,) = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE balances (account TEXT, amount INT, token INT)")
    database.execute("INSERT INTO balances VALUES ('a', 0, 7)")
    changed = [database.execute(statement, {"token": token}).rowcount for token in (7, 6, 8, 7)]
    assert changed == [1, 0, 1, 0]
    assert database.execute("SELECT amount, token FROM balances").fetchall() == [(200, 8)]
    database.close()
