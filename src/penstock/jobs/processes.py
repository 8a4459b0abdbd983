"""Processes for handlers that compute for long, or that may take their process with them.

Each does one job at a time. It can be ended, unlike a thread: a handler that outlives its timeout is killed. A handler
that kills its process is known at once, and has failed; nobody else was in there with it.
"""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import msgspec

from penstock.delivery.delivery import AnyDelivery
from penstock.delivery.outcome import Reject, Snooze
from penstock.delivery.slot import current_slot
from penstock.errors import HandlerProcessError, JobCancelledError
from penstock.jobs.process_talk import Begin, Cancel, Ended, Progressed, Raised, Rejected, Said, Snoozed, framed, heard

_LOOK_SECONDS = 0.25


class _Process:
    """One process, and the wire to it."""

    def __init__(self, command: Sequence[str]) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            # In a session of its own: a Ctrl-C at the terminal is for the worker, which drains.
            self._process = subprocess.Popen(
                [*command, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        self._socket = ours
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    async def say(self, frame: Begin | Cancel) -> None:
        if self._writer is None:
            self._reader, self._writer = await asyncio.open_connection(sock=self._socket)
        self._writer.write(framed(frame))
        with contextlib.suppress(ConnectionError):  # it has ended: whoever listens is told
            await self._writer.drain()

    async def hear(self) -> Said:
        """What it says next. Raises `HandlerProcessError` if it ends instead."""
        if self._reader is None:
            raise HandlerProcessError("the process of the handler was not told anything yet")
        try:
            return await heard(self._reader)
        except (asyncio.IncompleteReadError, ConnectionError):
            raise await self.death() from None

    def kill(self) -> None:
        """End it, and what its handlers have started."""
        if self.is_alive:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        if self._writer is not None:
            self._writer.close()
        else:
            self._socket.close()

    async def death(self) -> HandlerProcessError:
        """What it died of; waits until it has."""
        while self._process.poll() is None:  # noqa: ASYNC110 - the wire breaks a moment before
            await asyncio.sleep(0.01)
        code = self._process.returncode
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"left with exit code {code}"
        return HandlerProcessError(f"the handler's process {how}")


class HandlerProcesses:
    """So many processes, started as they are needed. `command` starts one, with the number of its wire behind it."""

    def __init__(self, size: int, command: Sequence[str]) -> None:
        self._command = command
        self._free = asyncio.Semaphore(size)
        self._idle: list[_Process] = []
        self._all: set[_Process] = set()

    async def call(self, queue: str, kind: str | None, delivery: AnyDelivery) -> Any:
        """What the handler returns. Waiting for a process is no handler's time. Raises what the handler raised."""
        slot = current_slot.get(None)
        if slot is not None and self._free.locked():
            slot.wait()
        async with self._free:
            process = self._taken()
            if slot is not None:
                slot.begin()
                slot.in_thread = True  # whoever cancels the job is to ask first
            try:
                await process.say(_begin(queue, kind, delivery))
                result = await self._followed(process, delivery)
            except BaseException:
                # Also if we are cancelled: whatever it does then, nobody waits for it any more.
                self._drop(process)
                raise
            finally:
                if slot is not None:
                    slot.in_thread = False
            self._idle.append(process)
        return _outcome(result)

    def close(self) -> None:
        """End all of them, whatever they do."""
        for process in self._all:
            process.kill()
        self._all.clear()
        self._idle.clear()

    async def _followed(self, process: _Process, delivery: AnyDelivery) -> Said:
        """The last word on a job."""
        has_asked, hearing = False, asyncio.ensure_future(process.hear())
        try:
            while True:
                was_alive = process.is_alive
                await asyncio.wait([hearing], timeout=_LOOK_SECONDS)
                if not has_asked and getattr(delivery, "is_cancelled", False):
                    has_asked = True
                    await process.say(Cancel())
                if not hearing.done():
                    if not was_alive:  # a process that its handler has started holds the wire open
                        raise await process.death()
                    continue
                said = hearing.result()
                if not isinstance(said, Progressed):
                    return said
                delivery.progress(said.percent, said.message)  # type: ignore[attr-defined]
                hearing = asyncio.ensure_future(process.hear())
        finally:
            hearing.cancel()

    def _taken(self) -> _Process:
        while self._idle:
            process = self._idle.pop()
            if process.is_alive:
                return process
            self._drop(process)
        process = _Process(self._command)
        self._all.add(process)
        return process

    def _drop(self, process: _Process) -> None:
        self._all.discard(process)
        process.kill()


def _begin(queue: str, kind: str | None, delivery: AnyDelivery) -> Begin:
    entry, state = delivery.entry, delivery.entry.state
    return Begin(
        queue=queue,
        kind=kind,
        topic=delivery.topic,
        group=delivery.group,
        stream=entry.stream,
        entry=entry.id,
        origin=entry.origin,
        raw=list(entry.raw),
        attempt=state.attempt,
        max_attempts=delivery.max_attempts,
        deliveries=state.deliveries,
        redelivered=state.redelivered,
    )


def _outcome(said: Said) -> Any:
    if isinstance(said, Ended):
        return msgspec.json.decode(said.result)
    if isinstance(said, Rejected):
        raise Reject(said.reason)
    if isinstance(said, Snoozed):
        raise Snooze(timedelta(seconds=said.seconds), said.reason)
    if isinstance(said, Raised):
        # Under its own name, so that the reason reads as if it had been raised here.
        kind = type(said.kind, (HandlerProcessError,), {"__module__": "penstock.jobs.processes"})
        error = kind(said.text)
        error.add_note(said.trace)
        raise error
    raise JobCancelledError("the handler has ended, as it was asked to")
