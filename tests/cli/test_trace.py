"""`penstock trace` without a lake, against a real server."""

import redis

from penstock.message.ids import new_id
from tests.support.command_line import CommandLine


def test_the_server_tells_where_a_message_is(penstock: CommandLine, client: redis.Redis) -> None:
    (receipt,) = penstock("publish", "orders", "1").rows
    client.xgroup_create("orders", "billing", "0")
    published, there, unread = penstock("trace", receipt["id"].upper()).rows
    assert (published["what"], published["topic"], published["entry_id"]) == (
        "published",
        "orders",
        receipt["entry_id"],
    )
    assert (there["what"], there["detail"]) == ("now", "on the topic")
    assert (unread["group"], unread["detail"]) == ("billing", "not read yet")
    client.xreadgroup("billing", "w1", {"orders": ">"})
    assert "being handled by consumer w1" in penstock("trace", receipt["id"]).rows[2]["detail"]
    assert "on the topic" in penstock("trace", receipt["id"], terminal=True).out


def test_what_the_server_does_not_know_is_exit_code_3(penstock: CommandLine, unreachable: CommandLine) -> None:
    assert "knows nothing of message" in penstock.refused("trace", new_id(), code=3)
    assert "is no UUID" in penstock.refused("trace", "7-0", code=2)
    unreachable.refused("trace", new_id(), code=4)
