"""The README's example runs, and prints what the README says it prints."""

import os
import re
import subprocess
import sys
from pathlib import Path

README = (Path(__file__).parents[2] / "README.md").read_text()
EXAMPLE = re.compile(r"```python\n(?P<code>.*?)```\n\n```\n(?P<output>.*?)```", re.DOTALL)


def test_every_example_prints_what_it_says() -> None:
    examples = list(EXAMPLE.finditer(README))
    assert len(examples) == README.count("```python") > 0
    for example in examples:
        result = subprocess.run(
            [sys.executable, "-c", example["code"]],
            env={**os.environ, "PENSTOCK_URL": "embedded://?ephemeral=true"},
            capture_output=True,
            text=True,
            timeout=50,
            check=False,
        )
        assert result.returncode == 0, result.stderr
        assert result.stdout == example["output"]
