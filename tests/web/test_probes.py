"""What those are told who watch over the process."""

import asyncio
import sys
from datetime import timedelta

import httpx
import pytest

from penstock import Penstock
from penstock.web import WebOptions, create_app
from tests.support.serving import Served, served
from tests.support.sse import following
from tests.support.stage import Stage
from tests.support.tailing import publish


async def test_it_is_alive_and_ready(web: Served) -> None:
    assert (await web.client.get("/health")).json() == {"status": "alive"}
    assert (await web.client.get("/ready")).json() == {"status": "ready"}


async def test_while_the_server_is_away_it_is_alive_and_requests_are_told_to_come_back(stage: Stage) -> None:
    away = Penstock.connect("redis://127.0.0.1:1", logs=None)
    gateway = create_app(away, WebOptions(retry=timedelta(seconds=9)))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(gateway), base_url="http://127.0.0.1") as client:
        for answer in (
            await client.get(f"/topics/{stage.topic}/events"),
            await client.post(f"/topics/{stage.topic}/messages", json={"body": 1}),
            await client.get("/ready"),
        ):
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "9")
        assert "127.0.0.1:1" not in answer.text, "everybody may ask whether it is ready"
        assert (await client.get("/health")).status_code == 200


async def test_counters_and_gauges_are_scraped(stage: Stage, web: Served) -> None:
    ids = await publish(stage, 1, 2)
    stage.admin.xtrim(stage.topic, maxlen=1, approximate=False)
    async with following(web.client, stage.topic, after=ids[0]):
        text = (await web.client.get("/metrics")).text
    assert "penstock_event_streams 1.0" in text
    wanted = f'penstock_entries{{topic="{stage.topic}"}} 1.0'
    async with asyncio.timeout(30):
        while wanted not in (answer := await web.client.get("/metrics")).text:
            await asyncio.sleep(0.01)
    assert answer.headers["content-type"].startswith("text/plain")


async def test_without_the_package_scraping_says_what_to_install(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    async with served(stage.app) as web:
        answer = await web.client.get("/metrics")
    assert answer.status_code == 501
    assert "penstock[metrics]" in answer.json()["error"]
