"""The pages on jobs by the clock, and on moving an older queue: their code runs, and says what is true."""

import inspect
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import JobQueue, Missed
from penstock.backend.old_queue import OldQueue
from penstock.jobs.old_jobs import Bands
from tests.support.old_queue import OldPrograms
from tests.support.servers import Server, valkey_binary

DOCS = Path(__file__).parents[2] / "docs"
CRON, MIGRATION = (DOCS / "jobs-cron.md").read_text(), (DOCS / "jobs-migration.md").read_text()
MAIN = [sys.executable, "-c", "from penstock.cli.main import main; main()"]


@pytest.fixture
def server() -> Iterator[Server]:
    binary = valkey_binary()
    assert binary is not None
    started = Server(binary, Path(tempfile.mkdtemp(prefix="ps-")))
    try:
        yield started
    finally:
        started.stop()
        shutil.rmtree(started.directory)


def run(command: list[str], url: str) -> str:
    done = subprocess.run(
        command,
        env={**os.environ, "PENSTOCK_URL": url},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_example_of_jobs_by_the_clock_ticks_and_lists_its_schedules(server: Server) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", CRON, re.DOTALL)
    said = run([sys.executable, "-c", code], server.url).splitlines()
    assert said[0] == "sessions: sessions"
    assert said[-2:] == ["Clean 0 3 * * * Europe/Berlin", "sessions * * * * * * UTC"]


def test_the_page_on_jobs_by_the_clock_names_every_option() -> None:
    for name in inspect.signature(JobQueue.cron).parameters.keys() - {"self"}:
        assert re.search(rf"\bcron\([^)]*\b{name}", CRON), name
    for name in ("latest", "skip", "all"):
        assert f"`Missed.{name}(" in CRON
    assert Missed.all().most == 100
    assert "most=100" in CRON


@pytest.mark.parametrize("line", re.findall(r"^(penstock job .*?)(?: +#|$)", MIGRATION, re.MULTILINE))
def test_the_commands_of_the_page_on_migration_do_what_it_says(server: Server, line: str) -> None:
    with server.client() as client:
        old = OldPrograms(client)
        old.enqueue()
        command = [*MAIN, *shlex.split(line)[1:]]
        if "--follow" not in line:
            said = run(command, server.url)
            assert re.search(r"^ +1  to {mail}:normal$", said, re.MULTILINE)
            assert len(old.waiting()) == ("--dry-run" in line)
            return
        environment = {**os.environ, "PENSTOCK_URL": server.url}
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as following:
            try:
                _until_moved(old)
                old.enqueue()
                _until_moved(old)
                following.terminate()
                said, _ = following.communicate(timeout=30)
            finally:
                following.kill()
        assert following.returncode == 0
        assert re.search(r"^ +2  to {mail}:normal$", said, re.MULTILINE)
        assert re.search(r"^ +\+1  added to queue:main by others", said, re.MULTILINE)


def _until_moved(old: OldPrograms) -> None:
    deadline = time.monotonic() + 40
    while old.waiting():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_the_page_on_migration_has_the_keys_and_bands_that_are_used() -> None:
    for key in (OldQueue().waiting, OldQueue().records, OldQueue().dead, OldQueue().active):
        assert f"`{key}`" in MIGRATION
    assert f"below {Bands().normal}, from {Bands().normal}, from {Bands().low}" in MIGRATION
