"""An archive to a disk of a few megabytes that is full; and then, with room, one that goes on until Ctrl-C.

Run under `unshare --mount`, so that the disk is its own, and as the leader of a session, as a terminal would.

Arguments: an empty directory, the server's URL, the topic, and how many entries are there. What happened goes to
stdout, as JSON.
"""

import contextlib
import errno
import io
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from penstock.cli.main import main as penstock
from penstock.lake import Lake, tables
from tests.spark.awaiting import until

MEBIBYTE = 1 << 20


def archive(lake: Path, url: str, topic: str, *more: str) -> tuple[int, str]:
    """Exit code, and what the command says."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        try:
            penstock(["pipeline", "archive", topic, "--lake", str(lake), "--url", url, *more])
        except SystemExit as ending:
            return int(ending.code or 0), said.getvalue()
    return 0, said.getvalue()


def fill(filler: Path, free: int) -> int:
    """Leave so many bytes free; the error that more would have ended in."""
    with filler.open("wb") as file:
        while (left := os.statvfs(filler.parent).f_bavail * os.statvfs(filler.parent).f_frsize) > free:
            file.write(b"\0" * min(left - free, 1 << 16))
            file.flush()
    probe = filler.with_name("probe")
    try:
        probe.write_bytes(b"\0" * (free + MEBIBYTE))
    except OSError as error:
        return error.errno or 0
    finally:
        probe.unlink()
    return 0


def interrupt(lake: Lake, rows: int) -> None:
    """Ctrl-C reaches all processes of a terminal, Spark's too."""
    until(lambda: sum(file.rows for file in lake.snapshot().of("raw")) == rows, within=120)
    os.killpg(0, signal.SIGINT)


def main(directory: str, url: str, topic: str, rows_due: str) -> None:
    disk = Path(directory)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", directory], check=True)
    found = fill(disk / "filler", MEBIBYTE)
    assert found == errno.ENOSPC, errno.errorcode.get(found, found)
    failed = archive(disk / "lake", url, topic)
    rows = len(tables.query(Lake.open(disk / "lake"), "SELECT * FROM raw"))
    (disk / "filler").unlink()
    threading.Thread(target=interrupt, args=(Lake(disk / "lake"), int(rows_due)), daemon=True).start()
    good = archive(disk / "lake", url, topic, "--every", "1s")
    ids = tables.query(Lake.open(disk / "lake"), "SELECT id FROM raw")["id"].to_pylist()
    json.dump({"failed": failed, "rows": rows, "good": good, "ids": ids}, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
