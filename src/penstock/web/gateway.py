"""The web app itself: its routes, and what begins and ends with it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import TracebackType

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from penstock.app import Penstock
from penstock.errors import ConfigurationError
from penstock.options import check_kind
from penstock.web.following import EventStreams
from penstock.web.gate import Gate
from penstock.web.options import WebOptions
from penstock.web.probes import Probes, Scraping
from penstock.web.publishing import Publishing
from penstock.web.seats import Seats


class Gateway:
    """An ASGI app over a Penstock app. Mount it anywhere, or serve it as it is.

    Served as it is, its lifespan connects the Penstock app, unless that is connected, and closes it again. Mounted, it
    is `async with gateway:` that does so; without either, the first request connects it, and nobody closes it.
    """

    def __init__(self, app: Penstock, options: WebOptions) -> None:
        check_kind("create_app(...)", app, Penstock)
        check_kind("create_app(options=...)", options, WebOptions)
        self.patience = options.patience
        self._app = app
        self._is_ours = False
        seats = Seats(options)
        self._streams = EventStreams(app, options, seats)
        self._scraping = Scraping(app, seats)
        self._asgi = self._routed(options)

    def end_streams(self) -> None:
        """End every stream of events, and begin no other: clients come back to whoever serves them then.

        Call it when the process is asked to stop. Web servers wait for open connections, and these would stay open.
        """
        self._streams.end()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._asgi(scope, receive, send)

    async def __aenter__(self) -> None:
        """Gives nothing, so that `lambda _: gateway` is the lifespan of a web app around it."""
        self._is_ours = not _is_open(self._app)
        await self._app.open()
        self._streams.begin()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end_streams()
        await self._scraping.aclose()
        if self._is_ours:
            await self._app.aclose()

    def _routed(self, options: WebOptions) -> Starlette:
        probes, publishing = Probes(self._app, options), Publishing(self._app, options)
        guarded = [Middleware(Gate, options=options)]
        routes = [
            Route("/health", probes.health),
            Route("/ready", probes.ready),
            Route("/metrics", self._scraping.metrics, middleware=guarded),
            Route("/topics/{topic}/events", self._streams, methods=["GET"], middleware=guarded),
            Route("/topics/{topic}/messages", publishing.post, methods=["POST"], middleware=guarded),
        ]
        cors = Middleware(
            CORSMiddleware,
            allow_origins=[origin.lower() for origin in options.origins],  # as browsers write them
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type", "Last-Event-ID"],
        )
        return Starlette(routes=routes, middleware=[cors] if options.origins else [], lifespan=self._lifespan)

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        async with self:
            yield


def create_app(app: Penstock, options: WebOptions = WebOptions()) -> Gateway:  # noqa: B008 - frozen
    """A web app that serves the topics of `app`: see `docs/web.md` for its addresses."""
    return Gateway(app, options)


def _is_open(app: Penstock) -> bool:
    try:
        return app.backend is not None
    except ConfigurationError:
        return False
