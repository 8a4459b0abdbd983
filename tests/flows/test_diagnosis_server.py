"""Each rule on the server finds what it is for on one that was made so, and nothing on one that is well set up."""

import asyncio
import os
import re
import resource
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from penstock.backend.redis import RedisBackend
from penstock.diagnosis.diagnosis import DOCTORS, Diagnosis
from penstock.diagnosis.finding import Finding
from tests.support.servers import Server, redis_binary, valkey_binary

WELL = ("--appendonly", "yes", "--maxmemory-policy", "noeviction")
Start = Callable[..., Server]


@pytest.fixture(params=["valkey", "redis"])
def start(request: pytest.FixtureRequest) -> Iterator[Start]:
    """Starts servers of one kind, which end with the test. They live through a disk that refuses to take more."""
    binary = {"valkey": valkey_binary, "redis": redis_binary}[request.param]()
    assert binary is not None
    started: list[Server] = []

    def start(*arguments: str, tcp: bool = False) -> Server:
        directory = Path(tempfile.mkdtemp(prefix="ps-"))
        wrapper = directory / "server"
        wrapper.write_text(f"#!/bin/sh\ntrap '' XFSZ\nexec {binary} \"$@\"\n")
        wrapper.chmod(0o700)
        started.append(Server(str(wrapper), directory, *arguments, tcp=tcp))
        return started[-1]

    yield start
    for server in started:
        server.kill()  # asked to, it might want to write first
        remove(server.directory)


def remove(directory: Path) -> None:
    """A child that writes the server's file anew outlives it for a moment, and may add to the directory meanwhile."""
    deadline = time.monotonic() + 20
    while directory.exists():
        assert time.monotonic() < deadline, f"somebody still writes to {directory}"
        shutil.rmtree(directory, ignore_errors=True)


async def found(server: Server) -> dict[str, Finding]:
    """By rule; the version is what it is, and looked at by itself."""
    async with await RedisBackend.connect(server.url) as backend:
        findings = await Diagnosis(backend).doctor()
    assert {one.rule for one in findings} <= set(DOCTORS)
    return {one.rule: one for one in findings if one.rule != "version"}


async def reasons(server: Server) -> dict[str, Finding]:
    """Why a topic of it does not get on: one that was made and has nothing to do."""
    with server.client() as admin:
        if not admin.exists("orders"):
            admin.xgroup_create("orders", "g", mkstream=True)
    async with await RedisBackend.connect(server.url) as backend:
        return {one.rule: one for one in await Diagnosis(backend).why("orders")}


async def test_a_server_that_is_well_set_up_is_healthy(start: Start) -> None:
    assert await found(start(*WELL)) == {}


@pytest.mark.parametrize(("policy", "loses"), [("allkeys-lru", "whole topics"), ("volatile-ttl", "against duplicates")])
async def test_a_server_that_evicts_is_told_of(start: Start, policy: str, loses: str) -> None:
    server = start("--appendonly", "yes", "--maxmemory-policy", policy)
    unlimited = (await found(server))["eviction"]
    assert unlimited.level == "note"
    with server.client() as admin:
        admin.config_set("maxmemory", 100_000_000)
    finding = (await found(server))["eviction"]
    assert finding.level == "wrong"
    assert loses in finding.what
    assert policy in finding.evidence[0]
    assert finding.remedy.endswith(f"-cli -s {server.socket} CONFIG SET maxmemory-policy noeviction")
    assert "to last" in finding.besides


async def test_a_server_that_keeps_nothing_or_only_snapshots_is_told_of(start: Start) -> None:
    server = start()
    assert (await found(server))["persistence"].what == "a crash loses everything, though it was acknowledged"
    with server.client() as admin:
        admin.config_set("save", "3600 1")
        assert "since the last snapshot" in (await found(server))["persistence"].what
        admin.config_set("appendonly", "yes")
        admin.config_set("appendfsync", "no")
        assert (await found(server))["persistence"].level == "note"
        admin.config_set("appendfsync", "everysec")
    assert await found(server) == {}


async def test_a_disk_that_takes_no_more_is_told_of(start: Start) -> None:
    server = start(*WELL)
    with server.client() as admin:
        admin.xadd("orders", {"payload": "{}"})
        refuse_writing(server, admin)
        finding = (await found(server))["disk"]
        assert finding.level == "wrong"
        assert "append-only file" in finding.what
        with pytest.raises(redis.exceptions.RedisError, match="MISCONF"):
            admin.xadd("orders", {"payload": "{}"})
        async with await RedisBackend.connect(server.url) as backend:
            assert "disk" in {one.rule for one in await Diagnosis(backend).why("orders")}


def refuse_writing(server: Server, admin: "redis.Redis") -> None:
    """Have the server find that its disk is full."""
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
    deadline = time.monotonic() + 30
    while admin.info("persistence")["aof_last_write_status"] == "ok":
        assert time.monotonic() < deadline
        try:
            admin.xadd("orders", {"payload": "{}"})
        except redis.exceptions.RedisError:
            time.sleep(0.01)


async def test_a_rewrite_of_the_file_that_failed_is_told_from_a_write_that_failed(start: Start) -> None:
    server = start(*WELL)
    with server.client() as admin:
        admin.xadd("orders", {"payload": os.urandom(200_000)})
        # Only its child, which writes all of it anew, comes to the limit: the server itself begins an empty file.
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (50_000, resource.RLIM_INFINITY))
        admin.bgrewriteaof()
        deadline = time.monotonic() + 30
        while admin.info("persistence")["aof_last_bgrewrite_status"] == "ok":
            assert time.monotonic() < deadline
            time.sleep(0.01)
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        admin.xadd("orders", {"payload": "{}"})  # it takes changes as ever
        finding = (await found(server))["disk"]
        assert (finding.level, finding.what[:60]) == (
            "note",
            "the append-only file could not be rewritten, and grows: chan",
        )
        assert "disk" not in await reasons(server), "it keeps nothing back"
        assert re.fullmatch(rf"(valkey|redis)-cli -s {server.socket} BGREWRITEAOF", finding.remedy)
        admin.bgrewriteaof()
        while admin.info("persistence")["aof_last_bgrewrite_status"] != "ok":
            assert time.monotonic() < deadline
            time.sleep(0.01)
    assert await found(server) == {}


async def test_a_snapshot_that_failed_is_told_of(start: Start) -> None:
    server = start("--save", "3600 1", "--stop-writes-on-bgsave-error", "yes")
    with server.client() as admin:
        admin.xgroup_create("orders", "g", mkstream=True)
        await fail_a_snapshot(server, admin)
        with pytest.raises(redis.exceptions.RedisError, match="MISCONF"):
            admin.xadd("orders", {"payload": "{}"})
    finding = (await found(server))["disk"]
    assert "the last snapshot failed, and the server refuses every change" in finding.what
    assert re.fullmatch(rf"(valkey|redis)-cli -s {server.socket} BGSAVE", finding.remedy)
    assert set(await reasons(server)) == {"disk"}


@pytest.mark.parametrize("how", [("3600 1", "no"), ("", "yes")])
async def test_a_snapshot_that_failed_without_stopping_writes_keeps_nothing_back(
    start: Start, how: tuple[str, str]
) -> None:
    """Where none is taken by itself, one that was asked for stops nothing."""
    save, stop = how
    server = start("--save", save, "--stop-writes-on-bgsave-error", stop)
    with server.client() as admin:
        await fail_a_snapshot(server, admin)
        admin.xadd("other", {"payload": "{}"})
    finding = (await found(server))["disk"]
    assert (finding.level, finding.what) == ("wrong", "the last snapshot failed")
    assert await reasons(server) == {}


async def test_a_snapshot_that_failed_where_settings_cannot_be_asked_for_may_stop_writes(start: Start) -> None:
    server = start("--save", "3600 1")
    with server.client() as admin:
        admin.xgroup_create("orders", "g", mkstream=True)
        await fail_a_snapshot(server, admin)
        admin.acl_setuser("default", commands=["-config"], enabled=True, nopass=True)
    finding = (await reasons(server))["disk"]
    assert finding.what == "the last snapshot failed, and the server may refuse every change until one succeeds"
    assert "stop-writes-on-bgsave-error unknown" in finding.evidence[0]


async def fail_a_snapshot(server: Server, admin: "redis.Redis") -> None:
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
    admin.bgsave()
    await soon(lambda: admin.info("persistence")["rdb_last_bgsave_status"] != "ok")
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


async def test_a_full_server_is_told_of_and_is_why_a_topic_is_stuck(start: Start) -> None:
    server = start(*WELL)
    with server.client() as admin:
        admin.xadd("orders", {"payload": "{}"})
        admin.config_set("maxmemory", 1000)
        with pytest.raises(redis.exceptions.OutOfMemoryError):
            admin.xadd("orders", {"payload": "{}"})
    finding = (await found(server))["memory"]
    assert (finding.level, finding.rule) == ("wrong", "memory")
    assert "of maxmemory 1,000" in finding.evidence[0]
    async with await RedisBackend.connect(server.url) as backend:
        assert "memory" in {one.rule for one in await Diagnosis(backend).why("orders")}


async def test_timeouts_that_hurt_are_told_of(start: Start) -> None:
    server = start(*WELL, "--timeout", "5", "--tcp-keepalive", "0")
    async with await RedisBackend.connect(server.url) as backend:
        findings = [one for one in await Diagnosis(backend).doctor() if one.rule == "timeouts"]
    assert [one.level for one in findings] == ["wrong", "note"]
    assert "CONFIG SET timeout 0" in findings[0].remedy
    with server.client() as admin:
        admin.config_set("timeout", 3600)
        admin.config_set("tcp-keepalive", 300)
    assert await found(server) == {}


async def test_what_cannot_be_asked_for_is_said(start: Start) -> None:
    server = start(*WELL)
    with server.client() as admin:
        admin.acl_setuser("default", commands=["-config"], enabled=True, nopass=True)
    finding = (await found(server))["settings"]
    assert finding.level == "note"
    assert "CONFIG GET was refused" in finding.evidence


MENDED = {
    "eviction": {"maxmemory": "100000000", "maxmemory-policy": "allkeys-lru"},
    "persistence": {"appendonly": "no"},
    "persistence, later": {"appendfsync": "no"},
    "memory": {"maxmemory": "500000"},
    "timeouts": {"timeout": "5"},
    "timeouts, later": {"tcp-keepalive": "0"},
    "replication": {"min-replicas-to-write": "1"},
}


def pasted(finding: Finding, typed: str = "") -> None:
    """Give a remedy to a shell, as it stands; Redis's client does for both. Where there is none to paste, what stands
    besides has a command. What is typed when it asks is given to it.
    """
    remedy = finding.remedy if "-cli " in finding.remedy else finding.besides.partition(": ")[2]
    line = remedy.replace("valkey-cli", "redis-cli", 1)
    done = subprocess.run(["sh", "-c", line], input=typed, capture_output=True, text=True, timeout=30, check=True)
    assert "ERR" not in done.stdout, done.stdout


@pytest.mark.needs("redis-cli", "sh")
@pytest.mark.parametrize("condition", MENDED)
async def test_the_setting_that_a_rule_says_mends_it_does(start: Start, condition: str) -> None:
    server, rule = start(*WELL), condition.partition(",")[0]
    with server.client() as admin:
        for name, value in MENDED[condition].items():
            admin.config_set(name, value)
    finding = (await found(server))[rule]
    assert " CONFIG SET " in finding.remedy + finding.besides
    pasted(finding)
    assert await found(server) == {}


@pytest.mark.needs("redis-cli", "sh")
async def test_a_limit_far_below_what_is_used_is_raised_above_it_at_once(start: Start) -> None:
    server = start(*WELL)
    with server.client() as admin:
        admin.set("large", bytes(40_000_000))
        admin.config_set("maxmemory", 1_000_000)
        pasted((await found(server))["memory"])
        admin.xadd("orders", {"payload": "{}"})
    assert await found(server) == {}


@pytest.mark.needs("redis-cli", "sh")
async def test_a_snapshot_is_taken_and_settings_are_asked_for_as_their_rules_say(start: Start) -> None:
    server = start("--save", "3600 1", "--appendonly", "yes")
    with server.client() as admin:
        await fail_a_snapshot(server, admin)
        pasted((await found(server))["disk"])
        await soon(lambda: admin.info("persistence")["rdb_last_bgsave_status"] == "ok")
        assert "disk" not in await found(server)
        admin.acl_setuser("default", commands=["-config"], enabled=True, nopass=True)
        pasted((await found(server))["settings"])
        assert "settings" not in await found(server)


@pytest.mark.needs("redis-cli", "sh")
async def test_a_remedy_reaches_the_server_as_the_same_user_and_tells_no_password(start: Start) -> None:
    server = start(*WELL, "--timeout", "5", tcp=True)
    with server.client() as admin:
        admin.acl_setuser("ann", enabled=True, passwords=["+s3cret"], keys=["*"], commands=["+@all"])
    url = f"redis://ann:s3cret@127.0.0.1:{server.port}/3"
    async with await RedisBackend.connect(url) as backend:
        (finding,) = [one for one in await Diagnosis(backend).doctor() if one.rule == "timeouts"]
        assert finding.remedy.endswith(
            f"-cli -h 127.0.0.1 -p {server.port} -n 3 --user ann --askpass CONFIG SET timeout 0"
        )
        assert "s3cret" not in str(finding)
        with server.client() as admin:
            admin.acl_setuser("default", enabled=False)
        pasted(finding, typed="s3cret\n")
        assert [one for one in await Diagnosis(backend).doctor() if one.rule == "timeouts"] == []


async def soon(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.01)


async def test_the_version_is_judged_by_what_is_known_of_it(start: Start) -> None:
    server = start(*WELL)
    async with await RedisBackend.connect(server.url) as backend:
        facts = await backend.server()
        findings = [one for one in await Diagnosis(backend).doctor() if one.rule == "version"]
    if facts.product == "valkey":
        assert facts.numbers >= (9, 1, 2)
        assert findings == []
    else:
        assert facts.numbers < (7, 2)
        (finding,) = findings
        assert any("CVE-2025-49844" in line for line in finding.evidence)
        assert f"lacks the security fixes of {len(finding.evidence)} releases" in finding.what  # some of several faults
        assert "upgrade to redis 8.10.1 or newer" not in finding.remedy
        assert "upgrade to redis 7.2.16 or newer" in finding.remedy
