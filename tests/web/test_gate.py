"""Who is let in: this machine without a token, others with one, and pages only of our own origin or a named one."""

import httpx
import pytest

from penstock.web import WebOptions, create_app
from penstock.web.gate import is_loopback
from tests.support.serving import Served, served
from tests.support.sse import following
from tests.support.stage import Stage

TOKEN, OTHER = "correct-horse-battery-staple", "one-that-is-no-token-here"
PAGE = "https://shop.example"


async def events(web: Served, topic: str, **headers: str) -> int:
    """The status of an attempt to follow."""
    async with web.client.stream("GET", f"/topics/{topic}/events", headers=headers) as response:
        return response.status_code


async def posted(web: Served, topic: str, **headers: str) -> int:
    return (await web.client.post(f"/topics/{topic}/messages", json={"body": 1}, headers=headers)).status_code


async def test_a_page_of_another_origin_is_refused(stage: Stage, web: Served) -> None:
    for origin in (PAGE, "null", "http://127.0.0.1:1", "http://localhost", "http://[", "http://[x]:y"):
        assert await posted(web, stage.topic, Origin=origin) == 403
        assert await events(web, stage.topic, Origin=origin) == 403
    assert not stage.admin.exists(stage.topic)
    assert await posted(web, stage.topic, Origin=web.url) == 201
    assert await events(web, stage.topic, Origin=web.url) == 200


async def test_a_name_that_was_pointed_to_this_machine_is_refused(stage: Stage, web: Served) -> None:
    """DNS rebinding: the page's origin and the host agree, and both are the attacker's."""
    port = web.url.rpartition(":")[2]
    for name in ("attacker.example", "localhost.attacker.example", "127.0.0.1.attacker.example"):
        assert await posted(web, stage.topic, Host=f"{name}:{port}", Origin=f"http://{name}:{port}") == 403
        assert await events(web, stage.topic, Host=f"{name}:{port}") == 403
    assert not stage.admin.exists(stage.topic)
    for name in ("localhost", "127.0.0.1", "[::1]", "penstock.localhost"):
        assert await posted(web, stage.topic, Host=f"{name}:{port}", Origin=f"http://{name}:{port}") == 201


async def test_a_page_of_a_named_origin_may_come_and_its_browser_is_told(stage: Stage) -> None:
    async with served(stage.app, WebOptions(origins=[PAGE])) as web:
        answer = await web.client.post(f"/topics/{stage.topic}/messages", json={"body": 1}, headers={"Origin": PAGE})
        assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (201, PAGE)
        asks = {
            "Origin": PAGE,
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "content-type",
        }
        preflight = await web.client.options(f"/topics/{stage.topic}/messages", headers=asks)
        assert (preflight.status_code, preflight.headers["access-control-allow-origin"]) == (200, PAGE)
        other = await web.client.options(
            f"/topics/{stage.topic}/messages", headers={**asks, "Origin": "https://other.example"}
        )
        assert "access-control-allow-origin" not in other.headers
        assert await posted(web, stage.topic, Origin="https://other.example") == 403
        assert await posted(web, stage.topic, Host="shop.example", Origin=PAGE) == 201


async def test_an_origin_may_be_named_in_any_case(stage: Stage) -> None:
    async with served(stage.app, WebOptions(origins=["https://Shop.Example"])) as web:
        answer = await web.client.post(f"/topics/{stage.topic}/messages", json={"body": 1}, headers={"Origin": PAGE})
        assert (answer.status_code, answer.headers.get("access-control-allow-origin")) == (201, PAGE)


async def test_with_tokens_nobody_comes_in_without_one(stage: Stage) -> None:
    async with served(stage.app, WebOptions(tokens=[TOKEN, OTHER])) as web:
        address = f"/topics/{stage.topic}/events"
        refused = await web.client.get(address)
        assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
        for wrong in ("Bearer", f"Bearer {TOKEN}x", f"Basic {TOKEN}", f"Bearer {TOKEN[:-1]}"):
            assert await events(web, stage.topic, Authorization=wrong) == 401
            assert await posted(web, stage.topic, Authorization=wrong) == 401
        for token in (TOKEN, OTHER):
            assert await events(web, stage.topic, Authorization=f"Bearer {token}") == 200
            assert await posted(web, stage.topic, Authorization=f"bearer {token}") == 201
        assert (await web.client.get("/metrics")).status_code == 401
        assert (await web.client.get("/health")).status_code == 200
        assert (await web.client.get("/ready")).status_code == 200


async def test_a_token_in_the_address_lets_follow_and_nothing_else(stage: Stage) -> None:
    """EventSource can send no header."""
    async with served(stage.app, WebOptions(tokens=[TOKEN])) as web:
        async with following(web.client, stage.topic, access_token=TOKEN):
            pass
        query = {"access_token": TOKEN}
        answer = await web.client.post(f"/topics/{stage.topic}/messages", json={"body": 1}, params=query)
        assert answer.status_code == 401


TO_OTHERS = pytest.mark.parametrize(("options", "status"), [
    (WebOptions(), 403),
    (WebOptions(open_to_all=True), 201),
    (WebOptions(tokens=[TOKEN]), 401),
])  # fmt: skip


@TO_OTHERS
async def test_who_comes_by_a_unix_socket_may_ask_for_anybody(stage: Stage, options: WebOptions, status: int) -> None:
    """As a proxy in front does: there is no address to tell by whether it is one of this machine."""
    gateway = create_app(stage.app, options)
    transport = httpx.ASGITransport(gateway, client=None)  # type: ignore[arg-type]
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        answer = await client.post(f"/topics/{stage.topic}/messages", json={"body": 1})
    assert answer.status_code == status


@TO_OTHERS
async def test_without_a_token_other_machines_are_refused_wherever_it_is_mounted(
    stage: Stage, options: WebOptions, status: int
) -> None:
    gateway = create_app(stage.app, options)
    transport = httpx.ASGITransport(gateway, client=("192.0.2.7", 4000))
    async with httpx.AsyncClient(transport=transport, base_url="http://10.0.0.1") as client:
        answer = await client.post(f"/topics/{stage.topic}/messages", json={"body": 1})
    assert answer.status_code == status


async def test_who_comes_through_a_proxy_is_not_taken_for_the_proxy(stage: Stage, web: Served) -> None:
    assert await posted(web, stage.topic, **{"X-Forwarded-For": "192.0.2.7"}) == 403
    assert await posted(web, stage.topic, **{"X-Forwarded-For": "127.0.0.1"}) == 201


@pytest.mark.parametrize(("host", "ours"), [
    ("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("::ffff:127.0.0.1", True),
    ("0.0.0.0", False), ("::", False), ("192.0.2.7", False), ("::ffff:192.0.2.7", False), ("testclient", False),
])  # fmt: skip
def test_what_is_this_machine_itself(host: str, ours: bool) -> None:
    assert is_loopback(host) is ours
