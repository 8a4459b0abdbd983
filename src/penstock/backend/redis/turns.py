"""Sequential reading: one holder at a time, and a position that only it can move."""

import secrets
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import lru_cache

from penstock.backend import keys
from penstock.backend.entry import DeadLetter
from penstock.backend.facts import position
from penstock.backend.parcel import dead_fields
from penstock.backend.redis.links import Word
from penstock.backend.redis.scripts import load
from penstock.backend.redis.verbs import Verbs, check_names, entry_id, milliseconds, text_of, whole_number
from penstock.backend.sighting import Turn
from penstock.backend.survey import Position
from penstock.backend.turn import Standing
from penstock.errors import (
    AckOutOfSequenceError,
    ConfigurationError,
    DataLossError,
    GroupMissingError,
    TopicError,
    TurnLostError,
)
from penstock.message.times import moment

_MOST_DIGITS = 20


def turn_of(known: Sequence[bytes | None], now: datetime) -> Turn | None:
    """Whose turn it is, by token, holder, until, head and failed in its hash; None if nobody ever had it.

    What is no number counts as 0.
    """
    if known[0] is None:
        return None
    _, holder, until, head, failed = known
    return Turn(
        now=now,
        holder=text_of(holder) if holder else None,
        until=moment(number_of(until)) if until else None,
        failed_id=text_of(head or b""),
        failures=number_of(failed),
    )


def number_of(value: bytes | None) -> int:
    """A number as the server keeps it; 0 for whatever is none."""
    return int(value) if value and value.isdigit() and len(value) <= _MOST_DIGITS else 0


class Turns(Verbs):
    """The verbs of `TakesTurns` of the Redis backend."""

    async def take_turn(self, topic: str, reader: str, holder: str, lease: timedelta) -> int | timedelta:
        check_names(topic, reader)
        keys.check_name("holder", holder)
        lease_ms = milliseconds("lease", lease, least=1)
        doing = f"cannot take the turn of reader {reader!r} on {topic!r}"
        granted, value = await self._links.script(
            doing, load("take_turn"), [keys.turn(topic, reader)], holder, lease_ms
        )
        return int(value) if granted else timedelta(milliseconds=value)

    async def keep_turn(self, topic: str, reader: str, token: int, lease: timedelta) -> bool:
        names, lease_ms = _checked(topic, reader, token)[1:], milliseconds("lease", lease, least=1)
        doing = f"cannot keep the turn of reader {reader!r} on {topic!r}"
        return bool(await self._links.repeatable_script(doing, load("keep_turn"), names, token, lease_ms))

    async def leave_turn(self, topic: str, reader: str, token: int) -> bool:
        names = _checked(topic, reader, token)[1:]
        doing = f"cannot leave the turn of reader {reader!r} on {topic!r}"
        return bool(await self._links.script(doing, load("leave_turn"), names, token))

    async def unsubscriptions(self, topic: str, reader: str) -> int:
        check_names(topic, reader)
        key = keys.turn(topic, reader)
        doing = f"cannot look for reader {reader!r} of {topic!r} in {key}"
        return int(await self._links.command(doing, "HGET", key, "generation") or 0)

    async def stand(self, topic: str, reader: str, token: int, start: str, unsubscriptions: int) -> Standing | None:
        names = _checked(topic, reader, token)
        whole_number("unsubscriptions", unsubscriptions, least=0)
        start = start if start == "$" else entry_id("a reader's start, unless '$',", start)
        args = (reader, token, start, int(keys.may_create(topic)), keys.OWN_GROUP, secrets.token_hex(8))
        doing = f"cannot place reader {reader!r} on {topic!r}"
        try:
            reply = await self._links.repeatable_script(doing, load("stand"), names, *args, unsubscriptions)
        except GroupMissingError:
            raise keys.refusal(topic) from None
        if reply[0] == b"ended":
            return None
        if reply[0] == b"shared":
            raise TopicError(
                f"consumers read topic {topic!r} with the group {reader!r}: a sequential reader needs a name of its own"
            )
        _check_held(reply, topic, reader, token, "it reads nothing")
        _, id, count, epoch, restored, crashed, failed_id, failures, snapshot, told, unsubscribed = reply
        return Standing(
            Position(id.decode(), int(count), epoch.decode()),
            restored=bool(restored),
            crashed=bool(crashed),
            failed_id=failed_id.decode(),
            failures=failures,
            snapshot=bool(snapshot),
            told_upto=told.decode(),
            unsubscriptions=unsubscribed,
        )

    async def advance(
        self,
        topic: str,
        reader: str,
        token: int,
        *,
        expected: str,
        to: str,
        entries: int = 1,
        ordinal: int | None = None,
    ) -> None:
        names = _checked(topic, reader, token)
        whole_number("entries", entries)
        expected, to = entry_id("the expected position", expected), entry_id("the new position", to)
        if position(to) <= position(expected):
            raise ConfigurationError(
                f"reader {reader!r} of {topic!r} can only move forward, not from {expected} to {to}"
            )
        doing = f"cannot advance reader {reader!r} of {topic!r}"
        count: Word = "" if ordinal is None else ordinal
        args = (reader, token, expected, to, entries, count)
        reply = await self._links.script(doing, load("advance"), names, *args, at_once=True)
        _check_held(reply, topic, reader, token, f"{to} was not acknowledged, and will be delivered to the new holder")
        if reply[0] == b"elsewhere":
            raise AckOutOfSequenceError(topic, reader, expected, reply[1].decode())

    async def begin_head(self, topic: str, reader: str, token: int, entry_id: str) -> int:
        return await self._note_head(topic, reader, token, entry_id, 0)

    async def fail_head(self, topic: str, reader: str, token: int, entry_id: str, attempt: int) -> int:
        whole_number("attempt", attempt)
        return await self._note_head(topic, reader, token, entry_id, attempt)

    async def _note_head(self, topic: str, reader: str, token: int, head: str, failed: int) -> int:
        names, head = _checked(topic, reader, token)[1:], entry_id("the entry in hand", head)
        doing = f"cannot note what becomes of {head} for reader {reader!r} of {topic!r}"
        reply = await self._links.repeatable_script(doing, load("note_head"), names, token, head, failed)
        _check_held(reply, topic, reader, token, f"nothing was noted of {head}")
        return int(reply[1])

    async def bury_head(
        self, topic: str, reader: str, token: int, letter: DeadLetter, *, expected: str, ordinal: int | None = None
    ) -> None:
        names = [*_checked(topic, reader, token), self._dead(topic)]
        expected, to = entry_id("the expected position", expected), entry_id("the entry to bury", letter.entry.id)
        doing = f"cannot dead-letter {to} for reader {reader!r} of {topic!r}"
        args = (reader, token, expected, to, "" if ordinal is None else ordinal, *dead_fields(letter, topic, reader))
        reply = await self._links.script(doing, load("bury_head"), names, *args)
        _check_held(reply, topic, reader, token, f"{to} was not dead-lettered")
        if reply[0] == b"elsewhere":
            raise AckOutOfSequenceError(topic, reader, expected, reply[1].decode())

    async def place_reader(
        self, topic: str, reader: str, token: int, to: Position, *, snapshot: bool = False, told_upto: str = ""
    ) -> None:
        names, id = _checked(topic, reader, token), entry_id("a reader's place", to.id)
        doing = f"cannot place reader {reader!r} of {topic!r} at {id}"
        args = (reader, token, id, to.ordinal, to.epoch, keys.OWN_GROUP, int(snapshot), told_upto)
        reply = await self._links.repeatable_script(doing, load("place_reader"), names, *args)
        _check_held(reply, topic, reader, token, f"it was not placed at {id}")
        if reply[0] == b"other":
            raise DataLossError(
                f"reader {reader!r} of topic {topic!r} was not placed at {id}: its stream was deleted meanwhile"
            )

    async def forget_reader(self, topic: str, reader: str) -> bool:
        check_names(topic, reader)
        names, doing = [topic, keys.turn(topic, reader)], f"cannot remove reader {reader!r} of {topic!r}"
        return bool(await self._links.script(doing, load("forget_reader"), names, reader))


def _checked(topic: str, reader: str, token: int) -> tuple[str, str]:
    """The keys of a reader, the turn's last."""
    whole_number("token", token)
    if not isinstance(topic, str) or not isinstance(reader, str):
        check_names(topic, reader)
    return _keys_of(topic, reader)


@lru_cache(maxsize=1024)
def _keys_of(topic: str, reader: str) -> tuple[str, str]:
    # Once for each acknowledged message would be a good part of what that costs.
    check_names(topic, reader)
    return topic, keys.turn(topic, reader)


def _check_held(reply: Sequence[bytes], topic: str, reader: str, token: int, so: str) -> None:
    if reply[0] == b"lost":
        raise TurnLostError(
            f"reader {reader!r} of topic {topic!r} has another holder now (token {reply[1].decode() or 'none'}, ours"
            f" was {token}): {so}"
        )
