"""The web side: a page, what people say on it, and the conversation as server-sent events."""

import json
from datetime import timedelta
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Mount, Route

from penstock import Penstock
from penstock.agents import Conversation
from penstock.errors import ConfigurationError, PenstockError
from penstock.web import Gateway, WebOptions, create_app

_PAGE = Path(__file__).with_name("page.html")
_MOST_BYTES = 64 * 1024


class Site:
    """An ASGI app: the page at `/`, and behind it the gateway, which shows conversations and lets nobody write."""

    def __init__(self, app: Penstock, *, retry: timedelta) -> None:
        self._app = app
        self.gateway: Gateway = create_app(app, WebOptions(read=["stream:*"], write=(), retry=retry))
        self.asgi = Starlette(
            routes=[
                Route("/", self._page),
                Route("/conversations/{id}/messages", self._say, methods=["POST"]),
                Mount("/", self.gateway),
            ]
        )

    async def _page(self, _: Request) -> Response:
        return FileResponse(_PAGE)

    async def _say(self, request: Request) -> Response:
        """The same id again, because the answer was lost, is the same message: it is written once."""
        # Pages of other origins cannot send this type without asking first, and nobody here says yes.
        if request.headers.get("content-type", "").partition(";")[0] != "application/json":
            return JSONResponse({"error": "say it as application/json"}, 415)
        if int(request.headers.get("content-length") or _MOST_BYTES + 1) > _MOST_BYTES:
            return JSONResponse({"error": f"say it in at most {_MOST_BYTES} bytes"}, 413)
        try:
            told = json.loads(await request.body())
            content, id = str(told["content"]), str(told["id"])
            conversation = Conversation(self._app, request.path_params["id"])
            said = await conversation.say(content, sender="you", to="planner", id=id)
        except (ConfigurationError, ValueError, KeyError, TypeError) as error:
            return JSONResponse({"error": str(error)}, 400)
        except PenstockError as error:
            return JSONResponse({"error": str(error)}, 503)
        return JSONResponse({"id": said.id, "duplicate": said.duplicate})
