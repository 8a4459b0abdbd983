"""What the rules on the server find where it is not alone: replicas that are too few or too slow, and clusters."""

import os
import signal
from collections.abc import Callable

import pytest
import redis

from tests.flows.test_diagnosis_server import WELL, Start, found, reasons, soon, start
from tests.support.servers import Server, cluster_of_one, redis_binary, valkey_binary

__all__ = ["start"]


async def replicated(start: Start) -> tuple[Server, Server]:
    """A primary, and a replica of it that has caught up."""
    primary = start(*WELL, tcp=True)
    replica = start(*WELL, "--replicaof", "127.0.0.1", str(primary.port), tcp=True)
    with primary.client() as admin, replica.client() as other:
        await soon(lambda: admin.info("replication")["connected_slaves"] and other.info()["master_link_status"] == "up")
    return primary, replica


async def test_replicas_and_what_a_failover_loses_are_told_of(start: Start) -> None:
    primary, replica = await replicated(start)
    with primary.client() as admin, replica.client() as other:
        assert (await found(primary))["replication"].level == "note"
        assert await reasons(primary) == {}, "what a failover may lose keeps nothing back"
        assert "this server is a replica" in (await found(replica))["replication"].what
        assert set(await reasons(replica)) == {"replication"}
        admin.config_set("min-replicas-to-write", 1)
        assert await found(primary) == {}
        admin.config_set("min-replicas-to-write", 2)
        assert "too few replicas" in (await found(primary))["replication"].what
        primary.kill()
        await soon(lambda: other.info("replication")["master_link_status"] != "up")
        assert "has lost its primary" in (await found(replica))["replication"].what


async def test_a_replica_that_is_connected_and_stands_still_is_one_too_few(start: Start) -> None:
    primary, replica = await replicated(start)
    with primary.client() as admin:
        admin.config_set("min-replicas-max-lag", 1)
        admin.config_set("min-replicas-to-write", 1)
        await soon(lambda: admin.info("replication")["min_slaves_good_slaves"] == 1)
        assert await reasons(primary) == {}
        os.kill(replica.pid, signal.SIGSTOP)
        await soon(lambda: admin.info("replication")["min_slaves_good_slaves"] == 0)
        with pytest.raises(redis.exceptions.RedisError, match="NOREPLICAS"):
            admin.xadd("orders", {"payload": "{}"})
        finding = (await reasons(primary))["replication"]
        assert finding.evidence == ("1 connected replica, 0 of them in time, min-replicas-to-write 1",)
        admin.acl_setuser("default", commands=["-config"], enabled=True, nopass=True)
        assert "too few replicas" in (await reasons(primary))["replication"].what
        admin.acl_setuser("default", commands=["+config"], enabled=True, nopass=True)
        admin.config_set("min-replicas-max-lag", 0)  # then it does not mind how many there are
        admin.xadd("orders", {"payload": "{}"})
        assert "replication" not in await found(primary)


@pytest.mark.parametrize("binary", [valkey_binary, redis_binary])
async def test_a_node_of_a_cluster_is_told_of_and_keeps_nothing_back(binary: Callable[[], str | None]) -> None:
    program = binary()
    assert program is not None
    with cluster_of_one(program) as node:
        finding = (await found(node))["cluster"]
        assert await reasons(node) == {}
    assert (finding.level, finding.evidence) == ("note", ("cluster_enabled 1",))
