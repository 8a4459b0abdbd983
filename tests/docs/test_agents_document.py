"""The example of the page on agents runs, and prints what it must."""

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from penstock import Delivery, Penstock, events
from penstock.agents import Agent, ChatMessage
from penstock.testing import app_events, drain
from tests.support.shell import Shell

PAGE = (Path(__file__).parents[2] / "docs" / "agents.md").read_text()


def test_the_example_is_answered(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PENSTOCK_URL": f"embedded://{tmp_path}"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "user: What now?\nplanner: One thing first.\n"


@pytest.mark.needs("redis-cli")
async def test_other_programs_reach_an_agent_and_pause_it(shell: Shell) -> None:
    (commands,) = re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)
    heard: list[str] = []
    async with Penstock.connect() as app:
        agent = Agent(app, "DevAgent")

        @agent.hears
        async def hear(said: Delivery[ChatMessage]) -> None:
            heard.append(said.body.content)

        say, pause = commands.splitlines()
        shell.run(say)
        await drain(app)
        async with app_events(app) as seen:
            running = asyncio.create_task(app.run(signals=False))
            shell.run(pause)
            assert (await seen.wait_for(events.PauseChanged)).paused
            app.stop()
            await running
    assert heard == ["hi"]
