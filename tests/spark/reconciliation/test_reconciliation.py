"""Published = handled + dead, lake = published, dead table = dead letters, replay = what was asked, whoever is killed.

Producers, two groups with failing handlers, replays of dead letters, the archive, replays from the lake, and what
compacts it and drops old days, all at a time and in processes of their own, each of which is killed at steps of its
commit. The books are kept outside of all of them, and read back by DuckDB, pandas and Spark.
"""

import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import pytest

from penstock.message.ids import new_id
from tests.fault.journal import payload_of, sha_of
from tests.spark.gallows import Kill
from tests.spark.killing import LAKE_STEPS, LETTER_STEPS, SOURCE_STEPS
from tests.spark.reconciliation.books import SOURCE, Books, agree, proved_kills
from tests.spark.reconciliation.caring import CARE_STEPS
from tests.spark.reconciliation.readers import brought, by_duckdb, by_pandas, by_spark
from tests.spark.reconciliation.replaying import REPLAY_STEPS
from tests.spark.reconciliation.scene import Reconciliation
from tests.spark.reconciliation.worker import BUS_STEPS, REPAIRED
from tests.spark.size import SEED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

READ_STEPS = ("read-first", "read-middle", "read-last")
FATES = {"raise": 6, REPAIRED: 6, "flaky": 12}
PER_WAVE = 200
WAVES = 22
_MOST_TRIES = 4
Record = Callable[[str, object], None]


@pytest.mark.timeout(300)
async def test_the_books_agree_when_one_of_each_kind_was_killed(spark: "SparkSession", record_property: Record) -> None:
    wave = [
        Kill("commit-after", "driver", batch=1),
        Kill("read-middle", "worker"),
        Kill("handler-begun", "bus"),
        Kill("dead_letter-after", "bus"),
        Kill("commit-before", "server", batch=2),
        Kill("compact-commit-after", "compact"),
        Kill("drop-commit-after", "drop"),
    ]
    replay = [Kill("replay-written", "replay"), Kill("replay-write", "server")]
    counted = await reconcile(spark, [wave], [replay], record_property)
    assert counted == {"driver": 1, "worker": 1, "bus": 2, "server": 2, "replay": 1, "compact": 1, "drop": 1}


@pytest.mark.full
@pytest.mark.timeout(3600)
async def test_the_books_agree_whatever_was_killed_at_any_step(spark: "SparkSession", record_property: Record) -> None:
    dice = random.Random(SEED)
    at_driver = LAKE_STEPS + LETTER_STEPS + SOURCE_STEPS
    drivers, workers = each(dice, at_driver), each(dice, READ_STEPS)
    servers, more_servers = each(dice, at_driver), each(dice, BUS_STEPS)
    buses, sources = each(dice, BUS_STEPS), each(dice, ("latest", "plan", "settle"))
    cares = each(dice, CARE_STEPS)
    waves = [
        [
            Kill(drivers[wave], "driver"),
            Kill(workers[wave], "worker"),
            Kill("handler-begun", "bus"),  # what it leaves makes suspects, without whom some steps are never come to
            Kill(buses[wave], "bus"),
            Kill(servers[wave], "server"),
            Kill(more_servers[wave], "server"),
            *(Kill(f"{what}-{cares[wave]}", what) for what in ("compact", "drop")),
            *([Kill(sources[wave // 4], SOURCE)] if wave % 4 == 0 else []),
        ]
        for wave in range(WAVES)
    ]
    replays = [[Kill(step, "replay"), Kill(step, "server")] for step in REPLAY_STEPS]
    counted = await reconcile(spark, waves, replays, record_property)
    assert min(counted[victim] for victim in ("driver", "worker", "bus", "server", "compact", "drop")) >= 20


def each(dice: random.Random, steps: Sequence[str]) -> list[str]:
    """One for each wave: all of them, in any order, before any comes again."""
    chosen: list[str] = []
    while len(chosen) < WAVES:
        chosen += dice.sample(steps, k=len(steps))
    return chosen


async def reconcile(
    spark: "SparkSession", waves: Sequence[Sequence[Kill]], replays: Sequence[Sequence[Kill]], record: Record
) -> "dict[str, int]":
    async with Reconciliation() as scene:
        books = Books(scene, "billing", [])
        scene.work(2, group="billing", attempts=4)
        scene.work(1, group="mail", attempts=4, dedupe=True)
        archive, care = scene.archive(), scene.care()
        for wave in waves:
            books.repeated.append(await send_again_after_an_unknown_outcome(scene))
            scene.plan(wave)
            await one_wave(scene)
        for number, kills in enumerate(replays):
            scene.plan(kills)
            await replay_from_the_lake(scene, number)
        await scene.archived()
        await scene.end_of_archive(archive)
        await scene.end_of_care(care)
        await scene.dismissed()
        check(scene, spark, books, len(replays))
        return record_counts(scene, books, record)


async def one_wave(scene: Reconciliation) -> None:
    """Publish, handle, archive, and replay what is dead, until everybody was killed who was to be."""
    for _ in range(_MOST_TRIES):
        scene.produce(PER_WAVE, producers=1, fates=FATES, duplicates=0.1, pause=0.05)
        await scene.published()
        await scene.settled(within=300)
        await scene.archived()
        await scene.dead_letters_seen()
        await scene.dead_letters_replayed("billing")
        await scene.settled(within=300)
        await scene.archived()
        if not scene.still_planned():
            await scene.calm()
            return
    raise AssertionError(f"nobody came to {scene.still_planned()}")


async def send_again_after_an_unknown_outcome(scene: Reconciliation) -> str:
    """As a client that does not know us: the reply is lost, so it sends the message once more. Returns its id."""
    id = new_id()
    body = {"tag": id, "do": "ok", "for": 0.0}
    payload = payload_of(body)
    scene.journal.write("intent", tag=id, sha=sha_of(payload), do="ok", topic=scene.topic)
    before, words = scene.admin.xlen(scene.topic), ("XADD", scene.topic, "*", "id", id, "payload", payload)
    with scene.server.client() as client:
        wire = client.connection_pool.get_connection()
        wire.send_command(*words)
        await scene.until(lambda: scene.admin.xlen(scene.topic) > before, "that it is on the topic")
        wire.disconnect()
    entry: bytes = scene.admin.execute_command(*words)
    scene.journal.write("acked", tag=id, id=id, entry=entry.decode())
    return id


async def replay_from_the_lake(scene: Reconciliation, number: int) -> None:
    """All that were flaky to a topic of their own, and some that went well to one group alone."""
    flaky = {"topics": [scene.topic], "where": "payload->>'do' = 'flaky'"}
    await scene.replayed_from_lake(id=f"flaky {number}", to=f"{scene.topic}:{number}", selection=flaky)
    asked = {"ids": asked_of_one_group(scene.history().with_verdict("acked"), scene)}
    await scene.replayed_from_lake(id=f"some {number}", group="billing", selection=asked)
    await scene.settled(within=300)
    await scene.calm()
    assert scene.still_planned() == []


def asked_of_one_group(published: "set[str]", scene: Reconciliation) -> list[str]:
    intents = scene.history().intents
    return sorted(id for id in published if intents[id].do == "ok")[::5]


def check(scene: Reconciliation, spark: "SparkSession", books: Books, replays: int) -> None:
    books.check_server()
    books.check_repeated()
    books.check_brought(brought(scene.directory, scene.lake))
    found = {"duckdb": by_duckdb(scene.lake), "pandas": by_pandas(scene.lake), "spark": by_spark(spark, scene.lake)}
    for reader, contents in found.items():
        books.check_lake(reader, contents)
    for number in range(replays):
        agree(f"replay {number}", scene.ids_on(f"{scene.topic}:{number}").elements(), books.of_fate("flaky"))
        seen = books.replays_seen(f"some {number}")
        agree(f"replay {number} to one group", seen["billing"], asked_of_one_group(books.published, scene))
        agree(f"replay {number} to other groups", seen["mail"], ())


def record_counts(scene: Reconciliation, books: Books, record: Record) -> "dict[str, int]":
    proved = proved_kills(scene)
    counted = {victim: steps.total() for victim, steps in proved.items()}
    for victim, steps in sorted(proved.items()):
        record(f"{victim} killed", f"{steps.total()} at {len(steps)} steps")
    record("published", len(books.published))
    record("dead letters", len(scene.letters))
    return counted
