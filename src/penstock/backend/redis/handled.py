"""Which messages a group has handled, by their UUID: for those who want no message handled twice.

A message may be in a topic twice, as two entries under one UUID, or come once more in a replay, which is an intention
of its own. So what is remembered is the group, the UUID and the replay, and, while it is being handled, the entry.
"""

from collections.abc import Sequence
from datetime import timedelta

from penstock.backend import keys
from penstock.backend.entry import Claim, ClaimedMessage, Handling, Settled
from penstock.backend.redis.links import Word
from penstock.backend.redis.scripts import load
from penstock.backend.redis.verbs import Verbs, check_names, entry_id, milliseconds, pieces
from penstock.errors import ConfigurationError
from penstock.message.ids import canonical

_CLAIMS_PER_SCRIPT = 100


class Handled(Verbs):
    """`claim_handling`, `complete_handling` and `release_handling` of the Redis backend."""

    async def claim_handling(self, topic: str, group: str, claims: Sequence[Claim], lease: timedelta) -> list[Handling]:
        lease_ms = milliseconds("lease", lease, least=1)
        doing = f"cannot claim messages of {topic!r} for group {group!r}"
        verdicts: list[Handling] = []
        for names, entries in _claimed(topic, group, claims):
            # Safe to send again: what the first try has claimed is claimed by the same entry.
            reply = await self._links.repeatable_script(doing, load("claim_handling"), names, lease_ms, *entries)
            verdicts += [Handling(verdict.decode()) for verdict in reply]
        return verdicts

    async def complete_handling(
        self, stream: str, group: str, consumer: str, entries: Sequence[ClaimedMessage], window: timedelta
    ) -> Settled:
        check_names(stream, group, consumer)
        window_ms = milliseconds("window", window, least=1)
        _check_stream(stream, entries)
        topic = keys.home(stream)
        doing = f"cannot complete {len(entries)} entries of {stream!r} for group {group!r}"
        result = Settled()
        for piece in pieces(entries, _CLAIMS_PER_SCRIPT, lambda _: 0):
            notes = [_key(topic, group, entry.message.id, entry.state.replay) for entry in piece]
            names = [stream, keys.starts(topic, group), *notes]
            args: list[Word] = [group, consumer, int(keys.is_retry(stream)), window_ms, *(one.id for one in piece)]
            reply = await self._links.repeatable_script(doing, load("complete_handling"), names, *args)
            fenced, gone = (tuple(raw_id.decode() for raw_id in ids) for ids in reply[1:])
            result += Settled(reply[0], len(gone), fenced, gone)
        return result

    async def release_handling(self, topic: str, group: str, claims: Sequence[Claim]) -> int:
        doing = f"cannot give claims of {topic!r} back for group {group!r}"
        released = 0
        for names, entries in _claimed(topic, group, claims):
            released += await self._links.repeatable_script(doing, load("release_handling"), names, *entries)
        return released


def _claimed(topic: str, group: str, claims: Sequence[Claim]) -> list[tuple[list[str], list[str]]]:
    """Keys and entries of the claims, as many at a time as one script takes."""
    check_names(topic, group)
    named = [(_key(topic, group, id, replay), entry_id("a claim's entry", entry)) for id, replay, entry in claims]
    return [
        ([name for name, _ in some], [entry for _, entry in some])
        for some in pieces(named, _CLAIMS_PER_SCRIPT, lambda _: 0)
    ]


def _key(topic: str, group: str, message_id: str, replay_id: str) -> str:
    # By the canonical spelling: one message must not pass as two in upper and lower case.
    id = canonical(message_id)
    if id is None:
        raise ConfigurationError(f"a claim of {topic!r} names a message by its UUID, not {message_id!r}")
    if replay_id:
        keys.check_name("replay", replay_id)
    return keys.handled(topic, group, id, replay_id)


def _check_stream(stream: str, entries: Sequence[ClaimedMessage]) -> None:
    # Completed elsewhere they would count as gone, which reads like done, and stay pending here.
    others = {entry.stream for entry in entries} - {stream}
    if others:
        raise ConfigurationError(f"entries of {others.pop()!r} cannot be completed on {stream!r}: do so by stream")
