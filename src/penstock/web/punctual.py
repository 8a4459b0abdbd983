"""Giving up connections on which no request comes.

Connections are counted, and each holds a file descriptor: a thousand silent ones would shut out everybody else. uvicorn
itself has a limit only for the time between two requests, and only until the first byte of the second.
"""

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_SECONDS = 10.0
"""How long a client may take to say what it wants, from its connecting or from the first byte of a further request."""


class PunctualProtocol(H11Protocol):
    """Ends a connection whose client takes longer than `REQUEST_SECONDS`. Who is being answered has all the time."""

    _giving_up: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self._wait_for_request()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:
            self._wait_for_request()
        else:
            self._wait_no_more()

    def connection_lost(self, exc: Exception | None) -> None:
        self._wait_no_more()
        super().connection_lost(exc)

    def _wait_for_request(self) -> None:
        if self._giving_up is None:  # else one byte now and then would put it off for ever
            self._giving_up = self.loop.call_later(REQUEST_SECONDS, self.transport.abort)

    def _wait_no_more(self) -> None:
        if self._giving_up is not None:
            self._giving_up.cancel()
            self._giving_up = None
