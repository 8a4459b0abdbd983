"""Publishing once: a message whose id was written before is not written again, so it can be sent again safely.

Whoever publishes to a stream during one turn of the event loop shares one script call with the others, since a call
costs the server more than a message in it. What belongs to one caller is never torn apart by that, and what is wrong
with one caller's messages does not concern the others.
"""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import lru_cache, partial
from itertools import islice
from typing import Any

from penstock.backend import keys
from penstock.backend.entry import Published
from penstock.backend.redis.link import Reply, pack_command
from penstock.backend.redis.links import COMMAND_SECONDS, Links, Word
from penstock.backend.redis.scripts import load
from penstock.backend.redis.verbs import BYTES_PER_CALL, Verbs, byte_count, milliseconds, pieces
from penstock.errors import PenstockError, PublishUnknownError, ServerUnreachableError
from penstock.message.ids import canonical
from penstock.message.message import Message
from penstock.message.wire import Wire
from penstock.options import DEDUPE_WINDOW

_MESSAGES_PER_SCRIPT = 100
_ENOUGH = 50
"""Sent as soon as this many are together: the server works on them while others still pack theirs."""


_Packed = tuple[str, str, list[bytes]]
"""A message's id, its dedupe key, and its fields."""

_Share = tuple["asyncio.Future[list[Published]]", list[_Packed]]
"""What one caller waits for, and what it has in a turn."""


class _Turn:
    """The callers that share one script call."""

    def __init__(self, stream: str, window_ms: int) -> None:
        self.stream = stream
        self.window_ms = window_ms
        self.may_create = keys.may_create(stream)
        self.shares: list[_Share] = []
        self.messages = 0
        self._bytes = 0

    def add(self, share: _Share) -> bool:
        """False if there is no room for it: another caller's messages must not make a call larger than any alone."""
        packed = share[1]
        messages = self.messages + len(packed)
        size = self._bytes
        for _, _, parts in packed:
            size += sum(map(len, parts))
        if self.shares and (messages > _MESSAGES_PER_SCRIPT or size > BYTES_PER_CALL):
            return False
        self.shares.append(share)
        self.messages, self._bytes = messages, size
        return True


class Once(Verbs):
    """`publish_once` of the Redis backend."""

    def __init__(self, links: Links, wire: Wire, wires: Mapping[str, Wire]) -> None:
        super().__init__(links, wire, wires)
        self._turns: dict[tuple[str, int], _Turn] = {}
        self._repeats: set[asyncio.Task[None]] = set()

    async def publish_once(
        self, stream: str, messages: Sequence[Message[Any]], *, window: timedelta = DEDUPE_WINDOW
    ) -> list[Published]:
        start_of_key, window_ms = _start_of_key(stream), _window_ms(window)
        if len(messages) == 1:
            return await self._join(stream, window_ms, [self._packed(stream, start_of_key, messages[0])])
        packed = [self._packed(stream, start_of_key, message) for message in messages]
        published: list[Published] = []
        for piece in pieces(packed, _MESSAGES_PER_SCRIPT, lambda one: byte_count(one[2])):
            published += await self._join(stream, window_ms, piece)
        return published

    def _packed(self, stream: str, start_of_key: str, message: Message[Any]) -> _Packed:
        parts = self._wire(stream).pack(message, stream)
        # By the canonical spelling, which `pack` has checked: one message must not pass as two in upper and lower case.
        return message.id, start_of_key + (canonical(message.id) or ""), parts

    def _join(self, stream: str, window_ms: int, packed: list[_Packed]) -> "asyncio.Future[list[Published]]":
        loop = asyncio.get_running_loop()
        share = loop.create_future(), packed
        turn = self._turns.get((stream, window_ms))
        if turn is not None and not turn.add(share):
            self._send(turn)
            turn = None
        if turn is None:
            turn = self._turns[stream, window_ms] = _Turn(stream, window_ms)
            turn.add(share)
            loop.call_soon(self._send, turn)
        if turn.messages >= _ENOUGH:
            self._send(turn)
        return share[0]

    def _send(self, turn: _Turn) -> None:
        if self._turns.get((turn.stream, turn.window_ms)) is not turn:
            return  # it was sent before the turn's end
        del self._turns[turn.stream, turn.window_ms]
        link = self._links.at_hand
        if link is None:
            self._repeat(turn, turn.shares, sent=False)
            return
        names, args = _words(turn, turn.shares)
        request = pack_command(("EVALSHA", load("publish_once").sha, len(names), *names, *args))
        reply = link.call(request, within=COMMAND_SECONDS, at_once=True)
        reply.add_done_callback(partial(self._answered, turn))

    def _answered(self, turn: _Turn, reply: "asyncio.Future[Reply]") -> None:
        rows = None if reply.exception() else reply.result()
        if isinstance(rows, list):
            _hand_out(turn, turn.shares, rows)
        else:  # the connection broke, the script is not known yet, or something is wrong
            self._repeat(turn, turn.shares, sent=True)

    def _repeat(self, turn: _Turn, shares: Sequence[_Share], *, sent: bool) -> None:
        task = asyncio.get_running_loop().create_task(self._write(turn, shares, sent=sent))
        self._repeats.add(task)
        task.add_done_callback(self._repeats.discard)

    async def _write(self, turn: _Turn, shares: Sequence[_Share], *, sent: bool) -> None:
        """The careful way. Safe after an earlier try: the script itself finds what that has written."""
        run = self._links.script if sent else self._links.repeatable_script
        try:
            if not sent:
                await self._links.shared()
                sent = True
                # Whoever gave up while we waited for a server does not want it written any more.
                shares = [share for share in shares if not share[0].done()]
            names, args = _words(turn, shares)
            rows = await run(f"cannot publish to {turn.stream!r}", load("publish_once"), names, *args)
        except ServerUnreachableError as error:
            for share in shares:
                _fail(share, PublishUnknownError(turn.stream, share[1][0][0]) if sent else error)
        except PenstockError as error:
            await self._refused(turn, shares, error)
        else:
            _hand_out(turn, shares, rows)
        finally:
            for published, _ in shares:
                published.cancel()  # if it has no result by now, the loop is being shut down

    async def _refused(self, turn: _Turn, shares: Sequence[_Share], error: PenstockError) -> None:
        if len(shares) == 1:
            _fail(shares[0], error)
            return
        # One of them may be the reason. What the script wrote before it failed will find itself written.
        for share in shares:
            await self._write(turn, [share], sent=True)


@lru_cache(maxsize=4096)
def _start_of_key(stream: str) -> str:
    keys.check_topic(stream)
    return keys.once(stream, "")  # a UUID behind it needs no quoting


@lru_cache(maxsize=64)
def _window_ms(window: timedelta) -> int:
    return milliseconds("window", window, least=1)


def _words(turn: _Turn, shares: Sequence[_Share]) -> tuple[list[str], list[Word]]:
    names = [turn.stream]
    args: list[Word] = [turn.window_ms, int(turn.may_create)]
    for _, packed in shares:
        for _, key, parts in packed:
            names.append(key)
            args.append(len(parts))
            args += parts
    return names, args


def _hand_out(turn: _Turn, shares: Sequence[_Share], rows: Sequence[bytes]) -> None:
    left = iter(rows)
    for share in shares:
        published, packed = share
        mine = [next(left)] if len(packed) == 1 else list(islice(left, len(packed)))
        if b"" in mine:
            _fail(share, keys.refusal(turn.stream))
        elif not published.done():
            published.set_result([_published(row) for row in mine])


def _published(row: bytes) -> Published:
    is_there = row.startswith(b"=")
    return Published(row[is_there:].decode(), is_there)


def _fail(share: _Share, error: PenstockError) -> None:
    if not share[0].done():  # else its caller has given up
        share[0].set_exception(error)
