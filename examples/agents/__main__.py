"""Two agents talk, and a page shows every word as it comes.

    python -m examples.agents                         on a server of its own
    python -m examples.agents --url redis://localhost

Then open the address it prints, and say something. From another shell, on the same server, the agents obey:

    redis-cli XADD control:planner '*' payload '{"command":"pause"}'

Needs `pip install 'penstock[web]'`.
"""

import argparse
import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import uvicorn

from examples.agents.site import Site
from examples.agents.talk import declare
from penstock import Penstock


class Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are Penstock's: it drains first, and the page is ended after that."""
        yield


async def run(arguments: argparse.Namespace) -> None:
    """Until SIGTERM, Ctrl-C, or the agents are told to stop."""
    async with Penstock.connect(arguments.url) as app:
        declare(app, pause=arguments.pause)
        site = Site(app, retry=timedelta(seconds=arguments.retry))
        config = uvicorn.Config(site.asgi, host="127.0.0.1", port=arguments.port, log_level="warning")
        server = Server(config)
        serving = asyncio.create_task(server.serve())
        print(f"Open http://127.0.0.1:{arguments.port}/ and say something. Ctrl-C to stop.", flush=True)
        try:
            await app.run()
        finally:
            site.gateway.end_streams()
            server.should_exit = True
            await serving


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.agents", description="Two agents talk on a page.")
    parser.add_argument("--url", help="the server; without it $PENSTOCK_URL, else one of its own")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--pause", type=float, default=0.05, help="seconds that a word takes")
    parser.add_argument("--retry", type=float, default=1.0, help="seconds after which a page that was cut off returns")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
