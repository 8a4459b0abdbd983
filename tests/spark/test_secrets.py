"""No password in anything that Spark writes or shows: options, plans, checkpoints, event logs, output, errors.

A Spark of its own, with event logs on, reads and writes a server that wants a password; then every file it left and
everything it printed is searched for it.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.servers import Server, valkey_binary

CANARY = "c4nary-5ecret-f00d"
ROOT = Path(__file__).resolve().parent.parent.parent

PROGRAM = """
import sys
from penstock.spark import session

url, directory, out = sys.argv[1:]
spark = session("canary", "local[1]", {
    "spark.eventLog.enabled": "true", "spark.eventLog.dir": "file://" + out, "spark.eventLog.compress": "false",
    "spark.sql.shuffle.partitions": 1, "spark.local.dir": out, "spark.log.level": "INFO",
    "spark.sql.warehouse.dir": out + "/warehouse",
})
by_env = {"urlEnv": "CANARY_URL"}
by_file = {"url": url, "username": "default", "passwordFile": directory + "/secret"}
rows = spark.sql("select 'orders' as stream, uuid() as id, '{}' as payload from range(10)")
rows.write.format("penstock").options(**by_env).option("name", "load").mode("append").save()
frame = spark.read.format("penstock").options(topic="orders", **by_file).load()
frame.explain("extended")
print("rows", frame.count())
print(frame._jdf.queryExecution().toString())
source = spark.readStream.format("penstock").options(topic="orders", group="g", **by_env).load()
query = source.selectExpr("'copies' as stream", "id", "payload").writeStream.format("penstock").options(**by_file)
query = query.option("checkpointLocation", out + "/checkpoint").trigger(availableNow=True).start()
query.awaitTermination()
query.explain(True)
print("copied", spark.read.format("penstock").options(topic="copies", **by_env).load().count())
for wrong in ({"urlEnv": "WRONG_URL"}, {"urlEnv": "BROKEN_URL"}, {"url": url, "passwordEnv": "WRONG"}):
    try:
        spark.read.format("penstock").options(topic="orders", **wrong).load().count()
    except Exception as error:
        print("refused", type(error).__name__, error)
spark.stop()
print("the end")
"""


@pytest.fixture
def guarded() -> Iterator[Server]:
    binary = valkey_binary()
    assert binary is not None
    with tempfile.TemporaryDirectory(prefix="ps-") as directory:
        server = Server(binary, Path(directory), tcp=True)
        with server.client() as admin:
            admin.config_set("requirepass", CANARY)
        yield server
        server.stop()


@pytest.mark.xdist_group("spark")
@pytest.mark.timeout(170)
def test_no_secret_is_left_anywhere(guarded: Server, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (tmp_path / "secret").write_text(CANARY + "\n")
    address = f"127.0.0.1:{guarded.port}"
    environ = os.environ | {
        "CANARY_URL": f"redis://:{CANARY}@{address}/0",
        "WRONG_URL": f"redis://:wrong-{CANARY}@{address}/0",
        "BROKEN_URL": f"redis://:{CANARY}/@{address}/0",
        "WRONG": f"wrong-{CANARY}",
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, f"redis://{address}", str(tmp_path), str(out)],
        cwd=ROOT, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=160, check=False,
    )  # fmt: skip
    said = done.stdout + done.stderr
    assert done.stdout.endswith("the end\n"), said
    assert "rows 10" in said
    assert "copied 10" in said
    assert said.count("refused") == 3
    files = [file for file in out.rglob("*") if file.is_file()]
    names = {file.relative_to(out).parts[0] for file in files}
    assert "checkpoint" in names, names
    assert any("local-" in name for name in names), names
    # The control: what is no secret does show up, so a secret would.
    assert address in said
    assert "orders" in "".join(file.read_text(errors="replace") for file in files if "local-" in str(file))
    assert CANARY not in said
    assert [str(file) for file in files if CANARY.encode() in file.read_bytes()] == []
