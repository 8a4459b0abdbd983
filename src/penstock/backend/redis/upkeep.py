"""Groups, consumers and trimming."""

import re

import hiredis

from penstock.backend import keys
from penstock.backend.entry import Trimmed
from penstock.backend.redis.failures import failure
from penstock.backend.redis.link import pack
from penstock.backend.redis.links import COMMAND_SECONDS
from penstock.backend.redis.reading import Reading
from penstock.backend.redis.scripts import load
from penstock.backend.redis.verbs import check_names, whole_number
from penstock.errors import ConfigurationError, GroupMissingError

_ENTRY_ID = re.compile(r"\d{1,20}(-\d{1,20})?")


class Upkeep(Reading):
    """`create_group`, `forget_consumer` and `trim` of the Redis backend."""

    async def create_group(self, stream: str, group: str, start_id: str = "0") -> bool:
        check_names(stream, group)
        if start_id != "$" and not _ENTRY_ID.fullmatch(start_id):
            raise ConfigurationError(
                f"a group starts at '0', at '$' or behind an entry id such as '1700000000000-0', not at {start_id!r}"
            )
        create = ("MKSTREAM",) if keys.may_create(stream) else ()
        link = await self._links.shared()
        reply = await link.call(pack("XGROUP", "CREATE", stream, group, start_id, *create), within=COMMAND_SECONDS)
        if not isinstance(reply, hiredis.ReplyError):
            return True
        if str(reply).startswith("BUSYGROUP"):
            return False
        error = failure(reply, f"cannot create group {group!r} on {stream!r}")
        raise keys.refusal(stream) if isinstance(error, GroupMissingError) else error

    async def forget_consumer(self, stream: str, group: str, consumer: str) -> bool:
        check_names(stream, group, consumer)
        seat = self._seats.pop((stream, group, consumer), None)
        if seat is not None:
            seat.close()
        names = [stream, keys.steals(keys.home(stream), group)]
        try:
            doing = f"cannot remove consumer {consumer!r} of group {group!r} on {stream!r}"
            return bool(await self._links.script(doing, load("forget"), names, group, consumer))
        except GroupMissingError:
            return True

    async def trim(self, topic: str, floor: str, limit: int = 1000) -> Trimmed:
        keys.check_topic(topic)
        whole_number("limit", limit)
        if not _ENTRY_ID.fullmatch(floor):
            raise ConfigurationError(f"the floor of a trim is an entry id such as '1700000000000-0', not {floor!r}")
        floor = floor if "-" in floor else f"{floor}-0"
        names = [topic, keys.cursors(topic)]
        horizon, pin, removed = await self._links.script(f"cannot trim {topic!r}", load("trim"), names, floor, limit)
        return Trimmed(removed, horizon.decode(), pin.decode() or None)
