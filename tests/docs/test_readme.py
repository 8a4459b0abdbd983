"""The examples of the documentation run, and the README's print what it says they print."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
REFERENCE = (ROOT / "docs" / "reference" / "metrics.md").read_text()
EXAMPLE = re.compile(r"```python\n(?P<code>.*?)```\n\n```\n(?P<output>.*?)```", re.DOTALL)
CODE = re.compile(r"```python\n(.*?)```", re.DOTALL)


def run(code: str, directory: Path) -> str:
    """What it prints, where the embedded server keeps its data from one run to the next."""
    result = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PENSTOCK_URL": f"embedded://{directory}"},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_every_example_prints_what_it_says_however_often_it_is_run(tmp_path: Path) -> None:
    examples = list(EXAMPLE.finditer(README))
    assert len(examples) == README.count("```python") > 0
    for example in examples:
        assert [run(example["code"], tmp_path) for _ in range(2)] == [example["output"]] * 2


def test_the_examples_of_the_reference_run(tmp_path: Path) -> None:
    examples = CODE.findall(REFERENCE)
    assert len(examples) > 1
    for code in examples:
        run(code, tmp_path)
