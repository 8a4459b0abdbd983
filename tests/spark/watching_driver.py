"""A driver that measures and watches, and is killed in the midst of both: windows are published but not in the lake
yet, and some of the alerts are out.

Arguments: the lake, the server's URL, the topic, and how many alerts to wait for.
"""

import os
import signal
import sys
import threading
import time
from datetime import timedelta
from threading import Event, Thread
from typing import Any, NoReturn

import redis

from penstock.lake import Lake
from penstock.spark import session
from penstock.spark.pipelines.alert_rules import Alert
from penstock.spark.pipelines.alerts import Alerts
from penstock.spark.pipelines.metrics import Metrics

RULE = Alert(name="late", after="order.placed", expect="order.shipped", within=timedelta(hours=2))


def jobs(lake: str, url: str, topic: str) -> tuple[Metrics, Alerts]:
    alerts = Alerts(lake=lake, topics=[topic], rules=[RULE], to=f"{topic}:alerts", url=url, per_batch=60)
    return Metrics(lake=lake, topics=[topic], to=f"{topic}:metrics", url=url), alerts


def _die(what: "threading.ExceptHookArgs") -> NoReturn:
    """Nobody else would notice."""
    threading.__excepthook__(what)
    os._exit(1)


def main(lake: str, url: str, topic: str, enough: str) -> NoReturn:
    at_the_commit = Event()

    def commit(*_: Any, **__: Any) -> None:
        at_the_commit.set()
        Event().wait()

    Lake.commit = commit  # type: ignore[method-assign, assignment]
    spark = session("watching", "local[2]", {"spark.sql.shuffle.partitions": 2, "spark.driver.memory": "1g"})
    jvm = spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]
    metrics, alerts = jobs(lake, url, topic)
    threading.excepthook = _die
    for run in (metrics.run, alerts.run):
        Thread(target=run, args=(spark,), daemon=True).start()
    with redis.Redis.from_url(url) as server:
        while not at_the_commit.is_set() or server.xlen(alerts.to) < int(enough):
            time.sleep(0.005)
    os.kill(jvm, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("not reached")


if __name__ == "__main__":
    main(*sys.argv[1:])
