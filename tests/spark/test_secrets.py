"""No password in anything that Spark writes or shows: options, plans, checkpoints, event logs, output, errors.

A Spark of its own, with event logs on, reads and writes a server that wants a password; then every file it left and
everything it printed is searched for it. A word that is no secret goes the same ways, and is found in every place.
"""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.servers import Server, valkey_binary

CANARY = "c4nary-5ecret-f00d"
PLANTED = "p1anted-w0rd-beef"
"""The name of the topic, of the application, and what is given to an option that takes no such thing."""

ROOT = Path(__file__).resolve().parent.parent.parent

PROGRAM = """
import os, sys
from penstock.spark import session

url, directory, out, planted = sys.argv[1:]
spark = session(planted, "local[1]", {
    "spark.eventLog.enabled": "true", "spark.eventLog.dir": "file://" + out, "spark.eventLog.compress": "false",
    "spark.sql.shuffle.partitions": 1, "spark.local.dir": out, "spark.log.level": "INFO",
    "spark.sql.warehouse.dir": out + "/warehouse",
})
by_env = {"urlEnv": "CANARY_URL"}
by_file = {"url": url, "username": "default", "passwordFile": directory + "/secret"}
rows = spark.sql(f"select '{planted}' as stream, uuid() as id, '{{}}' as payload from range(10)")
rows.write.format("penstock").options(**by_env).option("name", "load").mode("append").save()
frame = spark.read.format("penstock").options(topic=planted, **by_file).load()
frame.explain("extended")
print("rows", frame.count())
print(frame._jdf.queryExecution().toString())
source = spark.readStream.format("penstock").options(topic=planted, group="g", **by_env).load()
query = source.selectExpr("'copies' as stream", "id", "payload").writeStream.format("penstock").options(**by_file)
query = query.option("checkpointLocation", out + "/checkpoint").trigger(availableNow=True).start()
query.awaitTermination()
query.explain(True)
print("copied", spark.read.format("penstock").options(topic="copies", **by_env).load().count())
secret, secret_url = os.environ["SECRET"], os.environ["CANARY_URL"]
for wrong in (
    {"urlEnv": "WRONG_URL"}, {"urlEnv": "BROKEN_URL"}, {"url": url, "passwordEnv": "WRONG"},
    {"url": url, "passwordEnv": secret}, {"url": url, "passwordFile": secret}, {"urlEnv": secret_url},
    {"urlFile": secret_url}, {"url": secret_url}, {**by_env, "delivery": planted},
):
    for act in (
        lambda: spark.read.format("penstock").options(topic=planted, **wrong).load().count(),
        lambda: rows.write.format("penstock").options(**wrong).mode("append").save(),
    ):
        try:
            act()
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
        "SECRET": CANARY,
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, f"redis://{address}", str(tmp_path), str(out), PLANTED],
        cwd=ROOT, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=160, check=False,
    )  # fmt: skip
    assert done.stdout.endswith("the end\n"), done.stdout + done.stderr
    assert "rows 10" in done.stdout
    assert "copied 10" in done.stdout
    assert done.stdout.count("\nrefused") == 18, done.stdout
    assert places_with(PLANTED, done, out) == {"output", "errors", "log", "events", "failures", "checkpoint"}
    assert places_with(CANARY, done, out) == set()


def places_with(word: str, done: "subprocess.CompletedProcess[str]", out: Path) -> set[str]:
    """Where the word is: what was printed, the errors in there, the log, and the files, by kind.

    Files are `events` and `checkpoint`, and by their own name where they are neither; `failures` are the ends of
    executions in the event log, which hold the texts of errors.
    """
    errors = "".join(re.findall(r"^refused.*?(?=^refused|^the end)", done.stdout, re.DOTALL | re.MULTILINE))
    texts = {"output": done.stdout, "errors": errors, "log": done.stderr}
    for file in (file for file in out.rglob("*") if file.is_file()):
        name, text = file.relative_to(out).parts[0], file.read_text(errors="replace")
        if "local-" in name:
            name, ends = "events", [line for line in text.splitlines() if "SQLExecutionEnd" in line]
            texts["failures"] = texts.get("failures", "") + "".join(ends)
        texts[name] = texts.get(name, "") + text
    return {place for place, text in texts.items() if word in text}
