"""The example of the page on jobs runs, and prints what it must."""

import os
import re
import subprocess
import sys
from pathlib import Path

import penstock
from penstock.jobs.job import JobStatus

PAGE = (Path(__file__).parents[2] / "docs" / "jobs.md").read_text()


def test_the_example_has_a_job_done_and_cancels_another(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
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
    assert done.stdout == "a.png, 100 wide\nscheduled -> cancelled\n"


def test_every_status_and_every_call_of_a_handle_is_explained() -> None:
    named = set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE))
    assert named == {status.value for status in JobStatus}
    calls = {name for name in vars(penstock.JobHandle) if not name.startswith("_")}
    for name in calls & {"cancel", "run_now", "retry", "set_priority", "result", "info"}:
        assert f"handle.{name}(" in PAGE
