"""What a request is answered when it cannot be served: a status that programs understand, and a text for people."""

import math
from collections.abc import Mapping
from datetime import timedelta
from http import HTTPStatus

from starlette.responses import Response

from penstock.errors import (
    ConfigurationError,
    CursorNotFoundError,
    EncodeError,
    PenstockError,
    PublishUnknownError,
    ServerError,
    TopicError,
)
from penstock.message.strict_json import encode

NO_SNIFFING = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}

_STATUSES: tuple[tuple[type[PenstockError], HTTPStatus], ...] = (
    (ConfigurationError, HTTPStatus.BAD_REQUEST),
    (EncodeError, HTTPStatus.UNPROCESSABLE_ENTITY),
    (CursorNotFoundError, HTTPStatus.NOT_FOUND),
    (TopicError, HTTPStatus.CONFLICT),
    (PublishUnknownError, HTTPStatus.SERVICE_UNAVAILABLE),
    (ServerError, HTTPStatus.SERVICE_UNAVAILABLE),
)


class Refused(Exception):
    """The request is not served; `answer` says why."""

    def __init__(self, status: HTTPStatus, text: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(text)
        self.answer = json_answer(status, {"error": text}, headers)


def json_answer(status: HTTPStatus, value: object, headers: Mapping[str, str] | None = None) -> Response:
    return Response(encode(value), status, {**NO_SNIFFING, **(headers or {})}, "application/json")


def answer_to(error: PenstockError, retry: timedelta) -> Response:
    """What somebody is told whose request ended in this error."""
    status = next((status for kind, status in _STATUSES if isinstance(error, kind)), HTTPStatus.INTERNAL_SERVER_ERROR)
    told = {"error": str(error)}
    if isinstance(error, PublishUnknownError):
        told["id"] = error.id
    return json_answer(status, told, try_later(retry) if status is HTTPStatus.SERVICE_UNAVAILABLE else None)


def try_later(retry: timedelta) -> dict[str, str]:
    return {"Retry-After": str(max(1, math.ceil(retry.total_seconds())))}
