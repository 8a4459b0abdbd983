"""A gateway inside another web app: below a path of its own, with or without a lifespan."""

import asyncio

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from penstock import Penstock
from penstock.errors import ConfigurationError
from penstock.web import WebOptions, create_app
from tests.support.serving import served
from tests.support.sse import following, numbers
from tests.support.stage import Stage
from tests.support.tailing import publish


async def test_mounted_below_a_path_it_needs_no_lifespan(stage: Stage) -> None:
    """The first request connects the app."""
    app = Penstock.connect(stage.url)
    try:
        async with served(app, around=lambda gateway: Starlette(routes=[Mount("/live", gateway)])) as web:
            address = f"/live/topics/{stage.topic}/messages"
            assert (await web.client.post(address, json={"body": {"n": 1}})).status_code == 201
            assert (await web.client.get("/live/ready")).status_code == 200
            assert (await web.client.get(f"/topics/{stage.topic}/events")).status_code == 404
            async with following(web.client, stage.topic, root="/live", after="earliest") as follower:
                assert numbers(await follower.take(1)) == [1]
    finally:
        await app.aclose()


async def test_closing_the_app_ends_its_streams(stage: Stage) -> None:
    app = Penstock.connect(stage.url)
    async with served(app) as web, following(web.client, stage.topic) as follower:
        await app.aclose()
        assert await follower.rest() == []


async def test_its_block_opens_the_app_and_closes_it_again(stage: Stage) -> None:
    app = Penstock.connect(stage.url)
    async with create_app(app):
        assert await app.backend.topics() is not None
    with pytest.raises(ConfigurationError):
        _ = app.backend


async def test_its_block_can_be_entered_again(stage: Stage) -> None:
    """As the lifespan of a web app is, that is started more than once in a process."""
    gateway = create_app(stage.app)
    async with gateway:
        pass
    async with (
        gateway,
        httpx.AsyncClient(transport=httpx.ASGITransport(gateway), base_url="http://localhost") as client,
    ):
        ended = asyncio.create_task(client.get(f"/topics/{stage.topic}/events"))
        async with asyncio.timeout(10):
            while not gateway._streams._streams and not ended.done():
                await asyncio.sleep(0.001)
        gateway.end_streams()
        async with asyncio.timeout(10):
            assert (await ended).status_code == 200


async def test_an_app_that_is_open_already_stays_open(stage: Stage) -> None:
    async with served(stage.app) as web:
        assert (await web.client.get("/ready")).status_code == 200
    await publish(stage, 1)


async def test_a_prefix_goes_before_every_name(stage: Stage) -> None:
    """Both forms work, and what lies outside cannot be named."""
    app = Penstock.connect(stage.url, prefix=stage.topic + ":")
    async with app, served(app, WebOptions(read=["orders"], write=["orders"])) as web:
        for name in ("orders", f"{stage.topic}:orders"):
            answer = await web.client.post(f"/topics/{name}/messages", json={"body": {"n": 1}})
            assert answer.status_code == 201
        assert (await web.client.post("/topics/other/messages", json={"body": {"n": 1}})).status_code == 403
        async with following(web.client, "orders", after="earliest") as follower:
            assert numbers(await follower.take(2)) == [1, 1]
    assert stage.admin.xlen(f"{stage.topic}:orders") == 2
