"""A standalone cluster on 127.0.0.1, from the PySpark that is installed: a master and workers of one core each."""

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyspark

from penstock.spark.start.java import find_java, home_for_spark
from tests.support.java import QUICK
from tests.support.servers import free_port

ROOT = Path(__file__).resolve().parent.parent.parent
START_SECONDS = 120.0


class Cluster:
    """Runs from `with` to its end. `directory` gets the logs, and what the executors of each worker leave."""

    def __init__(self, directory: Path, workers: int = 2) -> None:
        self.directory = directory
        self.workers = workers
        self.port, self.web_port = free_port(), free_port()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def url(self) -> str:
        return f"spark://127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """What its processes, and a driver beside them, are started with."""
        return os.environ | {
            "JAVA_HOME": str(home_for_spark(find_java())),
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(ROOT),
            "SPARK_DAEMON_JAVA_OPTS": QUICK,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_HOME": str(Path(pyspark.__file__).parent),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }

    def __enter__(self) -> Self:
        try:
            ports = ["--port", str(self.port), "--webui-port", str(self.web_port)]
            self._start("master", "org.apache.spark.deploy.master.Master", *ports)
            self._wait("the master to answer", lambda: self.state() is not None)
            for number in range(self.workers):
                place = ["--work-dir", str(self.directory / f"worker{number}"), "--webui-port", str(free_port())]
                share = ["--cores", "1", "--memory", "1g"]
                self._start(f"worker{number}", "org.apache.spark.deploy.worker.Worker", *share, *place, self.url)
            self._wait("the workers to register", lambda: self.alive_workers() == self.workers)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def state(self) -> dict[str, Any] | None:
        """What the master says of itself; None while it does not answer."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.web_port}/json/", timeout=5) as answer:
                found: dict[str, Any] = json.load(answer)
        except OSError:
            return None
        return found

    def alive_workers(self) -> int:
        state = self.state() or {}
        return sum(worker["state"] == "ALIVE" for worker in state.get("workers", ()))

    def stop(self) -> None:
        for process in reversed(self.processes.values()):
            process.terminate()
        for process in self.processes.values():
            process.wait(30)

    def _start(self, name: str, java_class: str, *arguments: str) -> None:
        environment = self.environment
        command = [f"{environment['SPARK_HOME']}/bin/spark-class", java_class, "--host", "127.0.0.1", *arguments]
        with open(self.directory / f"{name}.log", "wb") as log:
            # The script ends in exec, so this process is the JVM, and can be ended by its id.
            self.processes[name] = subprocess.Popen(
                command, env=environment, cwd=self.directory, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def _wait(self, what: str, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not done():
            for name, process in self.processes.items():
                assert process.poll() is None, (self.directory / f"{name}.log").read_text()
            assert time.monotonic() < deadline, f"waited {START_SECONDS:g} s for {what}"
            time.sleep(0.1)
