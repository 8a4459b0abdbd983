"""The examples of the documentation run, and the README's print what it says they print."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet
import pytest

from penstock.message.message import Message
from penstock.sync import Penstock

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
REFERENCE = (ROOT / "docs" / "reference" / "metrics.md").read_text()
EXAMPLE = re.compile(r"```python\n(?P<code>.*?)```\n\n```\n(?P<output>.*?)```", re.DOTALL)
CODE = re.compile(r"```python\n(.*?)```", re.DOTALL)


def run(code: str, directory: Path, seconds: float = 50) -> str:
    """What it prints, where the embedded server keeps its data from one run to the next."""
    result = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PENSTOCK_URL": f"embedded://{directory}"},
        cwd=directory,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def examples(*, with_spark: bool) -> list[re.Match[str]]:
    found = list(EXAMPLE.finditer(README))
    assert len(found) == README.count("```python")
    return [example for example in found if ("penstock.spark" in example["code"]) is with_spark]


def test_every_example_prints_what_it_says_however_often_it_is_run(tmp_path: Path) -> None:
    assert examples(with_spark=False)
    for example in examples(with_spark=False):
        assert [run(example["code"], tmp_path) for _ in range(2)] == [example["output"]] * 2


@pytest.mark.xdist_group("spark")
@pytest.mark.timeout(180)
def test_the_archive_holds_what_was_published(tmp_path: Path) -> None:
    (example,) = examples(with_spark=True)
    bodies = [{"order": f"o-{n}", "total": total} for n, total in enumerate((1200, 300, -5))]
    with Penstock.connect(f"embedded://{tmp_path}") as app:
        sent = app.bus("orders").publish_many(Message(body) for body in bodies)
        assert run(example["code"], tmp_path, seconds=170) == example["output"]
    archive = pyarrow.parquet.read_table(tmp_path / "lake" / "orders").sort_by("id")
    assert archive["id"].to_pylist() == [receipt.id for receipt in sent]
    assert archive["payload"].to_pylist() == bodies


def test_the_examples_of_the_reference_run(tmp_path: Path) -> None:
    programs = CODE.findall(REFERENCE)
    assert len(programs) > 1
    for code in programs:
        run(code, tmp_path)
