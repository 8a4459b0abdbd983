"""Does a server hold exactly what the model holds, and has every message exactly one place?"""

from collections import Counter

import redis

from penstock.backend import keys
from penstock.backend.parcel import split_dead, split_record, unpack_fields
from tests.support.model import Item, Model, order

Places = dict[str, Counter[str]]
"""For each group, how many places each message was found in."""


def compare(model: Model, admin: "redis.Redis") -> None:
    """Raises AssertionError at the first difference."""
    places: Places = {group: Counter([*model.done[group], *model.destroyed[group]]) for group in model.groups}
    for name in model.streams:
        _compare_stream(model, admin, name, places)
    for group in model.groups:
        _compare_parked(model, admin, group, places)
    _compare_dead(model, admin, places)
    for group in model.groups:
        everything = Counter(list(model.streams[model.topic].ever))
        assert places[group] == everything, (group, places[group] - everything, everything - places[group])


def _compare_stream(model: Model, admin: "redis.Redis", name: str, places: Places) -> None:
    stream = model.streams[name]
    stored = {raw.decode(): flat(fields) for raw, fields in admin.xrange(name)}
    last = {row["name"].decode(): row["last-delivered-id"].decode() for row in admin.xinfo_groups(name)}
    for group, expected in stream.groups.items():
        assert last[group] == expected.last, (name, group)
        rows = admin.xpending_range(name, group, "-", "+", 10_000)
        owners = {row["message_id"].decode(): row["consumer"].decode() for row in rows}
        assert owners == {entry_id: lease.owner for entry_id, lease in expected.pending.items()}, (name, group)
        unread = [entry_id for entry_id in stored if order(entry_id) > order(last[group])]
        assert unread == stream.unread(group), (name, group)
        places[group].update(stream.ever[entry_id].origin for entry_id in [*owners, *unread])
    live = dict(model.live(name))
    if name == model.topic:
        assert stored == {entry_id: list(item.raw) for entry_id, item in live.items()}
    else:
        assert set(stored) - set(live) <= model.left_behind, "settled, but still in the retry stream"
        assert {entry_id: parked_item(stored[entry_id]) for entry_id in live if entry_id in stored} == live


def _compare_parked(model: Model, admin: "redis.Redis", group: str, places: Places) -> None:
    parcels = admin.zrange(keys.parked(model.topic, group), 0, -1)
    found = [parked_item(unpack_fields(parcel)) for parcel in parcels]
    assert Counter(found) == Counter(item for item, _ in model.parked[group]), group
    places[group].update(item.origin for item in found)


def _compare_dead(model: Model, admin: "redis.Redis", places: Places) -> None:
    letters = [split_dead(flat(fields)) for _, fields in admin.xrange(keys.dead(model.topic))]
    assert len(letters) == len(model.dead)
    for (record, raw), letter in zip(letters, model.dead, strict=True):
        said = (record.topic, record.group, record.entry, record.attempts, tuple(raw), record.lost)
        assert said == (model.topic, letter.group, letter.entry, letter.attempts, letter.raw, letter.lost)
        places[letter.group][letter.origin] += 1


def flat(fields: "dict[bytes, bytes]") -> list[bytes]:
    return [part for pair in fields.items() for part in pair]


def parked_item(raw: list[bytes]) -> Item:
    """The delivery that a parked parcel, or an entry of a retry stream, stands for."""
    fields, record = split_record(raw)
    assert record is not None
    return Item(record.entry, tuple(fields), attempt=record.attempt, first=record.first)
