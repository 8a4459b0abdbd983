"""The rows see what they are there to see: each mutant is a way to build Penstock wrong, and turns its row red.

A mutant is a patch, applied to a copy of the package that the row and all its processes then import.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fault.size import TIMEOUT

ROOT = Path(__file__).resolve().parent.parent.parent
PATCHES = Path(__file__).resolve().parent / "mutants"

BEGUN_BY_A_KILLED_WORKER = "test_at_least_once.py::test_what_a_killed_worker_had_begun_is_handled_by_another[valkey]"
FAILED_IN_ONE_GROUP = "test_retries.py::test_what_one_group_retries_the_other_never_sees_again[valkey]"
FOLLOWERS = "test_followers.py::test_a_thousand_followers_share_one_connection_and_miss_nothing_unannounced[valkey]"
FLOOD = "test_jobs.py::test_a_flood_of_urgent_jobs_leaves_the_others_their_share_also_when_workers_die[valkey]"

NOT_FENCED = "I4|AssertionError: [^\\n]* proves nothing: settles that were fenced is 0"
"""The second, where the machine stood still at the wrong time, so that the checker must not say the first."""

PLUGINS = ("-p", "no:cacheprovider", "-p", "pytest_asyncio.plugin", "-p", "pytest_timeout")
"""Those that a row needs: to load all that are installed takes longer than some rows."""

MUTANTS = [
    ("ack-before-handle", BEGUN_BY_A_KILLED_WORKER, "I1"),
    ("blame-by-times-delivered", BEGUN_BY_A_KILLED_WORKER, "I5"),
    ("blame-by-times-delivered", "test_jobs.py::test_poison_among_jobs_ends_in_the_dead_letters[valkey]", "I5"),
    ("bury-again", "test_copy_first.py::test_the_reply_to_a_dead_lettering_is_lost[valkey]", "I5"),
    ("dead-letter-without-copy", FAILED_IN_ONE_GROUP, "I1"),
    ("retry-on-the-topic", FAILED_IN_ONE_GROUP, "I3"),
    ("length-trim", "test_trimming.py::test_retention_takes_nothing_that_a_slow_group_still_needs[valkey]", "I1"),
    ("no-fence", "test_fencing.py::test_a_worker_that_was_frozen_past_its_lease_settles_nothing[valkey]", NOT_FENCED),
    ("unfenced-sequence", "test_sequence.py::test_one_reads_at_a_time_in_order_whatever_happens[valkey]", "I7"),
    ("key-ignored", "test_keyed_order.py::test_each_key_stays_in_order_while_processes_come_and_die[valkey]", "I8"),
    ("silent-gap", FOLLOWERS, "AssertionError"),
    ("no-fence", "test_jobs.py::test_jobs_of_workers_that_are_killed_frozen_or_blocked_are_done[valkey]", NOT_FENCED),
    ("no-drain", "test_jobs.py::test_a_worker_of_jobs_that_is_asked_to_leave_drains[valkey]", "AssertionError"),
    (
        "scheduled-in-memory",
        "test_jobs.py::test_jobs_queued_and_scheduled_survive_a_server_that_is_killed[valkey]",
        "I1",
    ),
    ("unique-unchecked", "test_jobs.py::test_the_reply_to_what_was_asked_of_a_queue_is_lost[valkey-unique]", "I3"),
    ("strict-priority", FLOOD, "AssertionError"),
    ("cron-by-every-worker", "test_cron.py::test_eight_processes_enqueue_each_tick_once[valkey]", "AssertionError"),
    (
        "cron-begins-anew",
        "test_cron.py::test_ticks_survive_a_server_that_is_killed_and_workers_that_start_anew[valkey]",
        "AssertionError",
    ),
    (
        "migrate-in-two-steps",
        "test_migration.py::test_a_migration_killed_at_any_step_moves_each_job_once[valkey]",
        "AssertionError",
    ),
]


def test_every_patch_is_a_mutant_that_is_run() -> None:
    assert {patch.stem for patch in PATCHES.glob("*.patch")} == {name for name, *_ in MUTANTS}


@pytest.mark.timeout(2 * TIMEOUT)
@pytest.mark.parametrize(("name", "row", "invariant"), MUTANTS, ids=[f"{name}-{row}" for name, row, _ in MUTANTS])
def test_a_mutant_turns_its_row_red(name: str, row: str, invariant: str, tmp_path: Path) -> None:
    copy = mutated(name, tmp_path)
    done = run([sys.executable, "-c", "import penstock; print(penstock.__file__)"], copy)
    assert str(copy) in done.stdout, "the row would not import the mutant"
    done = run([sys.executable, "-m", "pytest", "-q", *PLUGINS, f"tests/fault/{row}"], copy)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout + done.stderr
    found = re.search(rf"^E {{7}}(?:{invariant})\b", done.stdout, re.MULTILINE)
    assert found, f"red, but not by {invariant}:\n{done.stdout}"


def mutated(name: str, directory: Path) -> Path:
    """Where the mutant's package is; a patch that does not apply any more fails the test."""
    # With what is compiled of it, where that is finished: a file keeps its time, unless the patch writes it anew.
    unfinished = shutil.ignore_patterns("*.pyc.*")
    shutil.copytree(ROOT / "src" / "penstock", directory / "src" / "penstock", ignore=unfinished)
    patch = PATCHES / f"{name}.patch"
    done = subprocess.run(["git", "apply", str(patch)], cwd=directory, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{patch.name} does not apply any more, make it anew: {done.stderr}"
    return directory / "src"


def run(command: list[str], source: Path) -> "subprocess.CompletedProcess[str]":
    # The small size will do, and a mutant has no place in the table.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("FAULT_", "PYTEST_"))}
    environment |= {"PYTHONPATH": str(source), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(
        command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
