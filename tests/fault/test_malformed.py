"""What cannot be read goes to the dead letters with all its bytes and a reason, and stops nobody."""

import zlib

import pytest

from tests.fault.checker import Verdict
from tests.fault.closing import audit, look
from tests.fault.evidence import events, refused
from tests.fault.foreign import add_malformed, add_welcome
from tests.fault.rows import row
from tests.fault.scene import Scene
from tests.fault.size import DUPLICATES, FULL, MIX

MIB = 1024 * 1024

MALFORMED = {
    "no payload": [b"id", b"6b1d4ad4-6a3e-4e8f-8d0c-2b7a6a3ef001"],
    "junk": [b"junk", b"\xff\xfe"],
    "empty payload": [b"payload", b""],
    "not UTF-8": [b"payload", b'{"tag":"\xff"}'],
    "another version": [b"penstock", b"99", b"payload", b"{}"],
    "a thousand fields": [part for n in range(1000) for part in (b"f%d" % n, b"v")] + [b"payload", b"{}"],
    "a field twice": [b"payload", b"[", b"payload", b"]"],
    "bad headers": [b"headers", b"[1]", b"payload", b"{}"],
    "bad time": [b"time", b"yesterday", b"payload", b"{}"],
    "type not UTF-8": [b"type", b"\xff", b"payload", b"{}"],
    "unknown content type": [b"headers", b'{"content-type":"application/x-pickle"}', b"payload", b"cos\nsystem\n."],
}
WELCOME = {
    "no id": (),
    "an id that is no UUID": (b"id", b"order 66"),
    "an id in braces": (b"id", b"{6b1d4ad4-6a3e-4e8f-8d0c-2b7a6a3ef002}"),
    "unknown fields": (b"colour", b"blue", b"\xff", b"\xff"),
}


@row("F26 malformed entries")
async def test_foreign_entries_that_cannot_be_read_stop_nobody(scene: Scene) -> None:
    workers = scene.work()
    scene.produce(fates=MIX, duplicates=DUPLICATES)
    await scene.ready()
    for name, fields in MALFORMED.items():
        add_malformed(scene, name, fields)
    for name, extra in WELCOME.items():
        add_welcome(scene, name, *extra)
    scene.prove("malformed entries", await buried(scene, MALFORMED))
    assert [worker.code for worker in workers] == [0] * len(workers)


async def buried(scene: Scene, planted: dict[str, list[bytes]], **changes: int) -> int:
    """Ends the row; the number of planted entries that are in the dead letters, each with a reason."""
    verdict: Verdict = await audit(scene, **changes)
    tags = scene.history().tag_of_entry
    reasons = {tags[letter.entry]: letter.reason for letter in look(scene).dead}
    assert planted.keys() <= reasons.keys(), verdict
    assert all(reasons[name].strip() for name in planted)
    assert not {line.tag for line in scene.lines("start")} & planted.keys()
    return len(planted)


def bombs() -> dict[str, list[bytes]]:
    deep = 100_000
    return {
        "deep arrays": [b"payload", b"[" * deep + b"]" * deep],
        "deep objects": [b"payload", b'{"a":' * deep + b"1" + b"}" * deep],
        "unclosed": [b"payload", b"[" * deep],
        "five thousand digits": [b"payload", b"9" * 5000],
        "NaN": [b"payload", b"NaN"],
        "infinity": [b"payload", b'{"x":-Infinity}'],
        "lone surrogate": [b"payload", b'{"x":"\\ud800"}'],
        "a key twice": [b"payload", b'{"tag":"a","tag":"b"}'],
        "compressed": [b"payload", zlib.compress(b"0" * 10 * MIB, 9)],
        "a megabyte of quotes": [b"payload", b'"' * MIB],
        "trailing bytes": [b"payload", b"{} {}"],
        "a huge exponent": [b"payload", b"1e999999999"],
        "deep headers": [b"headers", b"[" * 1000, b"payload", b"{}"],
    }


@row("F27 payload bombs")
async def test_payloads_made_to_hurt_are_buried_in_bounded_time_and_memory(scene: Scene) -> None:
    workers = scene.work()
    scene.produce(fates=MIX, duplicates=DUPLICATES)
    await scene.ready()
    for name, fields in bombs().items():
        add_malformed(scene, name, fields)
    scene.prove("payload bombs", await buried(scene, bombs(), most_rss=150 * MIB))
    assert [worker.code for worker in workers] == [0] * len(workers)


@row("F28 huge payloads")
async def test_huge_payloads_are_refused_by_publish_and_buried_by_workers(scene: Scene) -> None:
    size = (64 if FULL else 8) * MIB
    # Moving such an entry takes a second or more; with a lease as short as elsewhere here, one worker after the other
    # would take it over on its way.
    scene.work(lease=20.0 if FULL else 2.0)
    scene.produce(fates=MIX, duplicates=DUPLICATES)
    scene.produce(8, producers=1, pad=MIB)
    planted = {f"{size // MIB} MiB, {n}": [b"payload", b'"' + b"x" * size + b'"'] for n in range(2)}
    await scene.ready()
    for name, fields in planted.items():
        add_malformed(scene, name, fields)
    await scene.published()
    scene.prove("publishes that were refused", refused(scene, "EncodeError"))
    assert refused(scene, "EncodeError") == 8, "each is refused once, and not tried again"
    # Both may come in one read: each in the reader's buffer, which doubles, as bytes, as a request, and on its way out.
    scene.prove("huge entries", await buried(scene, planted, most_rss=80 * MIB + 10 * size))
    # Connections may wait too long for a server that copies it, which is no refusal, and ends with the copying.
    troubles = [str(line.facts) for line in events(scene, "Trouble")]
    refusals = [facts for facts in troubles if "lost the connection" not in facts]
    assert len(refusals) < 30, "what is too large is not tried again and again"
    assert len(troubles) < 100, "nor does moving it cost one connection after the other"


@pytest.mark.parametrize("size", [MIB - 1024])
@row("F29 large batch replies")
async def test_a_backlog_of_large_messages_is_read_in_bounded_pieces(scene: Scene, size: int) -> None:
    """All of it in one reply would be more than a worker may use."""
    messages = 160 if FULL else 64
    scene.produce(messages, producers=1, pad=size, abreast=2)
    await scene.published()
    scene.work(2, concurrency=100)
    await audit(scene, most_rss=160 * MIB)
    scene.prove("mebibytes of backlog", messages * size // MIB)
