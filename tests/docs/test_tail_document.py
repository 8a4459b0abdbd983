"""The example of the page on following runs, and prints what it must."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from penstock import Cursor, Message, Penstock

PAGE = (Path(__file__).parents[2] / "docs" / "tail.md").read_text()


def test_the_example_follows_a_message(tmp_path: Path) -> None:
    (code, _) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PENSTOCK_URL": f"embedded://{tmp_path}"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"\{'order': 1\} at [0-9a-f]{16}\.[0-9]+-0\n", done.stdout)


async def test_a_durable_cursor_goes_on_where_it_was(penstock_app: Penstock) -> None:
    (_, code) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert code.count("...") == 1
    body = code.replace("...", "seen.append(item.message.body['n']); break").replace("\n", "\n    ")
    names: dict[str, Any] = {"app": penstock_app, "Cursor": Cursor, "seen": []}
    exec(f"async def follow():\n    {body}", names)
    await penstock_app.bus("orders").publish_many(Message({"n": n}) for n in range(3))
    for _ in range(3):
        await names["follow"]()
    # Left within the first item, it is not done: it comes again, as after a crash.
    assert names["seen"] == [0, 0, 0]
