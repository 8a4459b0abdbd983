"""Rules on the server: whether it keeps what it acknowledged, and whether it takes any more."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from penstock.backend.evidence import ServerFacts
from penstock.diagnosis.advisories import AS_OF, KNOWN
from penstock.diagnosis.finding import Finding, amount, client_command, command

Rule = Callable[[ServerFacts], Iterator[Finding]]

_finding = partial(Finding.of, "server")

_RENEWAL_SECONDS = 10
_NEARLY_FULL = 0.9
_FULL = 0.98
_TO_LAST = "to last, in its configuration file too, or by CONFIG REWRITE"
_WITH_ROOM = "once its disk has room; its log says what was wrong"


def eviction(server: ServerFacts) -> Iterator[Finding]:
    """A server that evicts deletes whole topics with their groups, or what is remembered against duplicates."""
    if server.policy in ("noeviction", ""):
        return
    evicts = "any key, whole topics with their groups among them" if server.policy.startswith("allkeys") else (
        "keys that expire: what is remembered against duplicates, and the records of jobs"
    )  # fmt: skip
    limit = f"maxmemory {server.maxmemory:,}" if server.maxmemory else "no maxmemory, so none is evicted yet"
    yield _finding(
        "eviction",
        f"the server evicts {evicts}",
        f"maxmemory-policy {server.policy}, {limit}, {server.evicted:,} keys evicted since it started",
        remedy=_set(server, "maxmemory-policy", "noeviction"),
        besides=_TO_LAST,
        level="wrong" if server.maxmemory or server.evicted else "note",
    )


def persistence(server: ServerFacts) -> Iterator[Finding]:
    """What was acknowledged is lost with the process, or with the last minutes of it."""
    snapshots = "" if server.snapshots is None else f", save {server.snapshots!r}"
    if not server.appends:
        lost = "everything" if server.snapshots == "" else "everything since the last snapshot"
        yield _finding(
            "persistence",
            f"a crash loses {lost}, though it was acknowledged",
            f"appendonly no{snapshots}",
            remedy=_set(server, "appendonly", "yes"),
            besides=_TO_LAST,
        )
    elif server.fsync == "no":
        yield _finding(
            "persistence",
            "a power failure loses what the system had not written to the disk by itself, about half a minute",
            "appendonly yes, appendfsync no",
            remedy=_set(server, "appendfsync", "everysec"),
            besides=_TO_LAST,
            level="note",
        )


def disk(server: ServerFacts) -> Iterator[Finding]:
    """The disk refuses: the server then refuses writes as well."""
    if not server.append_ok:
        yield _finding(
            "disk",
            "the server cannot write its append-only file, and refuses every change until it can",
            "INFO persistence: aof_last_write_status err",
            remedy="give the server's disk room, and see its log for the reason: it goes on by itself",
            refuses_writes=True,
        )
    if not server.rewrite_ok:
        yield _finding(
            "disk",
            "the append-only file could not be rewritten, and grows: changes are taken as long as the disk takes them",
            "INFO persistence: aof_last_bgrewrite_status err",
            remedy=client_command(server, "BGREWRITEAOF"),
            besides=_WITH_ROOM,
            level="note",
        )
    if not server.snapshot_ok:
        stops = server.stops_without_snapshot
        # Where none is taken by itself, one that was asked for and failed stops nothing.
        refuses = stops is not False and server.snapshots != ""
        then = f", and the server {'refuses' if stops else 'may refuse'} every change until one succeeds"
        yield _finding(
            "disk",
            "the last snapshot failed" + (then if refuses else ""),
            f"INFO persistence: rdb_last_bgsave_status err; stop-writes-on-bgsave-error {_yes_or_no(stops)}",
            remedy=client_command(server, "BGSAVE"),
            besides=_WITH_ROOM,
            refuses_writes=refuses,
        )


def memory(server: ServerFacts) -> Iterator[Finding]:
    """At its limit, the server refuses to be given more; settling still works.

    One that refuses what is larger than the room that is left stays below its limit, so it is also known by its own
    count of what it has refused. That is never set back, so it counts only where hardly any room is left.
    """
    used, most = server.used_memory, server.maxmemory
    if not most or used < _NEARLY_FULL * most:
        return
    evicts = server.policy.startswith("allkeys")
    if used >= most and server.policy == "noeviction":
        what = "the server is full and refuses to store more; settling still works"
    elif used >= _FULL * most and server.refused and not evicts:
        what = "the server has hardly any room left, and has refused to store more; settling still works"
    else:
        what = ""
    refused = f"{amount(server.refused, 'command')} refused for lack of memory since it started, by INFO errorstats"
    room = command("topic", "trim", "TOPIC", "--keep", "0s", "--yes")
    yield _finding(
        "memory",
        what or "the server is nearly full",
        f"used_memory {used:,} of maxmemory {most:,}",
        *([refused] if server.refused else ()),
        # What is used may be far above the limit, if that was lowered.
        remedy=_set(server, "maxmemory", str(2 * max(used, most))),
        besides=f"if its machine has as much; {_TO_LAST}; room at once, where every group has settled what is there:"
        f" {room}; how long topics are, and what holds them back: {command('ls')}",
        level="wrong" if what else "note",
        refuses_writes=bool(what),
    )


def timeouts(server: ServerFacts) -> Iterator[Finding]:
    """Blocked readers are spared by the server's timeout; the connection that renews leases is not."""
    if server.idle_seconds and server.idle_seconds <= _RENEWAL_SECONDS:
        yield _finding(
            "timeouts",
            "the server closes connections between two renewals of a lease: each renewal has to connect anew",
            f"timeout {server.idle_seconds} s; leases are renewed every {_RENEWAL_SECONDS} s",
            remedy=_set(server, "timeout", "0"),
            besides=_TO_LAST,
        )
    if server.keepalive_seconds == 0:
        yield _finding(
            "timeouts",
            "the server never notices that a blocked reader's machine is gone, and may hand entries to it",
            "tcp-keepalive 0",
            remedy=_set(server, "tcp-keepalive", "300"),
            besides=_TO_LAST,
            level="note",
        )


def replication(server: ServerFacts) -> Iterator[Finding]:
    """What a failover would lose, and whether we talk to the right server at all."""
    if server.is_replica:
        yield _finding(
            "replication",
            "this server is a replica: it takes no changes" + ("" if server.link_up else ", and has lost its primary"),
            f"role replica, link {'up' if server.link_up else 'down'}",
            remedy="connect to the primary: give its address with --url",
            refuses_writes=True,
        )
    elif server.replicas and server.min_replicas == 0:
        yield _finding(
            "replication",
            "a failover may lose what no replica has yet, though it was acknowledged",
            f"{amount(server.replicas, 'connected replica')}, min-replicas-to-write 0",
            remedy=_set(server, "min-replicas-to-write", "1"),
            besides=f"{_TO_LAST}; while no replica is in time, it then refuses every change; or publish with"
            " replicated(1) what must not be lost",
            level="note",
        )
    elif server.good_replicas is not None and server.good_replicas < (server.min_replicas or 1):
        least = "unknown" if server.min_replicas is None else server.min_replicas
        yield _finding(
            "replication",
            "too few replicas answer in time: the server refuses every change",
            f"{amount(server.replicas, 'connected replica')}, {server.good_replicas} of them in time,"
            f" min-replicas-to-write {least}",
            remedy="start the replicas, or see why those that are connected lag",
            besides=f"to go on without: {_set(server, 'min-replicas-to-write', '0')}",
            refuses_writes=True,
        )


def cluster(server: ServerFacts) -> Iterator[Finding]:
    """How many nodes there are is not asked: where this is the only one, all is well."""
    if server.is_cluster:
        yield _finding(
            "cluster",
            "this server is a node of a cluster: an app speaks to it alone, and what lies on another node is an error",
            "cluster_enabled 1",
            remedy="if there are other nodes, spread topics over several servers that are no cluster",
            level="note",
        )


def version(server: ServerFacts) -> Iterator[Finding]:
    """Faults that are known and mended in newer releases."""
    open_ones = [one for one in KNOWN.get(server.product, ()) if one.concerns(server.numbers)]
    if open_ones:
        newest = max(one.fix_for(server.numbers) for one in open_ones)
        yield _finding(
            "version",
            f"{server.product} {server.version} lacks the security fixes of {amount(len(open_ones), 'release')}"
            f" (list of {AS_OF}; your distribution may have brought them under this number)",
            *(f"{one.names}: {one.what}" for one in open_ones),
            remedy=f"upgrade to {server.product} {'.'.join(map(str, newest))} or newer",
        )


def settings(server: ServerFacts) -> Iterator[Finding]:
    """What could not be looked at is said, so that nobody takes silence for health."""
    if server.idle_seconds is None:
        user = server.address.username if server.address else "USER"
        allow = client_command(server, "ACL", "SETUSER", user or "default", "+config|get", login=False)
        yield _finding(
            "settings",
            "this user may not ask for the server's settings: persistence, timeouts and replicas are judged in part",
            "CONFIG GET was refused",
            remedy=allow,
            besides="as an administrator; or look there by hand",
            level="note",
        )


RULES: Sequence[Rule] = (eviction, persistence, disk, memory, timeouts, replication, cluster, version, settings)


def _set(server: ServerFacts, name: str, value: str) -> str:
    return client_command(server, "CONFIG", "SET", name, value)


def _yes_or_no(value: bool | None) -> str:
    return "unknown" if value is None else "yes" if value else "no"
