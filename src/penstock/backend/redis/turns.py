"""Sequential reading: one holder at a time, and a position that only it can move."""

from datetime import timedelta

from penstock.backend import keys
from penstock.backend.facts import position
from penstock.backend.redis.scripts import load
from penstock.backend.redis.verbs import Verbs, check_names, entry_id, milliseconds, whole_number
from penstock.errors import AckOutOfSequenceError, ConfigurationError, LeaseLostError


class Turns(Verbs):
    """`take_turn`, `leave_turn` and `advance` of the Redis backend."""

    async def take_turn(self, topic: str, reader: str, holder: str, lease: timedelta) -> int | timedelta:
        check_names(topic, reader)
        keys.check_name("holder", holder)
        lease_ms = milliseconds("lease", lease, least=1)
        doing = f"cannot take the turn of reader {reader!r} on {topic!r}"
        granted, value = await self._links.script(
            doing, load("take_turn"), [keys.turn(topic, reader)], holder, lease_ms
        )
        return int(value) if granted else timedelta(milliseconds=value)

    async def leave_turn(self, topic: str, reader: str, token: int) -> bool:
        check_names(topic, reader)
        whole_number("token", token)
        doing = f"cannot leave the turn of reader {reader!r} on {topic!r}"
        return bool(await self._links.script(doing, load("leave_turn"), [keys.turn(topic, reader)], token))

    async def advance(self, topic: str, reader: str, token: int, *, expected: str, to: str, entries: int = 1) -> None:
        check_names(topic, reader)
        whole_number("token", token)
        whole_number("entries", entries)
        expected, to = entry_id("the expected position", expected), entry_id("the new position", to)
        if position(to) <= position(expected):
            raise ConfigurationError(
                f"reader {reader!r} of {topic!r} can only move forward, not from {expected} to {to}"
            )
        names = [topic, keys.turn(topic, reader)]
        doing = f"cannot advance reader {reader!r} of {topic!r}"
        verdict, value = await self._links.script(doing, load("advance"), names, reader, token, expected, to, entries)
        if verdict == b"lost":
            raise LeaseLostError(
                f"reader {reader!r} of topic {topic!r} has another holder now (token {value.decode() or 'none'}, ours"
                f" was {token}): {to} was not acknowledged, and will be delivered to the new holder"
            )
        if verdict == b"elsewhere":
            raise AckOutOfSequenceError(topic, reader, expected, value.decode())
