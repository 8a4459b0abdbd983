"""Looking after groups: how they stand, what they lost, and where one that vanished must begin again."""

import asyncio
import secrets
from collections.abc import Mapping

from penstock.backend import keys
from penstock.backend.redis.links import Links
from penstock.backend.redis.reading import Reading
from penstock.backend.redis.scripts import load
from penstock.backend.redis.verbs import check_names
from penstock.backend.sighting import GroupSighting
from penstock.errors import GroupMissingError, ServerUnreachableError
from penstock.message.wire import Wire


class Sightings(Reading):
    """`watch` and `restore_group` of the Redis backend."""

    def __init__(self, links: Links, wire: Wire, wires: Mapping[str, Wire]) -> None:
        super().__init__(links, wire, wires)
        self._unanswered: dict[tuple[str, str], str] = {}

    async def watch(self, topic: str, group: str, known: GroupSighting | None = None) -> GroupSighting:
        check_names(topic, group)
        witness, of = (known.newest_id or "", known.epoch or "") if known is not None else ("", "")
        home = keys.home(topic)
        names = [topic, keys.groups(home), keys.paused(home)]
        # A look whose answer was lost has told its losses to nobody: with its token they are told again.
        token = self._unanswered.pop((topic, group), None) or secrets.token_hex(8)
        args = (group, keys.note_field(topic, group), token, keys.OWN_GROUP, witness, of)
        doing = f"cannot see how group {group!r} stands on {topic!r}"
        try:
            reply = await self._links.repeatable_script(doing, load("watch"), names, *args)
        except (ServerUnreachableError, asyncio.CancelledError):
            self._unanswered[topic, group] = token
            raise
        facts = {name.decode(): value.decode() for name, value in zip(reply[::2], reply[1::2], strict=True)}
        self._watched[topic, group] = "next" not in facts
        return _sighting(facts)

    async def restore_group(self, topic: str, group: str, known: GroupSighting | None = None) -> tuple[str, bool]:
        check_names(topic, group)
        home = keys.home(topic)
        names = [topic, keys.steals(home, group), keys.groups(home)]
        seen: tuple[str | int, ...] = ()
        if known is not None and known.epoch is not None and known.low_water is not None:
            count = "" if known.entries_read is None else known.entries_read
            last, deleted = known.last_delivered or "0-0", known.last_deleted or "0-0"
            seen = (known.epoch, known.low_water, int(known.is_low_held), last, count, deleted)
        args = (group, keys.note_field(topic, group), int(keys.may_create(topic)), keys.OWN_GROUP, *seen)
        doing = f"cannot restore group {group!r} on {topic!r}"
        try:
            start, held = await self._links.repeatable_script(doing, load("restore_group"), names, *args)
        except GroupMissingError:
            raise keys.refusal(topic) from None
        return start.decode(), bool(held)


def _sighting(facts: dict[str, str]) -> GroupSighting:
    first = facts.get("first")
    return GroupSighting(
        exists="epoch" in facts,
        group_exists="last" in facts,
        paused=facts["paused"] == "1",
        epoch=facts.get("epoch"),
        previous_epoch=facts.get("was_epoch"),
        first_id=first if first != "0-0" else None,
        last_id=facts.get("top"),
        newest_id=facts.get("newest"),
        last_deleted=facts.get("deleted"),
        entries_added=int(facts.get("added", 0)),
        length=int(facts.get("length", 0)),
        last_delivered=facts.get("last"),
        entries_read=_number(facts.get("read")),
        pending=int(facts.get("pending", 0)),
        low_water=facts.get("low"),
        is_low_held=facts.get("held") == "1",
        previous_low_water=facts.get("was_low"),
        previous_last_delivered=facts.get("was_last"),
        lag=_number(facts.get("lag")),
        lag_exact=facts.get("exact") == "1",
        missed=int(facts.get("missed", 0)),
        missed_since=facts.get("since"),
        deleted_unread=facts.get("unseen"),
        fell_back_to=facts.get("kept"),
        fell_back_from=facts.get("lost"),
    )


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)
