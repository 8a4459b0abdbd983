"""Very many follow one topic in one process: each is given everything, in order and once, or is told what it missed."""

import hashlib
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from tests.fault.checker import Verdict
from tests.fault.followers import END, FollowersSetup, Report
from tests.fault.programs import ROOT
from tests.fault.rows import row
from tests.fault.scene import Scene
from tests.fault.servers import ALWAYS
from tests.fault.setup import PASSWORD, URL_VARIABLE
from tests.fault.size import FULL, MESSAGES, PATIENCE, PRODUCERS

MIB = 1024 * 1024
FOLLOWERS = FollowersSetup("", steady=700, leaving=200, slow=100, queue=20)
SENT = min(MESSAGES, 1000)
PAD = 8 * 1024
"""Kept once for each follower that is behind, the messages would be a multiple of what the process may use."""


@contextmanager
def following(scene: Scene) -> Iterator["subprocess.Popen[str]"]:
    setup = msgspec.structs.replace(FOLLOWERS, topic=scene.topic)
    errors = (scene.directory / "followers.log").open("wb")
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.fault.followers", msgspec.json.encode(setup).decode()],
        cwd=ROOT, env={**os.environ, URL_VARIABLE: scene.url}, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=errors, text=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=20)
        errors.close()


def stored(scene: Scene) -> tuple[int, str]:
    """How many entries there are, and a digest of their ids."""
    digest, ids = hashlib.sha256(), [entry_id for entry_id, _ in scene.admin.xrange(scene.topic)]
    for entry_id in ids:
        digest.update(entry_id)
    return len(ids), digest.hexdigest()


def connections_of(scene: Scene, before: int) -> int:
    return int(scene.admin.info("clients")["connected_clients"]) - before


def restart(scene: Scene) -> None:
    scene.breaks("server restarted")
    scene.server.kill()
    scene.server.start()
    scene.heals("server restarted")


@row("F34 a thousand followers", redis=FULL)
async def test_a_thousand_followers_share_one_connection_and_miss_nothing_unannounced(scene: Scene) -> None:
    scene.serve(*ALWAYS)
    before, pid = scene.admin.info("clients")["connected_clients"], scene.server.pid
    with following(scene) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", (scene.directory / "followers.log").read_text()
        # One to wait for news, and one for commands.
        assert connections_of(scene, before) <= 2
        scene.produce(SENT, pad=PAD, pause=0.02 * PRODUCERS, abreast=2)
        await scene.until(lambda: scene.admin.xlen(scene.topic) > SENT // 2, "half of the messages")
        restart(scene)
        await scene.published()
        scene.admin.xadd(scene.topic, {"payload": END})
        await scene.until(lambda: process.poll() is not None or readable(process), "the report", 2 * PATIENCE)
        line = process.stdout.readline()
    assert line, (scene.directory / "followers.log").read_text()[-3000:]
    report = msgspec.json.decode(line, type=Report)
    judge(scene, report)
    scene.prove("the server's process changed", int(scene.server.pid != pid))
    assert PASSWORD not in (scene.directory / "followers.log").read_text()


def readable(process: "subprocess.Popen[str]") -> bool:
    return bool(select.select([process.stdout], [], [], 0)[0])


def judge(scene: Scene, report: Report) -> None:
    total, digest = stored(scene)
    quick = [one for one in report.followers if one.kind != "slow"]
    slow = [one for one in report.followers if one.kind == "slow"]
    assert {(one.count, one.gaps, one.digest) for one in quick} == {(total, 0, digest)}
    assert {one.count + one.missing for one in slow} == {total}, "what a slow one missed is counted to the last"
    assert not sum(one.uncounted for one in slow)
    assert not sum(one.out_of_order for one in report.followers)
    scene.prove("gaps that slow followers were told of", sum(one.gaps for one in slow))
    scene.prove("MiB the process grew by", -(-(report.resident_most - report.resident_before) // MIB))
    assert report.resident_most - report.resident_before < 48 * MIB
    given = sum(one.count for one in report.followers)
    scene.verdict = Verdict((), total, total, 0, 0, given, 0, 0)
