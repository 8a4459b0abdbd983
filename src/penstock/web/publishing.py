"""`POST /topics/{topic}/messages`: a message by HTTP, written once."""

import asyncio
from datetime import datetime
from http import HTTPStatus
from typing import Any

import msgspec
from msgspec import Struct
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from penstock.app import Penstock
from penstock.bus.bus import Bus
from penstock.errors import PenstockError
from penstock.message.faults import Unreadable
from penstock.message.ids import canonical, new_id
from penstock.message.message import Message
from penstock.message.strict_json import parse
from penstock.options import Limits
from penstock.web.answers import Refused, answer_to, json_answer
from penstock.web.options import WebOptions
from penstock.web.permissions import Permissions

_BODY_SECONDS = 30.0
_DEPTH = Limits().depth + 1  # the envelope is one level more; the topic's own limit is checked when it is written
_MOST_BUSES = 1000
_HANG_UP = {"Connection": "close"}  # what is left of the request is not read


class Posted(Struct, forbid_unknown_fields=True):
    """The JSON of a request: what an event of the topic holds, as far as a publisher may say it."""

    body: Any
    id: str | None = None
    type: str | None = None
    key: str | None = None
    headers: dict[str, str] = {}
    time: datetime | None = None


class Publishing:
    """Publishes what is posted, and says where it is."""

    def __init__(self, app: Penstock, options: WebOptions) -> None:
        self._app = app
        self._options = options
        self._permissions = Permissions(app, options.write, "published to")
        self._buses: dict[str, Bus] = {}

    async def post(self, request: Request) -> Response:
        try:
            return await self._publish(request)
        except Refused as refused:
            return refused.answer
        except PenstockError as error:
            return answer_to(error, self._options.retry)

    async def _publish(self, request: Request) -> Response:
        topic = self._permissions.check(request.path_params["topic"])
        posted = _posted(await self._read(request))
        await self._app.open()
        message = Message(posted.body, _id(posted), posted.type, posted.key, posted.headers, time=posted.time)
        # Once, also under an id of ours: who is told that nobody knows is told the id too, and may post it again.
        receipt = await self._bus(topic).publish(message, once=True)
        duplicate = receipt.duplicate and posted.id is not None  # else it was our own second try that found it there
        told = {"id": receipt.id, "entry_id": receipt.entry_id, "duplicate": duplicate}
        return json_answer(HTTPStatus.OK if duplicate else HTTPStatus.CREATED, told)

    async def _read(self, request: Request) -> bytes:
        """The whole request, if it is JSON and no longer than allowed; no more than that is ever held."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "a message is posted as Content-Type: application/json")
        most = self._options.request_bytes
        length = request.headers.get("content-length", "")
        if length.isdecimal() and int(length[:20]) > most:
            raise _too_long(most)
        raw = bytearray()
        try:
            async with asyncio.timeout(_BODY_SECONDS):
                async for chunk in request.stream():
                    raw += chunk
                    if len(raw) > most:
                        raise _too_long(most)
        except TimeoutError:
            raise Refused(HTTPStatus.REQUEST_TIMEOUT, "the request did not arrive in time", _HANG_UP) from None
        except ClientDisconnect:
            raise Refused(HTTPStatus.BAD_REQUEST, "the request ended half-way", _HANG_UP) from None
        return bytes(raw)

    def _bus(self, topic: str) -> Bus:
        """Kept, since a new one would list its topic anew; but not for every topic that anybody ever named."""
        bus = self._buses.pop(topic, None) or self._app.bus(topic)
        self._buses[topic] = bus
        if len(self._buses) > _MOST_BUSES:
            del self._buses[next(iter(self._buses))]
        return bus


def _posted(raw: bytes) -> Posted:
    try:
        return msgspec.convert(parse(raw, _DEPTH), Posted)
    except (Unreadable, msgspec.ValidationError) as error:
        text = (
            f"the request is no message: {error}; it is an object with body, and perhaps id, type, key, headers, time"
        )
        raise Refused(HTTPStatus.BAD_REQUEST, text) from None


def _id(posted: Posted) -> str:
    if posted.id is None:
        return new_id()
    id = canonical(posted.id)
    if id is None:
        raise Refused(HTTPStatus.BAD_REQUEST, f"a message's id is a UUID, not {posted.id[:100]!r}")
    return id


def _too_long(most: int) -> Refused:
    text = f"the request is longer than {most:,} bytes, which is the most that is taken here"
    return Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, text, _HANG_UP)
