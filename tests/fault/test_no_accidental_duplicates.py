"""A message is one entry, however often its publisher has to try and however the id is spelt."""

from collections.abc import Callable

import pytest

from penstock.backend.redis.scripts import load
from penstock.errors import PenstockError
from tests.fault.closing import audit
from tests.fault.endpoints import open_publisher
from tests.fault.evidence import events, refused
from tests.fault.foreign import add
from tests.fault.journal import payload_of, sha_of
from tests.fault.rows import row
from tests.fault.scene import Scene
from tests.fault.setup import ProducerSetup
from tests.fault.size import DUPLICATES, MIX


@pytest.mark.parametrize("many", [0, 20], ids=["one by one", "many at once"])
@row("F14 replies to a plain publish lost")
async def test_a_plain_publish_whose_reply_is_lost_is_not_sent_again(scene: Scene, many: int) -> None:
    network = await scene.connect_through_network()
    scene.work()
    network.lose_replies("XADD", every=4 if many else 10)
    scene.produce(fates=MIX, once=False, many=many)
    await scene.published()
    network.heal()
    verdict = await audit(scene)
    scene.prove("replies dropped", network.hit["dropped"])
    scene.prove("publishes nobody knows about", verdict.unknown)
    assert refused(scene, "PublishUnknownError") == verdict.unknown


@row("F14 replies to a publish with an id lost")
async def test_a_publish_with_an_id_is_repeated_until_its_answer_comes_and_stored_once(scene: Scene) -> None:
    network = await scene.connect_through_network()
    scene.work()
    network.lose_replies(load("publish_once").sha, every=3)
    scene.produce(fates=MIX, duplicates=3 * DUPLICATES)
    await scene.published()
    network.heal()
    verdict = await audit(scene)
    scene.prove("replies dropped", network.hit["dropped"])
    assert verdict.acked == verdict.intended


@row("P3 the same message twice on the stream")
async def test_with_dedupe_a_message_that_is_there_twice_is_handled_once(scene: Scene) -> None:
    scene.work(dedupe=True)
    scene.produce(fates={"slow": 5}, seconds=0.3)
    await scene.published()
    stored = scene.admin.xrange(scene.topic)
    for _, fields in stored:
        add(scene, fields)
    await audit(scene, copies=True)
    scene.prove("copies on the stream", len(stored))
    scene.prove("deliveries that were skipped", len(events(scene, "Skipped")))


SPELLINGS: dict[str, Callable[[str], str]] = {
    "upper case": str.upper,
    "braces": "{{{}}}".format,
    "urn": "urn:uuid:{}".format,
    "no dashes": lambda text: text.replace("-", ""),
}


@row("F30 the same id in other spellings")
async def test_the_same_id_in_another_spelling_is_the_same_message_or_is_refused(scene: Scene) -> None:
    scene.work(1)
    scene.produce(20, producers=1)
    await scene.published()
    first = scene.lines("acked")[0]
    body = {"tag": first.tag, "do": "ok", "for": 0.0, "again": True}
    assert sha_of(payload_of(body)) != scene.history().intents[first.tag].sha, "what is taken would be noticed"
    outcomes: dict[str, list[str]] = {name: [] for name in SPELLINGS}
    async with open_publisher(scene.url, ProducerSetup(str(scene.directory), scene.topic, 1, 1)) as bus:
        for name, spell in [*SPELLINGS.items()] * 3:
            try:
                receipt = await bus.publish(body, id=spell(first.id), once=True)
            except PenstockError:
                outcomes[name].append("refused")
            else:
                outcomes[name].append("the same")
                assert (receipt.id, receipt.entry_id) == (first.id, first.entry)
    await audit(scene)
    scene.prove("publishes in another spelling", sum(map(len, outcomes.values())))
    expected = {name: ["the same" if name == "upper case" else "refused"] * 3 for name in SPELLINGS}
    assert outcomes == expected
