"""A Spark session that starts on a machine with nothing but `pip install 'penstock[spark]'`."""

import os
import shlex
import sys
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import ConfigurationError, SetupError
from penstock.spark.start.doctor import missing
from penstock.spark.start.java import find_java, home_for_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")
MASTER_VARIABLE = "PENSTOCK_SPARK_MASTER"
"""Tells the Python processes of the driver, to which Spark says nothing about it, where executors run."""

_JAVA_OPTIONS = "spark.driver.extraJavaOptions"


def session(
    name: str = "penstock", master: str | None = None, config: Mapping[str, str | int | bool] | None = None
) -> "SparkSession":
    """The session of this process, started if there is none, in which `format("penstock")` works.

    Without `master`, Spark runs where `spark-submit` or `spark.master` of `config` say, else here on all cores. What
    `config` says wins over every default of ours. A session that runs already is returned if it has that master and
    those settings, else this raises `ConfigurationError`. For the JVM to start, this sets `$JAVA_HOME` unless that is
    fit for Spark, and `$PYSPARK_PYTHON` and `$SPARK_LOCAL_IP` if they are not set and it makes sense.
    """
    if lacking := missing():
        raise SetupError(
            f"Spark cannot start: not installed are {', '.join(lacking)}; run `pip install 'penstock[spark]'`"
        )
    from pyspark import SparkContext

    asked = {
        key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in (config or {}).items()
    }
    if master is not None:
        asked["spark.master"] = master
    # Asked of the context, since what Spark calls the active session is that of this thread only.
    if SparkContext._active_spark_context is not None:  # noqa: SLF001
        return _fitting(_start(_changeable(asked)), asked)
    settings = {"spark.app.name": name, **defaults(asked, os.environ), **asked}
    if starts_a_jvm(asked, os.environ):
        prepare(settings["spark.master"], os.environ)
        settings[_JAVA_OPTIONS] = with_quiet_logs(settings.get(_JAVA_OPTIONS, ""), os.environ)
    return _start(settings)


def defaults(asked: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """What a session has that was not asked for it."""
    chosen = {"spark.ui.showConsoleProgress": "false"}
    if not starts_a_jvm(asked, environ):
        return chosen  # where Spark runs was said there
    chosen["spark.master"] = "local[*]"
    if is_local(asked.get("spark.master", "local[*]")):
        chosen["spark.ui.enabled"] = "false"
    return chosen


def prepare(master: str, environ: MutableMapping[str, str]) -> None:
    """Make the environment one in which Spark's scripts start a JVM that finds our Python."""
    environ["JAVA_HOME"] = str(home_for_spark(find_java(environ), environ))
    environ.setdefault("PYSPARK_PYTHON", sys.executable)
    environ[MASTER_VARIABLE] = master
    if is_local(master) or "//127.0.0.1:" in master or "//localhost:" in master:
        # Else Spark looks the host's name up, and listens to the network though nobody is there to call.
        environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


def with_quiet_logs(java_options: str, environ: Mapping[str, str]) -> str:
    """Warnings and errors on stderr, without the chatter of a start; unless the user has log settings of his own."""
    own = "log4j" in java_options or "SPARK_CONF_DIR" in environ
    ours = shlex.quote(f"-Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()}")
    return java_options if own else f"{java_options} {ours}".strip()


def is_local(master: str) -> bool:
    """Whether executors run on this machine, in the driver's own JVM or as its children."""
    return master.startswith("local")


def starts_a_jvm(asked: Mapping[str, str], environ: Mapping[str, str]) -> bool:
    """Not under `spark-submit`, which has started one, nor as a client of a Spark Connect server."""
    return not ("PYSPARK_GATEWAY_PORT" in environ or "SPARK_REMOTE" in environ or "spark.remote" in asked)


def _start(settings: Mapping[str, str]) -> "SparkSession":
    from pyspark.sql import SparkSession

    return SparkSession.builder.config(map=dict(settings)).getOrCreate()


def _changeable(asked: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in asked.items() if key.startswith("spark.sql.")}


def _fitting(running: "SparkSession", asked: Mapping[str, str]) -> "SparkSession":
    fixed = running.sparkContext.getConf()
    for key, value in asked.items():
        actual = running.conf.get(key) if key.startswith("spark.sql.") else fixed.get(key)
        if actual != value:
            raise ConfigurationError(
                f"a Spark session runs already in this process, and its {key} is {actual!r}, not {value!r}:"
                " stop that session first, or ask for the same"
            )
    return running
