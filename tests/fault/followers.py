"""A process with very many followers of one topic: some steady, some that come and go, some too slow.

It prints `ready` when all are there, and, when all have seen the entry whose payload is "end", what each was given.
Those that are given nothing more shall not be waited for: when nobody was given anything for a while, it says what was.
"""

import asyncio
import hashlib
import json
import os
import sys
from pathlib import Path

import msgspec
from msgspec import Struct

from penstock import Gap, Penstock, Tail
from tests.fault.setup import read, url

END = b'"end"'
_SILENCE = 15.0
"""Seconds in which nobody is given anything, after which nothing is expected any more."""


class FollowersSetup(Struct, frozen=True):
    topic: str
    steady: int
    leaving: int
    """Each of these goes after every few messages, and comes back with the position of the last."""

    slow: int
    queue: int
    """How far the slow ones may be behind."""


class Seen(Struct):
    """What one follower was given."""

    kind: str
    count: int = 0
    missing: int = 0
    gaps: int = 0
    uncounted: int = 0
    out_of_order: int = 0
    digest: str = ""


class Report(Struct):
    followers: list[Seen]
    resident_before: int
    resident_most: int


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def resident_most() -> int:
    """Not getrusage: its maximum holds what the process had that started this one."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


class Follower:
    def __init__(self, app: Penstock, setup: FollowersSetup, kind: str) -> None:
        self._app = app
        self._setup = setup
        self.seen = Seen(kind)
        self.attached = asyncio.Event()
        self._digest = hashlib.sha256()
        self._last = ("", (0, 0))

    async def run(self) -> None:
        after = "earliest"
        while True:
            queue = self._setup.queue if self.seen.kind == "slow" else 1000
            async with self._app.tail(self._setup.topic, after=after, queue=queue) as tail:
                self.attached.set()
                if await self._follow(tail):
                    self.seen.digest = self._digest.hexdigest()
                    return
            after = self._last[0] or "earliest"

    async def _follow(self, tail: Tail) -> bool:
        """True at the end; False if it is to leave, and to come back."""
        async for item in tail:
            if isinstance(item, Gap):
                self.seen.gaps += 1
                self.seen.missing += item.count or 0
                self.seen.uncounted += item.count is None
                continue
            self.seen.count += 1
            self._digest.update(item.entry_id.encode())
            ms, _, number = item.entry_id.partition("-")
            here = int(ms), int(number)
            self.seen.out_of_order += here <= self._last[1]
            self._last = item.position, here
            if END in item.fields:
                return True
            if self.seen.kind == "leaving" and self.seen.count % 20 == 0:
                return False
            if self.seen.kind == "slow":
                await asyncio.sleep(0.25)
        raise RuntimeError("the app was closed")


async def given_all(followers: list[Follower], tasks: "list[asyncio.Task[None]]") -> None:
    """Until every follower is at its end, or none of them is given anything any more."""
    loop = asyncio.get_running_loop()
    given, since, left = -1, loop.time(), set(tasks)
    while left and loop.time() < since + _SILENCE:
        done, left = await asyncio.wait(left, timeout=1, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()
        now = sum(one.seen.count + one.seen.gaps for one in followers)
        if now != given:
            given, since = now, loop.time()
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


async def main(setup: FollowersSetup) -> None:
    async with Penstock.connect(url(), logs=None) as app:
        kinds = ["steady"] * setup.steady + ["leaving"] * setup.leaving + ["slow"] * setup.slow
        followers = [Follower(app, setup, kind) for kind in kinds]
        tasks = [asyncio.create_task(follower.run()) for follower in followers]
        await asyncio.gather(*(follower.attached.wait() for follower in followers))
        before = resident()
        print("ready", flush=True)
        await given_all(followers, tasks)
        report = Report([one.seen for one in followers], before, resident_most())
        print(json.dumps(msgspec.to_builtins(report)), flush=True)


if __name__ == "__main__":
    asyncio.run(main(read(FollowersSetup, sys.argv[1])))
