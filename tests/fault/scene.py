"""A stage for one fault test: a server, perhaps a network, producers, workers, and somebody who watches them all."""

import asyncio
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from penstock.message.ids import new_id
from tests.fault.behaviour import AGAIN
from tests.fault.checker import Verdict
from tests.fault.history import History
from tests.fault.journal import Journal, Journals, Line
from tests.fault.network import Network
from tests.fault.programs import Program
from tests.fault.servers import FaultServer, with_password
from tests.fault.setup import ProducerSetup, WorkerSetup
from tests.fault.size import MESSAGES, PATIENCE, PRODUCERS, SEED, WORKERS
from tests.fault.state import Inspector
from tests.fault.witness import Witness

_LOOK_EVERY = 0.02


class Scene:
    """What a row uses to make things happen and to wait for what happens. Leaving it ends every process."""

    program = Program

    def __init__(self, row: str, binary: str) -> None:
        self.row = row
        self.binary = binary
        # Not pytest's tmp_path: its names are too long for a unix socket.
        self.directory = Path(tempfile.mkdtemp(prefix="ps-fault-"))
        self._gate = self.directory / "gate-of-messages"
        self.journal = Journal(self.directory, "scene")
        self.journals = Journals(self.directory)
        self.topic = f"fault:{new_id()}"
        self.programs: list[Program] = []
        self.lanes = False
        """The topic is a queue of jobs."""
        self.supervised = True
        """Workers that die are started again."""
        self.restarts = 0
        self.network: Network | None = None
        self.version = ""
        self.proofs: dict[str, Any] = {}
        self.verdict: Verdict | None = None
        self._server: FaultServer | None = None
        self._witness: Witness | None = None
        self._setups: dict[str, WorkerSetup] = {}
        self._stuck_seen = 0
        self._stuck: set[int] = set()
        self._mourned: set[int] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for program in self.programs:
            program.end()
        if self.network is not None:
            await self.network.__aexit__(None, None, None)
        if self._server is not None and self._server.process is not None and self._server.process.poll() is None:
            self._server.kill()
        if self._witness is not None:
            self._witness.close()
        self.journal.close()
        shutil.rmtree(self.directory)

    # Putting it together.

    def serve(self, *arguments: str) -> FaultServer:
        self._server = FaultServer(self.binary, self.directory, *arguments)
        self.version = self._server.version()
        self.admin = self._server.client()
        asking = self._server.client(socket_timeout=10)
        asking.ping()  # whoever counts connections from now on counts this one
        self._witness = Witness(lambda since: self.journal.write("stalled", facts={"since": since}), asking.ping)
        return self._server

    @property
    def server(self) -> FaultServer:
        return self._server if self._server is not None else self.serve()

    async def connect_through_network(self) -> Network:
        """From now on, what is started talks to the server through a network that can be broken.

        It notes itself whom it harmed: a row that breaks it tells the checker nothing more.
        """
        self.network = Network(self.server.socket, SEED, self.journal)
        await self.network.__aenter__()
        return self.network

    @property
    def url(self) -> str:
        return with_password(self.server.socket if self.network is None else self.network.path)

    def work(self, count: int = WORKERS, *, group: str = "g", **options: Any) -> list[Program]:
        setup = WorkerSetup(str(self.directory), self.topic, group, lanes=self.lanes, **options)
        self._setups[group] = setup
        return [self._start(setup) for _ in range(count)]

    def produce(self, messages: int = MESSAGES, *, producers: int = PRODUCERS, **options: Any) -> list[Program]:
        """Share the messages among the producers."""
        share = max(1, messages // producers)
        return [
            self._start(
                ProducerSetup(
                    str(self.directory),
                    self.topic,
                    SEED * 1000 + len(self.programs),
                    share,
                    lanes=self.lanes,
                    gate=str(self._gate),
                    **options,
                )
            )
            for _ in range(producers)
        ]

    def _start(self, setup: ProducerSetup | WorkerSetup) -> Program:
        program = self.program(setup, self.url, self.journal)
        self.programs.append(program)
        return program

    @property
    def groups(self) -> list[str]:
        return list(self._setups)

    @property
    def setups(self) -> list[WorkerSetup]:
        return list(self._setups.values())

    def workers(self) -> list[Program]:
        return [program for program in self.programs if program.role == "worker" and program.code is None]

    def producers(self) -> list[Program]:
        return [program for program in self.programs if program.role == "producer"]

    def let_in(self, *, again: bool = False) -> None:
        """Open the gate that messages with one wait at: for those who were the first to begin them, or for others."""
        Path(f"{self._gate}{AGAIN}" if again else self._gate).touch()

    # Faults that the checker must know of, because they excuse a repetition.

    def breaks(self, name: str) -> None:
        self.journal.write("fault", name=name)

    def heals(self, name: str, **facts: Any) -> None:
        self.journal.write("healed", name=name, **facts)

    def prove(self, what: str, count: int) -> None:
        """The fault really bit: else the row shows nothing, however clean its verdict."""
        assert count > 0, f"{self.row} proves nothing: {what} is {count}"
        self.proofs[what] = count

    # Watching.

    def history(self) -> History:
        return History(self.journals.all())

    def lines(self, *kinds: str) -> list[Line]:
        return self.journals.of_kind(*kinds)

    async def until(self, condition: Callable[[], bool], what: str, within: float = PATIENCE) -> None:
        """Wait for it; a process that ends where it should not, or a hang, fails the test."""
        deadline = asyncio.get_running_loop().time() + within
        while not condition():
            self.watch()
            assert asyncio.get_running_loop().time() < deadline, (
                f"{self.row} hangs: {what} did not happen;{self.told()}"
            )
            await asyncio.sleep(_LOOK_EVERY)

    def watch(self) -> None:
        """See who died, start workers again, kill those in which nothing moves any more."""
        for program in list(self.programs):
            if program.pid in self._mourned or program.code is None:
                continue
            self._mourned.add(program.pid)
            assert program.role == "worker" or program.code == 0, f"a producer died: {program.printed()[-3000:]}"
            if program.role == "worker" and program.code != 0 and self.supervised:
                self.restarts += 1
                assert self.restarts < 200, f"workers die again and again: {program.printed()[-3000:]}"
                self.programs.append(program.again())
        stuck = [line for line in self.lines("event") if line.name == "HandlerStuck" and line.facts["loop_blocked"]]
        for line in stuck[self._stuck_seen :]:
            for program in self.programs:
                if program.pid == line.pid and program.code is None:
                    self._stuck.add(program.pid)
                    program.kill()
        self._stuck_seen = len(stuck)

    async def first(self, count: int, *kinds: str, where: Callable[[Line], bool] = lambda line: True) -> list[Line]:
        """The first lines of these kinds for which `where` holds, once there are that many."""

        def found() -> list[Line]:
            return [line for line in self.lines(*kinds) if where(line)]

        await self.until(lambda: len(found()) >= count, f"{count} lines {kinds}")
        return found()[:count]

    async def ready(self) -> None:
        """Wait until every worker reads."""
        await self.until(lambda: len(self.at_work()) >= len(self.workers()), "that the workers read")

    async def published(self) -> None:
        await self.until(lambda: all(producer.code == 0 for producer in self.producers()), "the end of all producers")

    def at_work(self) -> set[int]:
        """Those that have begun to read, and catch signals."""
        return {line.pid for line in self.lines("event") if line.name == "Started"}

    def left(self) -> int:
        """How much there is to do, for any group."""
        return self.inspector().unsettled()

    def inspector(self) -> Inspector:
        return Inspector(self.admin, self.topic, self.groups, lanes=self.lanes)

    async def settled(self, within: float = PATIENCE) -> None:
        """Wait until there is nothing left to do."""
        await self.until(lambda: self.left() == 0, "that everything is settled", within)
        self.journal.write("seen", name="settled")

    async def dismissed(self) -> None:
        """Ask every worker to leave, and see it do so in order and in time."""
        await self.until(lambda: {worker.pid for worker in self.workers()} <= self.at_work(), "that all are at work")
        leaving = self.workers()
        self.supervised = False
        for worker in leaving:
            worker.ask_to_leave()
        await self.until(lambda: all(worker.code is not None for worker in leaving), "that every worker leaves")
        for worker in leaving:
            assert worker.code == 0 or worker.pid in self._stuck, (
                f"a worker left with {worker.code}: {worker.printed()[-3000:]}"
            )

    def told(self) -> str:
        """What can be said about a run that went wrong."""
        recent = "".join(f"\n  {line}" for line in self.journals.all()[-8:])
        logs = "".join(f"\n{program.log.name}: {program.printed()[-600:]}" for program in self.programs)
        return f" unsettled {self.left()}; last lines:{recent}{logs}"
