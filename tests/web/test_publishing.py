"""Messages by POST: JSON of a bounded length, written once if they bring an id, and only from pages that may."""

import asyncio
import json
from typing import Any

import pytest

from penstock import Penstock
from penstock.message.ids import new_id
from penstock.web import WebOptions
from tests.support.proxy import Proxy
from tests.support.serving import Served, served
from tests.support.stage import Stage

BOTH = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)


@BOTH
async def test_a_message_is_on_the_topic_when_it_is_answered(stage: Stage, web: Served) -> None:
    answer = await web.client.post(f"/topics/{stage.topic}/messages", json={"body": {"n": 1}})
    assert answer.status_code == 201
    told = answer.json()
    assert told == {"id": told["id"], "entry_id": told["entry_id"], "duplicate": False}
    ((entry_id, fields),) = stage.admin.xrange(stage.topic)
    assert entry_id.decode() == told["entry_id"]
    assert fields == {b"id": told["id"].encode(), b"payload": b'{"n":1}'}
    assert stage.topic in await stage.app.backend.topics()


@BOTH
async def test_an_id_of_the_clients_own_is_written_once(stage: Stage, web: Served) -> None:
    said = {"body": {"n": 1}, "id": new_id().upper()}
    answers = await asyncio.gather(*(web.client.post(f"/topics/{stage.topic}/messages", json=said) for _ in range(10)))
    assert sorted(answer.status_code for answer in answers) == [200] * 9 + [201]
    assert {answer.json()["entry_id"] for answer in answers} == {answers[0].json()["entry_id"]}
    assert {answer.json()["id"] for answer in answers} == {said["id"].lower()}
    assert sum(answer.json()["duplicate"] for answer in answers) == 9
    assert stage.admin.xlen(stage.topic) == 1


async def test_who_is_told_that_nobody_knows_may_post_it_again_under_the_id_that_is_told(
    stage: Stage, proxy: Proxy
) -> None:
    address = f"/topics/{stage.topic}/messages"
    async with Penstock.connect(proxy.url, logs=None) as app, served(app) as web:
        assert (await web.client.post(address, json={"body": {"n": 1}})).status_code == 201
        proxy.refusing = True  # whoever wants to connect anew
        proxy.drop_reply_to(stage.topic)  # of whatever command that names it
        unknown = await web.client.post(address, json={"body": {"n": 2}})
        assert (unknown.status_code, proxy.dropped) == (503, 1)
        assert unknown.headers["retry-after"]
        proxy.refusing = False
        again = await web.client.post(address, json={"body": {"n": 2}, "id": unknown.json()["id"]})
        assert (again.status_code, again.json()["duplicate"]) == (200, True)
        assert stage.admin.xlen(stage.topic) == 2


async def test_an_answer_that_the_server_lost_is_asked_for_again(stage: Stage, proxy: Proxy) -> None:
    address = f"/topics/{stage.topic}/messages"
    async with Penstock.connect(proxy.url, logs=None) as app, served(app) as web:
        assert (await web.client.post(address, json={"body": {"n": 1}})).status_code == 201
        proxy.drop_reply_to(stage.topic)
        answer = await web.client.post(address, json={"body": {"n": 2}})
        assert (answer.status_code, answer.json()["duplicate"], proxy.dropped) == (201, False, 1)
        assert stage.admin.xlen(stage.topic) == 2


async def test_under_an_id_that_is_taken_the_first_message_counts(stage: Stage, web: Served) -> None:
    address, id = f"/topics/{stage.topic}/messages", new_id()
    first = await web.client.post(address, json={"body": {"n": 1}, "id": id})
    second = await web.client.post(address, json={"body": {"n": 2}, "id": id, "type": "other"})
    assert (first.status_code, second.status_code) == (201, 200)
    assert second.json() == {**first.json(), "duplicate": True}
    ((_, fields),) = stage.admin.xrange(stage.topic)
    assert fields[b"payload"] == b'{"n":1}'


@pytest.mark.parametrize(
    ("said", "text"),
    [
        (b"", "no message"),
        (b"{", "no message"),
        (b"[]", "no message"),
        (b"{}", "body"),
        (b'{"body": 1, "id": "5"}', "UUID"),
        (b'{"body": 1, "id": 5}', "no message"),
        (b'{"body": 1, "who": 5}', "who"),
        (b'{"body": 1, "body": 2}', "duplicate key"),
        (b'{"body": 1, "headers": {"a": 1}}', "headers"),
        (b'{"body": NaN}', "no message"),
        (b'{"body": ' + b"[" * 500 + b"]" * 500 + b"}", "deeper"),
    ],
)
async def test_what_is_no_message_is_refused_and_not_written(stage: Stage, web: Served, said: bytes, text: str) -> None:
    answer = await web.client.post(
        f"/topics/{stage.topic}/messages", content=said, headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == 400
    assert text in answer.json()["error"]
    assert not stage.admin.exists(stage.topic)


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
async def test_what_a_form_can_send_is_refused(stage: Stage, web: Served, kind: str) -> None:
    answer = await web.client.post(
        f"/topics/{stage.topic}/messages", content=b'{"body": 1}', headers={"Content-Type": kind}
    )
    assert answer.status_code == 415
    assert not stage.admin.exists(stage.topic)


async def test_a_request_that_is_too_long_is_refused_while_it_is_read(stage: Stage) -> None:
    address = f"/topics/{stage.topic}/messages"
    async with served(stage.app, WebOptions(request_bytes=10_000)) as web:
        assert (await web.client.post(address, json={"body": "x" * 9000})).status_code == 201
        assert (await web.client.post(address, json={"body": "x" * 10_000})).status_code == 413
        assert (await half_a_request(web, address)).startswith(b"HTTP/1.1 413 ")
    assert stage.admin.xlen(stage.topic) == 1


async def half_a_request(web: Served, address: str) -> bytes:
    """The answer to a request that does not say how long it is, is too long already, and does not end."""
    host, _, port = web.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head = [f"POST {address} HTTP/1.1", f"Host: {host}", "Content-Type: application/json", "Transfer-Encoding: chunked"]
    writer.write("\r\n".join([*head, "", ""]).encode())
    writer.writelines([b"3e8\r\n" + b"x" * 1000 + b"\r\n"] * 11)
    async with asyncio.timeout(30):
        answer = await reader.readline()
        await reader.read()
    writer.close()
    return answer


async def test_what_cannot_be_stored_is_refused_with_the_reason(stage: Stage, web: Served) -> None:
    address = f"/topics/{stage.topic}/messages"
    naive = await web.client.post(address, json={"body": 1, "time": "2026-01-31T12:00:00"})
    assert naive.status_code == 422
    assert "offset" in naive.json()["error"]
    foreign = await web.client.post("/topics/no such name/messages", json={"body": 1})
    assert foreign.status_code == 400
    stage.admin.set(stage.topic, "a string")
    assert (await web.client.post(address, json={"body": 1})).status_code == 409


async def test_only_topics_that_are_named_may_be_published_to(stage: Stage) -> None:
    async with served(stage.app, WebOptions(write=[stage.topic])) as web:
        assert (await post(web, stage.topic)) == 201
        assert (await post(web, "t:other")) == 403
    async with served(stage.app, WebOptions(write=[])) as web:
        assert (await post(web, stage.topic)) == 403
        assert (await web.client.get(f"/topics/{stage.topic}/messages")).status_code == 405


async def post(web: Served, topic: str, **headers: Any) -> int:
    content = json.dumps({"body": {"n": 1}})
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = await web.client.post(
        f"/topics/{topic}/messages", content=content, headers={"Content-Type": "application/json", **named}
    )
    return answer.status_code
