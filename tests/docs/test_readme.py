"""The examples of the documentation run, and the README's print what it says they print."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet
import pytest

from tests.support.pages import ROOT, blocks_of

README = (ROOT / "README.md").read_text()
REFERENCE = (ROOT / "docs" / "reference" / "metrics.md").read_text()
EXAMPLE = re.compile(r"```python\n(?P<code>.*?)```\n\n```\n(?P<output>.*?)```", re.DOTALL)
CODE = re.compile(r"```python\n(.*?)```", re.DOTALL)


def run(code: str, directory: Path, seconds: float = 50) -> tuple[str, str]:
    """What it prints, and says on stderr, where the embedded server keeps its data from one run to the next."""
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
    return result.stdout, result.stderr


def in_a_shell(script: str, directory: Path) -> str:
    """What it prints where `penstock` and `python` are those of this environment, and no server is known."""
    known = {name: value for name, value in os.environ.items() if name != "PENSTOCK_URL"}
    result = subprocess.run(
        ["sh", "-e", "-c", script],
        env={**known, "PATH": os.pathsep.join([str(Path(sys.executable).parent), known["PATH"]])},
        cwd=directory,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=290,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def examples(*, with_spark: bool) -> list[re.Match[str]]:
    found = list(EXAMPLE.finditer(README))
    assert len(found) == README.count("```python")
    return [example for example in found if ("penstock.spark" in example["code"]) is with_spark]


def test_the_example_prints_what_it_says_however_often_it_is_run(tmp_path: Path) -> None:
    (example,) = examples(with_spark=False)
    shown = example["output"].splitlines()
    (logged,) = [line for line in shown if "…" in line]
    for _ in range(2):
        out, err = run(example["code"], tmp_path)
        assert out.splitlines() == [line for line in shown if line != logged]
        assert re.fullmatch(re.escape(logged).replace("…", r"[0-9a-f-]+"), err.removesuffix("\n"))


def test_the_example_is_short() -> None:
    (example,) = examples(with_spark=False)
    assert len([line for line in example["code"].splitlines() if line]) <= 20


@pytest.mark.xdist_group("spark")
@pytest.mark.timeout(300)
def test_the_archive_holds_what_was_published(tmp_path: Path) -> None:
    """Its commands, and then the program, in a shell: as whoever reads it would."""
    (example,) = examples(with_spark=True)
    (block,) = [block for block in blocks_of(ROOT / "README.md") if "$ penstock publish" in block.text]
    commands = re.findall(r"^\$ (.+)$", block.text, re.MULTILINE)
    (tmp_path / "archive.py").write_text(example["code"])
    printed = in_a_shell("\n".join([*commands, "python archive.py"]), tmp_path)
    *sent, last = printed.splitlines(keepends=True)
    assert last == example["output"]
    archive = pyarrow.parquet.read_table(tmp_path / "lake" / "orders").sort_by("id")
    assert archive["id"].to_pylist() == [json.loads(receipt)["id"] for receipt in sent]
    assert [row["total"] for row in archive["payload"].to_pylist()] == [1200, 300, -5]


def test_the_examples_of_the_reference_run(tmp_path: Path) -> None:
    programs = CODE.findall(REFERENCE)
    assert len(programs) > 1
    for code in programs:
        run(code, tmp_path)
