"""The example of the page on following runs, and prints what it must."""

import os
import re
import subprocess
import sys
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "tail.md").read_text()


def test_the_example_follows_a_message(tmp_path: Path) -> None:
    (code, *_) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
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
