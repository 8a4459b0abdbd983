"""`GET /topics/{topic}/events`: a topic as server-sent events."""

import asyncio
import contextlib
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from penstock.app import Penstock
from penstock.errors import PenstockError
from penstock.web.answers import Refused, answer_to, try_later
from penstock.web.event_stream import HEADERS, EventStream
from penstock.web.options import WebOptions
from penstock.web.permissions import Permissions
from penstock.web.places import place, takes_long
from penstock.web.rendering import Rendering
from penstock.web.seats import Seats

_OPENING_AT_ONCE = 32
"""After a restart all clients come at once, and each reads a page of what it has missed before it is given any."""

_SEARCHING_AT_ONCE = 8
"""Those whose place has to be searched for wait for each other, not in the way of all who know theirs."""


class EventStreams:
    """Answers with a stream for each client, and knows them all."""

    def __init__(self, app: Penstock, options: WebOptions, seats: Seats) -> None:
        self._app = app
        self._options = options
        self._seats = seats
        self._permissions = Permissions(app, options.read, "followed")
        self._rendering = Rendering()
        self._streams: set[EventStream] = set()
        self._opening = asyncio.Semaphore(_OPENING_AT_ONCE)
        self._searching = asyncio.Semaphore(_SEARCHING_AT_ONCE)
        self._is_ending = False

    def begin(self) -> None:
        """Have streams begun again, if they were ended before."""
        self._is_ending = False

    def end(self) -> None:
        """End every stream, so that clients come back later, and begin no other."""
        self._is_ending = True
        for stream in list(self._streams):
            stream.end()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        try:
            if request.method == "HEAD":
                await Response(headers=HEADERS)(scope, receive, send)
            else:
                await self._serve(request, receive, send)
        except Refused as refused:
            await refused.answer(scope, receive, send)
        except PenstockError as error:
            await answer_to(error, self._options.retry)(scope, receive, send)

    async def _serve(self, request: Request, receive: Receive, send: Send) -> None:
        """Raises only before the answer has begun."""
        if self._is_ending:
            later = try_later(self._options.retry)
            raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, "this server is about to stop: try again", later)
        topic = self._permissions.check(request.path_params["topic"])
        last = request.headers.get("last-event-id", "").strip()
        after = place(request.query_params.get("after"), last)
        with self._seats.seat(topic):
            await self._app.open()
            tail = self._app.tail(topic, after=after, queue=self._options.queue)
            async with contextlib.AsyncExitStack() as closing:
                async with self._searching if takes_long(after) else self._opening:
                    await closing.enter_async_context(tail)
                stream = EventStream(tail, self._rendering, request.query_params.getlist("type"), self._options)
                self._streams.add(stream)
                closing.callback(self._streams.discard, stream)
                if self._is_ending:
                    stream.end()
                await stream.run(receive, send, resumed=bool(last))
