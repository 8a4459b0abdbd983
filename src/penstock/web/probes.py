"""For those who watch over the process: whether it lives, whether it can serve, and what it counts."""

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from penstock.app import Penstock
from penstock.errors import ConfigurationError, PenstockError, TopicError
from penstock.overview import Overview, TopicView
from penstock.telemetry.metrics import Metrics
from penstock.web.answers import json_answer, try_later
from penstock.web.options import WebOptions
from penstock.web.seats import Seats

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

_READY_SECONDS = 3.0
_NO_TOPIC = "penstock.ready"
"""Nobody's topic: reading it costs the server nothing, and shows that it answers."""


class Probes:
    """Health without the server, readiness with it."""

    def __init__(self, app: Penstock, options: WebOptions) -> None:
        self._app = app
        self._options = options

    async def health(self, request: Request) -> Response:
        return json_answer(HTTPStatus.OK, {"status": "alive"})

    async def ready(self, request: Request) -> Response:
        """No details of what is wrong: everybody may ask."""
        try:
            async with asyncio.timeout(_READY_SECONDS):
                await self._app.open()
                await self._app.backend.read_before(self._app.full_name(_NO_TOPIC), None, 1)
        except TopicError:
            pass  # it has answered
        except (PenstockError, TimeoutError):
            text = "the stream server does not answer, or refuses us: see the log"
            return json_answer(HTTPStatus.SERVICE_UNAVAILABLE, {"error": text}, try_later(self._options.retry))
        return json_answer(HTTPStatus.OK, {"status": "ready"})


class Scraping:
    """Prometheus metrics of the app's events, and, from the first scrape on, of how its topics stand."""

    def __init__(self, app: Penstock, seats: Seats) -> None:
        self._app = app
        self._metrics: Metrics | None = None
        self._looking: asyncio.Task[None] | None = None
        self._registry: CollectorRegistry
        self._why_not = ""
        try:
            self._begin(seats)
        except ConfigurationError as error:
            self._why_not = str(error)

    def _begin(self, seats: Seats) -> None:
        try:
            from prometheus_client import CollectorRegistry, Gauge
        except ImportError:
            raise ConfigurationError(
                "metrics need the package prometheus-client: install it with `pip install 'penstock[metrics]'`"
            ) from None
        self._registry = CollectorRegistry()
        self._metrics = Metrics(self._registry)
        gauge = Gauge("penstock_event_streams", "Clients that follow topics over HTTP.", registry=self._registry)
        gauge.set_function(lambda: seats.taken)
        self._app.listen(self._metrics)

    async def metrics(self, request: Request) -> Response:
        if self._metrics is None:
            return json_answer(HTTPStatus.NOT_IMPLEMENTED, {"error": self._why_not})
        from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._metrics.follow(self._look))
        return Response(generate_latest(self._registry), media_type=CONTENT_TYPE_LATEST)

    async def aclose(self) -> None:
        """Look at the server no more. Counting goes on with the app."""
        looking, self._looking = self._looking, None
        if looking is not None:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)

    async def _look(self) -> tuple[TopicView, ...]:
        await self._app.open()
        return await Overview(self._app.backend).topics()
