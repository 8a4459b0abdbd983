"""`penstock run` as a service manager meets it: real processes, signals, exit codes and signs of life."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import JobDeadError
from penstock.sync import Penstock
from tests.support.forked import Forked
from tests.support.servers import Server, free_port, valkey_binary
from tests.support.states import state_home

COMMAND = [sys.executable, "-c", "from penstock.cli.main import main; main()", "run"]
DEADLINE = 30.0
READY = "Running shop:app"

SHOP = """
import asyncio, os, threading, time
from datetime import timedelta
from penstock.app import Penstock
from penstock.events import Started
from penstock.options import Subscription

def note(*words):
    with open("journal", "a") as journal:
        journal.write(" ".join([str(os.getpid()), *words]) + "\\n")

def seconds(name, default):
    return timedelta(seconds=float(os.environ.get(name, default)))

terms = Subscription(timeout=seconds("TIMEOUT", 60), drain=seconds("DRAIN", 20), scan=timedelta(milliseconds=200))
app = Penstock.connect()
lease = seconds("LEASE", 30)
bus = app.bus("orders", group="g", lease=lease, options=terms)
plain = app.bus("plain", group="g", lease=lease, options=terms)
empty = Penstock.connect()
note("loaded", str(time.monotonic()))

@bus.on(dict)
async def handle(delivery):
    do = delivery.body["do"]
    note("begin", do)
    if do == "nap":
        await asyncio.sleep(0.5)
    elif do == "sleep":
        await asyncio.sleep(1000)
    elif do == "block" or (do == "block-once" and not os.path.exists("blocked")):
        open("blocked", "w").close()
        time.sleep(1000)
    elif do == "stuck-in-pool":
        await asyncio.to_thread(threading.Event().wait)
    note("end", do)

@plain.on(dict)
def wait_for_ever(delivery):
    note("begin", "stuck-in-thread")
    threading.Event().wait()

if "CRASH" in os.environ:
    app.listen(lambda event: isinstance(event, Started) and threading.Timer(0.1, os._exit, (9,)).start())
"""


class Run:
    """A running `penstock run`, in a directory with `shop.py`; what it says goes to files there.

    `spawned`: by a new interpreter, which finds things as whoever starts it has left them.
    """

    def __init__(
        self, directory: Path, arguments: tuple[str, ...], environment: dict[str, str], *, spawned: bool
    ) -> None:
        self.directory = directory
        self.out, self.err = directory / "out", directory / "err"
        self.out.touch()
        self.err.touch()
        self.process = self._spawned(arguments, environment) if spawned else self._forked(arguments, environment)

    def _forked(self, arguments: tuple[str, ...], environment: dict[str, str]) -> Forked:
        command = json.dumps(["run", *arguments])
        place: dict[str, Any] = {"errors": self.err, "directory": self.directory}
        return Forked("tests.support.command_line", command, self.out, **place, **environment)

    def _spawned(self, arguments: tuple[str, ...], environment: dict[str, str]) -> "subprocess.Popen[bytes]":
        with self.out.open("w") as out, self.err.open("w") as err:
            return subprocess.Popen(
                [*COMMAND, *arguments],
                cwd=self.directory,
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
            )

    @property
    def journal(self) -> list[list[str]]:
        """(pid, what, …) of everything that `shop.py` has noted."""
        path = self.directory / "journal"
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []

    def notes(self, *words: str) -> list[int]:
        """The processes that have noted this, in order."""
        return [int(pid) for pid, *rest in self.journal if tuple(rest[: len(words)]) == words]

    def until(self, holds: Callable[[], Any]) -> Any:
        deadline = time.monotonic() + DEADLINE
        while not (found := holds()):
            assert time.monotonic() < deadline, f"not in time; it said: {self.out.read_text()}\n{self.err.read_text()}"
            time.sleep(0.02)
        return found

    def until_said(self, text: str) -> None:
        self.until(lambda: text in self.out.read_text() + self.err.read_text())

    def finish(self) -> int:
        self.until(lambda: self.process.poll() is not None)
        return self.process.wait()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    binary = valkey_binary()
    assert binary is not None
    directory = Path(tempfile.mkdtemp(prefix="ps-"))
    started = Server(binary, directory)
    yield started
    started.stop()
    shutil.rmtree(directory)


class Shop:
    def __init__(self, directory: Path, server: Server) -> None:
        self.directory = directory
        self.server = server
        (directory / "shop.py").write_text(SHOP)
        (directory / "broken.py").write_text("import nothing_like_this\n")

    def beside(self, name: str) -> "Shop":
        """Another one on the same server, with a journal of its own."""
        (self.directory / name).mkdir()
        return Shop(self.directory / name, self.server)

    @contextmanager
    def run(self, *arguments: str, spawned: bool = False, **environment: str) -> Iterator[Run]:
        """Run it on the server; whatever is left of it at the end is killed."""
        environment = {"PENSTOCK_URL": self.server.url, **environment}
        run = Run(self.directory, arguments or ("shop:app",), environment, spawned=spawned)
        try:
            yield run
        finally:
            for pid in {run.process.pid, *run.notes("loaded")}:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            run.process.wait()

    def refused(self, *arguments: str, **environment: str) -> tuple[int, str, str]:
        """How it ends that has nothing to run: its exit code, and what it said."""
        with self.run(*arguments, **environment) as run:
            return run.finish(), run.out.read_text(), run.err.read_text()

    def order(self, *what: str, topic: str = "orders") -> None:
        with Penstock.connect(self.server.url) as app:
            app.bus(topic).publish_many([{"do": do} for do in what])

    def pending(self) -> int:
        with self.server.client() as admin:
            return int(admin.xpending("orders", "g")["pending"])

    def readers(self) -> int:
        """How many consumers have asked for orders."""
        with self.server.client() as admin:
            groups = admin.xinfo_groups("orders") if admin.exists("orders") else []
            return sum(group["consumers"] for group in groups if group["name"] == b"g")


@pytest.fixture
def shop(tmp_path: Path, server: Server) -> Shop:
    with server.client() as admin:
        admin.flushall()
    return Shop(tmp_path, server)


def status(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=DEADLINE) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def is_gone(pid: int) -> bool:
    """Ended, even if nobody has asked for its exit code: its new parent may be in no hurry."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_what_cannot_be_run_is_one_line_that_says_what_to_do(shop: Shop) -> None:
    nowhere = f"redis://127.0.0.1:{free_port()}"
    unset = {"PENSTOCK_URL": ""}
    two = ("--workers", "2")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        taken = str(listening.getsockname()[1])
        cases: list[tuple[tuple[str, ...], dict[str, str], int, str]] = [
            (("shop.py:app",), {}, 2, r"there is no module 'shop\.py'"),
            (("nowhere:app",), {}, 2, "there is no module 'nowhere': run this in the directory that it is in"),
            (("shop:nothing",), {}, 2, "module 'shop' has no 'nothing': there is shop:app and shop:empty"),
            (("shop:bus",), {}, 2, "shop:bus is of type Bus, no Penstock: there is shop:app"),
            (("shop:empty",), {}, 2, "shop:empty has no handlers"),
            (("shop:app",), unset, 2, r"no server: give --url, or set \$PENSTOCK_URL, or give --embedded"),
            (("shop:app", *two), unset, 2, r"no server: give --url, or set \$PENSTOCK_URL, or give --embedded"),
            (("shop:app", *two, "--url", "embedded://?ephemeral=true"), {}, 2, r"embedded.* for one process: use --w"),
            (("shop:app", "--url", nowhere, "--embedded"), {}, 2, "--embedded .* cannot go with --url"),
            (("shop:app", "--liveness-port", "99999"), {}, 2, "--liveness-port is PORT or HOST:PORT"),
            (("shop:app", "--liveness-port", taken), {}, 1, f"--liveness-port 127.0.0.1:{taken} cannot be listened on"),
            (("shop:app", "--liveness-file", "no/where"), {}, 2, "--liveness-file no/where cannot be written"),
            (("shop:app", "--liveness-file", "shop.py"), {}, 2, "--liveness-file shop.py holds something"),
            (("shop:app", *two, "--url", nowhere), {}, 4, "cannot connect to redis://127.* is the server up"),
        ]
        for n, (arguments, environment, code, complaint) in enumerate(cases):
            ended, out, err = shop.beside(str(n)).refused(*arguments, **environment)
            assert (ended, out) == (code, ""), (arguments, out, err)
            assert re.fullmatch(rf"penstock: {complaint}[^\n]*\n", err), (arguments, err)


def test_a_module_that_fails_shows_where_and_ends_with_a_line(shop: Shop) -> None:
    with shop.run("broken:app") as run:
        assert run.finish() == 1
    *above, last = run.err.read_text().splitlines()
    assert last == "penstock: module 'broken' raised ModuleNotFoundError while it was imported: see above"
    assert any("broken.py" in line for line in above)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_asked_to_stop_it_drains_and_leaves_with_0(shop: Shop, number: signal.Signals) -> None:
    alive = shop.directory / "alive"
    alive.touch()
    os.utime(alive, (1, 1))  # left over from an earlier run
    with shop.run("shop:app", "--liveness-file", "alive", "--liveness-port", "0", spawned=True) as run:
        run.until_said(READY)
        url = re.search(r"Liveness on (\S+)", run.out.read_text())
        assert url is not None
        first = run.until(lambda: alive.exists() and alive.stat().st_mtime)
        run.until(lambda: status(url[1]) == 200)
        run.until(lambda: alive.stat().st_mtime > first)
        shop.order("nap")
        run.until(lambda: run.notes("begin", "nap"))
        run.process.send_signal(number)
        assert run.finish() == 0
    assert run.notes("end", "nap") == [run.process.pid]
    assert shop.pending() == 0
    assert not alive.exists()
    assert run.out.read_text().endswith("Draining. Ctrl-C again to end at once.\nStopped.\n")


def test_asked_twice_it_dies_at_once(shop: Shop) -> None:
    with shop.run(DRAIN="1000") as run:
        run.until_said(READY)
        shop.order("sleep")
        run.until(lambda: run.notes("begin", "sleep"))
        run.process.send_signal(signal.SIGTERM)
        run.until_said("Draining")
        run.process.send_signal(signal.SIGTERM)
        assert run.finish() == -signal.SIGTERM
    assert shop.pending() == 1


def test_a_hangup_that_nohup_has_it_ignore_does_not_end_its_drain(shop: Shop) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # inherited by what is started now
    with ExitStack() as running:
        try:
            run = running.enter_context(shop.run(DRAIN="1", spawned=True))
        finally:
            signal.signal(signal.SIGHUP, before)
        shop.order("sleep")
        run.until(lambda: run.notes("begin", "sleep"))
        run.process.send_signal(signal.SIGTERM)
        run.until_said("Draining")
        run.process.send_signal(signal.SIGHUP)
        assert run.finish() == 0


def test_asked_to_stop_while_it_connects_it_leaves_with_0_and_no_complaint(shop: Shop) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, ExitStack() as running:
        silent.settimeout(DEADLINE)
        url = f"redis://127.0.0.1:{silent.getsockname()[1]}"
        for workers, goodbye in (("1", "Stopped.\n"), ("2", "")):
            run = running.enter_context(
                shop.beside(workers).run("shop:app", "--url", url, "--workers", workers),
            )
            running.enter_context(silent.accept()[0])
            run.process.send_signal(signal.SIGTERM)
            assert run.finish() == 0
            assert (run.out.read_text(), run.err.read_text()) == (goodbye, "")


def test_threads_that_never_end_do_not_keep_it(shop: Shop) -> None:
    """One of ours, and one of the standard pool, which would be waited for at exit."""
    with shop.run(DRAIN="0.5") as run:
        shop.order("stuck-in-pool")
        shop.order("stuck", topic="plain")
        run.until(lambda: run.notes("begin", "stuck-in-pool") and run.notes("begin", "stuck-in-thread"))
        run.process.send_signal(signal.SIGTERM)
        assert run.finish() == 0


def test_a_loop_that_is_stuck_shows_and_cannot_keep_the_process(shop: Shop) -> None:
    alive = shop.directory / "alive"
    arguments = ("shop:app", "--liveness-file", str(alive), "--liveness-port", "0")
    with shop.run(*arguments, TIMEOUT="0.3", DRAIN="0.1") as run:
        run.until_said(READY)
        url = re.search(r"Liveness on (\S+)", run.out.read_text())
        assert url is not None
        run.until(lambda: status(url[1]) == 200)
        shop.order("block")
        run.until(lambda: status(url[1]) == 503)
        run.process.send_signal(signal.SIGTERM)
        assert run.finish() == 1
    assert "penstock: it did not end within 5.1 s after it was asked to" in run.err.read_text()
    assert not alive.exists()


def test_several_workers_share_the_work_and_a_terminals_ctrl_c_drains_them(shop: Shop) -> None:
    alive = shop.directory / "alive"
    arguments = ("shop:app", "--workers", "2", "--concurrency", "1", "--liveness-file", "alive", "--liveness-port", "0")
    with shop.run(*arguments) as run:
        run.until_said("Running shop:app in 2 processes")
        run.until(lambda: shop.readers() == 2)  # else one could take them all before the other comes
        shop.order(*["nap"] * 6)
        run.until(lambda: len(set(run.notes("begin", "nap"))) == 2)
        url = re.search(r"Liveness on (\S+)", run.out.read_text())
        assert url is not None
        run.until(lambda: status(url[1]) == 200 and alive.exists())
        workers = set(run.notes("loaded"))
        assert run.process.pid not in workers
        os.killpg(run.process.pid, signal.SIGINT)
        assert run.finish() == 0
    assert len(run.notes("begin", "nap")) == len(run.notes("end", "nap"))
    assert all(is_gone(pid) for pid in workers)
    assert shop.pending() == 0
    assert not alive.exists()
    assert run.out.read_text().endswith("Stopped.\n")


def test_asked_twice_the_workers_die_with_their_supervisor(shop: Shop) -> None:
    with shop.run("shop:app", "--workers", "2", DRAIN="1000") as run:
        run.until_said(READY)
        run.until(lambda: len(run.notes("loaded")) == 2)
        shop.order("sleep")
        run.until(lambda: run.notes("begin", "sleep"))
        run.process.send_signal(signal.SIGTERM)
        run.until_said("Draining")
        run.process.send_signal(signal.SIGTERM)
        assert run.finish() == -signal.SIGTERM
        assert all(is_gone(pid) for pid in run.notes("loaded"))


def test_a_worker_that_is_killed_is_replaced(shop: Shop) -> None:
    with shop.run("shop:app", "--workers", "2") as run:
        run.until_said("Running shop:app in 2")
        victim, other = run.until(lambda: len(run.notes("loaded")) == 2 and run.notes("loaded"))
        os.kill(victim, signal.SIGKILL)
        run.until_said(f"worker {victim} was killed by SIGKILL; another one starts in 1 s")
        run.until(lambda: len(run.notes("loaded")) == 3)
        assert not is_gone(other)
        run.process.send_signal(signal.SIGTERM)
        assert run.finish() == 0


def test_workers_that_die_at_once_come_back_more_and_more_slowly(shop: Shop) -> None:
    with shop.run("shop:app", "--workers", "2", CRASH="1") as run:
        run.until(lambda: run.err.read_text().count("ended with exit code 9; another one starts in 2 s") == 2)
        run.until(lambda: len(run.notes("loaded")) >= 5)
        started = [float(words[2]) for words in run.journal if words[1] == "loaded"]
        assert run.err.read_text().count("another one starts in 1 s") == 2
    # Two workers, after a second and after two more: never five starts in less than three seconds.
    assert started[4] - started[0] >= 3


def test_a_worker_whose_loop_is_stuck_is_killed_and_its_message_handled_by_another(shop: Shop) -> None:
    with shop.run("shop:app", "--workers", "2", TIMEOUT="0.5", LEASE="1") as run:
        run.until_said("Running shop:app in 2")
        shop.order("block-once")
        (stuck,) = run.until(lambda: run.notes("begin", "block-once"))
        run.until_said(f"killing worker {stuck}: its event loop has been stuck for")
        run.until(lambda: run.notes("end", "block-once"))
        run.process.send_signal(signal.SIGTERM)
        assert run.finish() == 0
    assert stuck not in run.notes("end", "block-once")


def test_workers_without_their_supervisor_drain_and_go(shop: Shop) -> None:
    with shop.run("shop:app", "--workers", "2") as run:
        run.until(lambda: len(run.notes("loaded")) == 2)
        shop.order("nap")
        run.until(lambda: run.notes("begin", "nap"))
        run.process.kill()
        run.until(lambda: all(is_gone(pid) for pid in run.notes("loaded")))
    assert len(run.notes("end", "nap")) == 1
    assert shop.pending() == 0


def test_embedded_is_one_server_for_all_workers(shop: Shop) -> None:
    with (
        state_home() as state,
        shop.run("shop:app", "--workers", "2", "--embedded", PENSTOCK_URL="", XDG_STATE_HOME=state) as run,
    ):
        run.until(lambda: len(run.notes("loaded")) == 2)
        with Penstock.connect(f"embedded://{state}/penstock/default") as app:
            app.bus("orders").publish({"do": "nothing"})
        run.until(lambda: run.notes("end", "nothing"))
        run.process.send_signal(signal.SIGTERM)
        assert run.finish() == 0


CRUNCH = """
import os
from datetime import timedelta
from penstock import JobOptions, Penstock, Retry

app = Penstock.connect()
jobs = app.jobs("crunch", retry=Retry(attempts=2, initial=timedelta(milliseconds=10)))

@jobs.on(dict, process=True)
def crunch(job):
    if job.body["do"] == "die":
        os._exit(7)
    return os.getpid()
"""


def test_jobs_run_in_processes_of_their_own_and_one_that_dies_costs_nobody_else_anything(shop: Shop) -> None:
    (shop.directory / "crunch.py").write_text(CRUNCH)
    with shop.run("crunch:app") as run:
        assert run.finish() == 2
        assert "penstock run --processes N" in run.err.read_text()
    with shop.run("crunch:app", "--processes", "2") as run, Penstock.connect(shop.server.url) as app:
        run.until_said("Running crunch:app")
        queue = app.jobs("crunch")
        dying, living = queue.enqueue({"do": "die"}), [queue.enqueue({"do": "live"}) for _ in range(5)]
        pids = {job.result(timedelta(seconds=DEADLINE)) for job in living}
        assert run.process.pid not in pids
        with pytest.raises(JobDeadError, match="left with exit code 7"):
            dying.result(timedelta(seconds=DEADLINE))
        run.process.terminate()
        assert run.finish() == 0
        run.until(lambda: all(map(is_gone, pids)))
