"""The demo: it ends with books that balance, and does not get away with it if they do not."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.cli.demo.archiving import ArchiveFailedError, Archiving
from penstock.cli.demo.sabotage import Sabotage
from penstock.cli.demo.script import Script
from penstock.cli.main import main
from tests.support.demo import play, table
from tests.support.started import Started

COMMAND = [sys.executable, "-c", "from penstock.cli.main import main; main()", "demo"]
FEW = Script(orders=200, archive=False, patience=2)


async def test_everything_is_accounted_for() -> None:
    shown, failure = await play(FEW)
    assert failure is None
    assert table(shown) == {
        "billing: published = handled + dead": ("201", "199 + 2", "✓"),
        "shipping: published = handled + dead": ("201", "200 + 1", "✓"),
        "billing: handled = charged, each once": ("199", "199", "✓"),
        "stock: each change once, in order": ("199", "199", "✓"),
        "follower: each order once, in order": ("201", "201", "✓"),
        "parcels high: enqueued = done": ("20", "20", "✓"),
        "parcels normal: enqueued = done": ("120", "120", "✓"),
        "parcels low: enqueued = done": ("60", "60", "✓"),
    }
    assert "The follower's connection broke after 66 events" in shown
    assert "The bank is mended: 1 dead letter replayed" in shown
    assert shown.endswith("It does: nothing was lost, and in this run nothing was done twice.\n")


@pytest.mark.parametrize(
    ("sabotage", "noticed"),
    [
        (Sabotage.DROP, ["billing: published", "shipping: published", "follower: each order"]),
        (Sabotage.SWALLOW, ["billing: handled = charged"]),
        (Sabotage.KILL, ["billing: published"]),
    ],
)
async def test_what_is_broken_on_purpose_is_noticed_where_it_happened(sabotage: Sabotage, noticed: list[str]) -> None:
    shown, failure = await play(Script(orders=200, archive=False, sabotage=sabotage, patience=2))
    wrong = [what for what, (_, _, verdict) in table(shown).items() if verdict == "✗"]
    assert [what[: len(start)] for what, start in zip(wrong, noticed, strict=True)] == noticed
    assert all(what in str(failure) for what in wrong)
    assert "It does" not in shown


async def test_without_spark_and_web_it_says_what_to_install_and_checks_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delitem(sys.modules, "penstock.web.server", raising=False)
    shown, failure = await play(Script(orders=200, patience=2))
    assert failure is None
    assert (
        "There will be no lake: not installed are pyspark; for a lake, run `pip install 'penstock[spark,lake]'`"
        in shown
    )
    assert "Nobody follows over HTTP: for that, run `pip install 'penstock[web]'`" in shown
    assert {what.partition(":")[0] for what in table(shown)}.isdisjoint({"lake", "follower"})


async def test_spark_that_cannot_be_installed_is_told_in_the_words_of_the_installer() -> None:
    installer = (sys.executable, "-c", "import sys; sys.exit('set-up: the index does not answer')")
    shown, failure = await play(Script(orders=200, prepare=installer, patience=2))
    assert str(failure) == "Spark could not be installed: set-up: the index does not answer"
    assert all(verdict == "✓" for _, _, verdict in table(shown).values())


async def test_an_archive_that_fails_is_told_in_its_own_words(tmp_path: Path) -> None:
    archiving = Archiving("redis://127.0.0.1:1", tmp_path, (), lambda _: None)
    with pytest.raises(ArchiveFailedError, match=r"exit code 4: .*cannot connect to redis://127"):
        await archiving.run()


def test_a_lake_that_is_not_there_cannot_be_counted(tmp_path: Path) -> None:
    with pytest.raises(ArchiveFailedError, match=r"the lake cannot be counted: .* is no lake"):
        Archiving("redis://127.0.0.1:1", tmp_path, (), lambda _: None).counts()


@pytest.mark.parametrize("arguments", [["--orders", "5"], ["--orders", "many"], ["--sabotage", "burn"], ["more"]])
def test_a_command_line_that_makes_no_sense_is_refused(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main(["demo", *arguments])
    assert left.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.timeout(180)  # a new interpreter, and a whole demo
def test_without_a_terminal_and_without_input_it_speaks_at_once_and_ends_well() -> None:
    with subprocess.Popen(
        [*COMMAND, "--no-archive", "--orders", "100"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        first = os.read(process.stdout.fileno(), 65536)  # whatever is there as soon as there is something
        rest, complaints = process.communicate(timeout=150)
    # However slow the machine is: the first word does not come with the last.
    assert first
    assert b"It does" not in first
    assert (process.returncode, complaints) == (0, b"")
    assert b"\x1b" not in first + rest
    assert b"It does" in rest


def test_it_ends_without_a_word_when_nobody_reads_it_any_more() -> None:
    with Started("demo", "--no-archive") as demo:
        demo.lines(1)
        demo.leave()
        done = demo.finish()
    assert (done.code, done.err) == (128 + signal.SIGPIPE, "")


def test_books_that_do_not_balance_are_exit_code_1() -> None:
    with Started("demo", "--no-archive", "--orders", "100", "--sabotage", "swallow") as demo:
        done = demo.finish()
    assert (done.code, done.err) == (1, "penstock: the books do not balance: billing: handled = charged, each once\n")


def family(pid: int) -> Iterator[int]:
    """All processes that descend from it."""
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        yield int(child)
        yield from family(int(child))


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.xdist_group("spark")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_leaves_nothing_behind(number: signal.Signals, tmp_path: Path) -> None:
    with Started("demo", TMPDIR=str(tmp_path)) as demo:
        demo.until("connection broke")
        helpers = list(family(demo.process.pid))
        demo.process.send_signal(number)
        done = demo.finish()
    assert helpers
    assert (done.code, done.err) == (128 + number, "")
    assert done.out.endswith(f"Interrupted by {number.name}. Nothing is left running.\n")
    deadline = time.monotonic() + 30
    while left := [pid for pid in helpers if is_alive(pid)] + list(tmp_path.iterdir()):
        assert time.monotonic() < deadline, left
