"""Sessions: what they are started with, on which Java, and what happens where one runs already."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.errors import ConfigurationError
from penstock.spark import session
from penstock.spark.start.session import defaults, prepare, with_quiet_logs
from tests.support.java import QUICK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIRST_STEPS = """
import json, os
from penstock.spark import session
from pyspark.sql.functions import udf

spark = session("first steps", "local[1]", {"spark.driver.memory": "512m"})
doubled = spark.range(3).select(udf(lambda n: n * 2, "bigint")("id").alias("n")).toPandas()
facts = {
    "java home": os.environ["JAVA_HOME"],
    "rows": doubled["n"].tolist(),
    "ui": spark.sparkContext.uiWebUrl,
    "name": spark.sparkContext.appName,
    "host": spark.conf.get("spark.driver.host"),
    "vector": spark._jvm.java.lang.ModuleLayer.boot().findModule("jdk.incubator.vector").isPresent(),
}
print(json.dumps(facts))
spark.stop()
"""


@pytest.mark.xdist_group("spark")
@pytest.mark.timeout(180)
def test_a_machine_without_java_needs_nothing_but_the_extra(tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for folder in ("/usr/bin", "/bin"):
        for program in Path(folder).iterdir():
            if not program.name.startswith("java") and not (tools / program.name).exists():
                (tools / program.name).symlink_to(program)
    environment = {"PATH": str(tools), "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", FIRST_STEPS],
        env=environment,
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts.pop("java home").startswith(str(tmp_path / ".cache" / "penstock" / "java-"))
    assert facts.pop("host") in {"127.0.0.1", "localhost"}
    assert facts == {"rows": [0, 2, 4], "ui": None, "name": "first steps", "vector": False}
    assert done.stderr == "", "a session that starts well says nothing"


def test_a_running_session_is_shared_by_who_asks_for_the_same(spark: "SparkSession") -> None:
    assert session() is spark
    assert session(master="local[2]", config={"spark.driver.memory": "1g", "spark.ui.enabled": False}) is spark


@pytest.mark.parametrize(
    ("master", "config", "setting"),
    [
        ("local[1]", {}, "spark.master is 'local[2]', not 'local[1]'"),
        (None, {"spark.driver.memory": "2g"}, "spark.driver.memory is '1g', not '2g'"),
        (None, {"spark.jars": "x.jar"}, "spark.jars is None, not 'x.jar'"),
        (None, {"spark.sql.warehouse.dir": "elsewhere"}, "spark.sql.warehouse.dir is "),
    ],
    ids=["master", "memory", "jars", "static"],
)
def test_a_running_session_is_not_passed_off_as_another(
    spark: "SparkSession", master: str | None, config: dict[str, str], setting: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        session(master=master, config=config)
    assert setting in str(refused.value)
    assert spark.range(1).count() == 1


def test_a_setting_that_can_change_is_changed_in_the_running_session(spark: "SparkSession") -> None:
    before = spark.conf.get("spark.sql.shuffle.partitions")
    try:
        session(config={"spark.sql.shuffle.partitions": 3})
        assert spark.conf.get("spark.sql.shuffle.partitions") == "3"
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", before)


def test_options_that_the_machine_has_for_every_jvm_stand_beside_those_of_the_session(spark: "SparkSession") -> None:
    given = " ".join(spark._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments())
    assert QUICK in given
    assert given.index(QUICK) < given.index("-Dlog4j2.configurationFile=file:///")


def test_spark_finds_the_data_source_by_itself(spark: "SparkSession") -> None:
    with pytest.raises(Exception, match=r"penstock\.errors\.ConfigurationError"):  # it lacks every option
        spark.read.format("penstock").load()


@pytest.mark.parametrize(("without", "there"), [("", "True"), ("pyarrow", "False")])
def test_an_incomplete_installation_does_not_break_the_lookup_of_other_sources(without: str, there: str) -> None:
    # Spark asks every module named pyspark_* in one process, and gives up with the first that raises.
    look = f"import sys; sys.modules.update(dict.fromkeys({without.split()})); import pyspark_penstock"
    code = f"{look}; print('pyspark' in sys.modules, hasattr(pyspark_penstock, 'DefaultSource'))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == f"False {there}\n"


@pytest.mark.parametrize(
    ("asked", "environ", "expected"),
    [
        ({}, {}, {"spark.master": "local[*]", "spark.ui.enabled": "false"}),
        ({"spark.master": "local[4]"}, {}, {"spark.master": "local[*]", "spark.ui.enabled": "false"}),
        ({"spark.master": "spark://h:7077"}, {}, {"spark.master": "local[*]"}),
        ({}, {"PYSPARK_GATEWAY_PORT": "1"}, {}),
        ({}, {"SPARK_REMOTE": "sc://h"}, {}),
        ({"spark.remote": "sc://h"}, {}, {}),
    ],
    ids=["nothing", "local", "cluster", "spark-submit", "remote", "remote by setting"],
)
def test_what_is_not_asked_for(asked: dict[str, str], environ: dict[str, str], expected: dict[str, str]) -> None:
    assert defaults(asked, environ) == {"spark.ui.showConsoleProgress": "false"} | expected


def test_only_what_is_not_set_is_set() -> None:
    chosen = {"PYSPARK_PYTHON": "/my/python", "SPARK_LOCAL_IP": "10.0.0.1"}
    environ = {"PATH": os.environ["PATH"], **chosen}
    prepare("local[2]", environ)
    assert environ.items() >= chosen.items()
    assert Path(environ["JAVA_HOME"], "bin", "java").exists()


@pytest.mark.parametrize(
    ("master", "address"),
    [("local", "127.0.0.1"), ("spark://127.0.0.1:7077", "127.0.0.1"), ("spark://10.0.0.5:7077", None), ("yarn", None)],
)
def test_executors_elsewhere_can_call_the_driver_back(master: str, address: str | None) -> None:
    environ = {"PATH": os.environ["PATH"]}
    prepare(master, environ)
    assert environ.get("SPARK_LOCAL_IP") == address
    assert environ["PYSPARK_PYTHON"] == sys.executable


def test_log_settings_of_the_user_are_left_alone() -> None:
    assert with_quiet_logs("-Dlog4j2.configurationFile=my.xml", {}) == "-Dlog4j2.configurationFile=my.xml"
    assert with_quiet_logs("-Xss4m", {"SPARK_CONF_DIR": "/etc/spark"}) == "-Xss4m"
    assert with_quiet_logs("-Xss4m", {}).startswith("-Xss4m -Dlog4j2.configurationFile=file:///")
