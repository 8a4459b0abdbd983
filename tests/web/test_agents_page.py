"""The page of the agents' example in a real browser: it receives, comes back, and shows what it could not be given."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest
import redis

from penstock.message.ids import new_id
from tests.support.servers import Server, free_port, valkey_binary

if TYPE_CHECKING:
    from playwright.async_api import Page

ROOT = Path(__file__).parents[2]
QUIET = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
WATCH_TOKENS = """() => {
  window.unfinished = new Set();
  new MutationObserver(() => {
    for (const item of document.querySelectorAll("li.unfinished")) window.unfinished.add(item.dataset.id);
  }).observe(document, { subtree: true, childList: true, attributes: true, characterData: true });
}"""
SHOWN = """[...document.querySelectorAll("#talk li")].map((item) => [
  item.className, (item.querySelector("p") ?? item).textContent
])"""


class Example:
    """The example as a process, which can be stopped and started again at the same address."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    async def start(self) -> None:
        command = [sys.executable, "-m", "examples.agents", "--url", self.server.url, "--port", str(self.port)]
        self.process = subprocess.Popen([*command, "--pause", "0.005", "--retry", "0.2"], cwd=ROOT)
        async with asyncio.timeout(30):
            while not await self._is_up():
                assert self.process.poll() is None, "the example has ended"
                await asyncio.sleep(0.02)

    async def _is_up(self) -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            return False
        writer.close()
        return True

    async def stop(self) -> int:
        assert self.process is not None
        self.process.terminate()
        return await asyncio.to_thread(self.process.wait, 20)

    def end(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()


@pytest.fixture
def server(missing: Callable[[str], NoReturn]) -> Iterator[Server]:
    """One that may be killed, and remembers everything."""
    binary = valkey_binary()
    if binary is None:
        missing("valkey-server")
    directory = Path(tempfile.mkdtemp(prefix="ps-"))
    started = Server(binary, directory, "--appendonly", "yes", "--appendfsync", "always")
    yield started
    started.stop()
    shutil.rmtree(directory)


@pytest.fixture
async def example(server: Server) -> AsyncIterator[Example]:
    started = Example(server)
    await started.start()
    yield started
    started.end()


@pytest.fixture
async def page(missing: Callable[[str], NoReturn]) -> "AsyncIterator[Page]":
    try:
        from playwright.async_api import async_playwright
    except ImportError:
        missing("playwright")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=shutil.which("chromium"), args=QUIET)
        opened = await browser.new_page()
        opened.set_default_timeout(15_000)
        yield opened
        await browser.close()


async def shown(page: "Page") -> list[tuple[str, str]]:
    """What stands there: senders and texts, and gaps."""
    items = await page.evaluate(SHOWN)
    return [(sender, text) for sender, text in items]


def show(admin: "redis.Redis", conversation: str, *contents: str) -> None:
    """Some other program has something to say."""
    for content in contents:
        payload: dict[str, Any] = {"content": content, "sender": "somebody"}
        admin.xadd(f"stream:{conversation}", {"id": new_id(), "type": "chat", "payload": json.dumps(payload)})


async def look(page: "Page", name: str) -> None:
    """Keep a picture, if somebody wants to see it."""
    if "PICTURES" in os.environ:
        await page.screenshot(path=str(Path(os.environ["PICTURES"]) / f"{name}.png"))


@pytest.mark.needs("chromium")
async def test_the_page_receives_comes_back_and_shows_a_gap(page: "Page", example: Example, server: Server) -> None:
    conversation, connected = new_id(), "#status[data-state=connected]"
    await page.goto(f"{example.url}#{conversation}")
    await page.wait_for_selector(connected)
    await page.evaluate(WATCH_TOKENS)
    await page.fill("#words", "a garden")
    await page.click("button")
    await page.wait_for_selector("#talk li:nth-child(6):not(.unfinished)")
    talk = await shown(page)
    assert [sender for sender, _ in talk] == ["you", "planner", "critic", "planner", "critic", "planner"]
    assert all("a garden" in text for _, text in talk)
    assert await page.evaluate("window.unfinished.size") == 5, "the agents' messages were shown as they were spoken"
    await look(page, "talk")

    # The web server goes and comes back: what was said meanwhile is there, and nothing twice.
    assert await example.stop() == 0
    await page.wait_for_selector("#status[data-state=reconnecting]")
    with server.client() as admin:
        show(admin, conversation, "meanwhile")
    await example.start()
    await page.wait_for_selector("#talk li:nth-child(7)")
    assert [*talk, ("somebody", "meanwhile")] == await shown(page)
    await page.wait_for_selector(connected)

    # So does the server behind it, and the page need not even notice.
    await asyncio.to_thread(server.kill)
    await asyncio.to_thread(server.start)
    with server.client() as admin:
        show(admin, conversation, "still here")
    await page.wait_for_selector("#talk li:nth-child(8)")

    # What was trimmed while it was away is a gap, where it would have been.
    assert await example.stop() == 0
    with server.client() as admin:
        show(admin, conversation, "lost", "lost too", "kept")
        admin.xtrim(f"stream:{conversation}", maxlen=1, approximate=False)
    await example.start()
    await page.wait_for_selector("#talk li.gap + li")
    *_, before, gap, after = await shown(page)
    assert before == ("somebody", "still here")
    assert gap[0] == "gap"
    assert "missing here (trimmed)" in gap[1]
    assert after == ("somebody", "kept")
    await look(page, "gap")

    # Loaded anew, the page has what the stream still has.
    await page.reload()
    await page.wait_for_selector("#talk li")
    assert await shown(page) == [("somebody", "kept")]
