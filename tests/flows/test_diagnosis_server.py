"""Each rule on the server finds what it is for on one that was made so, and nothing on one that is well set up."""

import resource
import shutil
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
        shutil.rmtree(server.directory)


async def found(server: Server) -> dict[str, Finding]:
    """By rule; the version is what it is, and looked at by itself."""
    async with await RedisBackend.connect(server.url) as backend:
        findings = await Diagnosis(backend).doctor()
    assert {one.rule for one in findings} <= set(DOCTORS)
    return {one.rule: one for one in findings if one.rule != "version"}


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
    assert "-cli CONFIG SET maxmemory-policy noeviction" in finding.remedy


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
    deadline = time.monotonic() + 10
    while admin.info("persistence")["aof_last_write_status"] == "ok":
        assert time.monotonic() < deadline
        try:
            admin.xadd("orders", {"payload": "{}"})
        except redis.exceptions.RedisError:
            time.sleep(0.01)


async def test_a_snapshot_that_failed_is_told_of(start: Start) -> None:
    server = start("--save", "3600 1", "--appendonly", "yes", "--stop-writes-on-bgsave-error", "yes")
    with server.client() as admin:
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
        admin.bgsave()
        deadline = time.monotonic() + 10
        while admin.info("persistence")["rdb_last_bgsave_status"] == "ok":
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finding = (await found(server))["disk"]
    assert "the last snapshot failed, and the server refuses every change" in finding.what
    assert finding.remedy.endswith("-cli BGSAVE")


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


async def test_replicas_and_what_a_failover_loses_are_told_of(start: Start) -> None:
    primary = start(*WELL, tcp=True)
    replica = start(*WELL, "--replicaof", "127.0.0.1", str(primary.port), tcp=True)
    with primary.client() as admin, replica.client() as other:
        deadline = time.monotonic() + 15
        while not (admin.info("replication")["connected_slaves"] and other.info()["master_link_status"] == "up"):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert (await found(primary))["replication"].level == "note"
        assert "this server is a replica" in (await found(replica))["replication"].what
        admin.config_set("min-replicas-to-write", 1)
        assert await found(primary) == {}
        admin.config_set("min-replicas-to-write", 2)
        assert "too few replicas" in (await found(primary))["replication"].what
        primary.kill()
        while other.info("replication")["master_link_status"] == "up":
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert "has lost its primary" in (await found(replica))["replication"].what


async def test_what_cannot_be_asked_for_is_said(start: Start) -> None:
    server = start(*WELL)
    with server.client() as admin:
        admin.acl_setuser("default", commands=["-config"], enabled=True, nopass=True)
    finding = (await found(server))["settings"]
    assert finding.level == "note"
    assert "CONFIG GET was refused" in finding.evidence


async def test_the_version_is_judged_by_what_is_known_of_it(start: Start) -> None:
    server = start(*WELL)
    async with await RedisBackend.connect(server.url) as backend:
        facts = await backend.server()
        findings = [one for one in await Diagnosis(backend).doctor() if one.rule == "version"]
    if facts.product == "valkey":
        assert facts.numbers >= (9, 1, 1)
        assert findings == []
    else:
        assert facts.numbers < (7, 2)
        (finding,) = findings
        assert any("CVE-2025-49844" in line for line in finding.evidence)
        assert "upgrade to redis 8.10.1 or newer" not in finding.remedy
        assert "upgrade to redis 7.2.16 or newer" in finding.remedy
