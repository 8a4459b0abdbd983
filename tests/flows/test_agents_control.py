"""A running agent obeys its control topic: pause, resume and stop, in every process, in the order they were said."""

import asyncio
import json
from datetime import timedelta

import pytest

from penstock import Delivery, Subscription, events
from penstock.agents import Agent, ChatMessage, Control, Conversation
from penstock.backend import keys
from penstock.backend.redis.scripts import load
from penstock.errors import MalformedError, WrongKeyTypeError
from penstock.events import PauseChanged, Started, Trouble
from penstock.message.ids import new_id
from tests.support.proxy import Proxy
from tests.support.servers import Server
from tests.support.stage import Stage

BOTH = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)


@pytest.fixture
def name() -> str:
    """Of an agent that nobody else uses."""
    return f"agent-{new_id()}"


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker looks every second whether it is paused; these tests would mostly wait for that."""
    monkeypatch.setattr("penstock.delivery.worker._LOOK_SECONDS", 0.05)


def listening(stage: Stage, name: str, options: Subscription | None = None) -> tuple[Agent, list[str]]:
    agent, heard = Agent(stage.app, name, options=options or Subscription()), list[str]()

    @agent.hears
    async def hear(delivery: Delivery[ChatMessage]) -> None:
        heard.append(delivery.body.content)

    return agent, heard


def pauses(stage: Stage) -> list[bool]:
    return [one.paused for one in stage.told(PauseChanged)]


async def tell(stage: Stage, name: str, *contents: str) -> None:
    for content in contents:
        await Conversation(stage.app).say(content, to=name)


@BOTH
async def test_a_pause_holds_until_it_is_taken_back(stage: Stage, name: str) -> None:
    (agent, heard), control = listening(stage, name), Control(stage.app, name)
    async with stage.running(agent.bus):
        await tell(stage, name, "one")
        await stage.until(lambda: heard == ["one"])
        await control.pause()
        await stage.until(lambda: pauses(stage) == [True])
        await tell(stage, name, "two")
        assert stage.left(name, f"chat:{name}")["topic unread"] == 1
        (seen,) = (await stage.app.backend.inspect(f"chat:{name}")).groups
        assert seen.paused, "operators see it too"
        await control.resume()
        await stage.until(lambda: heard == ["one", "two"])
    assert pauses(stage) == [True, False]


async def test_a_pause_said_while_nobody_ran_holds_from_the_first_moment(stage: Stage, name: str) -> None:
    agent, heard = listening(stage, name)
    control = Control(stage.app, name)
    await tell(stage, name, "early")
    await control.resume()
    await control.pause()
    stage.admin.xadd(f"control:{name}", {"payload": "no json"})
    await control.stop("was for those who ran then")
    async with stage.running(agent.bus):
        await stage.until(lambda: pauses(stage) == [True])
        assert stage.left(name, f"chat:{name}")["topic unread"] == 1
        assert heard == []
        await control.resume()
        await stage.until(lambda: heard == ["early"])


async def test_a_pause_is_found_behind_many_other_entries(stage: Stage, name: str) -> None:
    agent, heard = listening(stage, name)
    await tell(stage, name, "early")
    await Control(stage.app, name).pause()
    for _ in range(250):
        stage.admin.xadd(f"control:{name}", {"payload": json.dumps({"command": "stop"})})
    async with stage.running(agent.bus):
        await stage.until(lambda: pauses(stage) == [True])
        assert heard == []


@BOTH
async def test_stop_ends_the_agent_in_every_process_and_nothing_else(stage: Stage, name: str) -> None:
    other_name = f"agent-{new_id()}"
    agent, _ = listening(stage, name)
    other, heard = listening(stage, other_name)
    async with stage.another() as second:
        twin, _ = listening(second, name)
        async with stage.running(agent.bus, other.bus) as run:
            twin_run = second.start(twin.bus)
            await second.until(lambda: second.told(Started))
            await Control(stage.app, name).stop("enough")
            async with asyncio.timeout(10):
                await twin_run
            await stage.until(lambda: stage.told(events.Stopped, name))
            await tell(stage, other_name, "still here")
            await stage.until(lambda: heard == ["still here"])
            assert not run.done()
        second.run = None


async def test_a_stopped_agent_can_be_run_again_and_is_not_stopped_by_the_same_command(stage: Stage, name: str) -> None:
    agent, heard = listening(stage, name)
    run = stage.start(agent.bus)
    await stage.until(lambda: stage.told(Started))
    await Control(stage.app, name).stop()
    async with asyncio.timeout(10):
        await run
    await tell(stage, name, "again")
    async with stage.running(agent.bus) as run:
        await stage.until(lambda: heard == ["again"])
        assert not run.done()


async def test_a_process_that_reads_late_takes_nothing_back(stage: Stage, proxy: Proxy, name: str) -> None:
    """The twin obeys the pause when the resume is long obeyed, and never gets any further."""
    agent, heard = listening(stage, name)
    control = Control(stage.app, name)
    async with Stage(proxy.url, stage.admin, stage.topic) as late:
        twin, heard_late = listening(late, name, Subscription(drain=timedelta(0)))
        late.start(twin.bus)
        await late.until(lambda: late.told(Started))
        async with stage.running(agent.bus):
            proxy.stall()
            await control.pause()
            await stage.until(lambda: pauses(stage) == [True])
            await control.resume()
            await stage.until(lambda: pauses(stage) == [True, False])
            proxy.refusing = True
            proxy.drop_reply_to(load("obey").sha)
            proxy.flow()
            await late.until(lambda: proxy.dropped)
            assert not stage.admin.exists(keys.paused(f"chat:{name}"))
            proxy.cut()
            await tell(stage, name, "hello")
            await stage.until(lambda: [*heard, *heard_late] == ["hello"])
        late.app.stop()


async def test_what_is_no_command_is_told_and_passed_by(stage: Stage, name: str) -> None:
    agent, _ = listening(stage, name)
    async with stage.running(agent.bus) as run:
        for payload in ("[", '{"command":"dance"}', '"pause"'):
            stage.admin.xadd(f"control:{name}", {"payload": payload})
        await Control(stage.app, name).pause()
        await stage.until(lambda: pauses(stage) == [True])
        told = [one.error for one in stage.told(Trouble) if isinstance(one.error, MalformedError)]
        assert [error.topic for error in told] == [f"control:{name}"] * 3
        assert not run.done()


async def test_a_control_topic_that_is_made_anew_is_obeyed(stage: Stage, name: str) -> None:
    agent, heard = listening(stage, name)
    control = Control(stage.app, name)
    async with stage.running(agent.bus):
        await control.pause()
        await stage.until(lambda: pauses(stage) == [True])
        stage.admin.delete(f"control:{name}")
        await control.resume()
        await tell(stage, name, "hello")
        await stage.until(lambda: heard == ["hello"])
    assert [gap.reason for gap in stage.told(events.Gapped)] == ["recreated"]


async def test_a_server_that_fell_back_is_asked_for_the_last_word(stage: Stage, name: str) -> None:
    """What was read may be gone, and what is in its place comes to nobody who has read further."""
    agent, _ = listening(stage, name)
    topic, inbox, pause = f"control:{name}", f"chat:{name}", {"payload": '{"command": "pause"}'}
    stage.admin.xadd(topic, {"payload": '{"command": "resume"}'}, id="5-0")
    async with stage.running(agent.bus):
        old = stage.admin.dump(topic)
        stage.admin.xadd(topic, pause, id="9-0")
        await stage.until(lambda: stage.admin.sismember(keys.paused(inbox), name))
        stage.admin.delete(keys.paused(inbox), keys.obeyed(inbox))
        stage.admin.restore(topic, 0, old, replace=True)
        stage.admin.xadd(topic, pause, id="7-0")
        stage.admin.xadd(topic, {"payload": "null"}, id="10-0")  # so that it is noticed at once
        await stage.until(lambda: stage.admin.sismember(keys.paused(inbox), name))
        assert stage.admin.hget(keys.obeyed(inbox), name).endswith(b" 7-0")
    assert [gap.reason for gap in stage.told(events.Gapped)] == ["rolled back"]


STOP, RESUME, PAUSE = ({"payload": f'{{"command": "{order}"}}'} for order in ("stop", "resume", "pause"))


async def test_a_stop_that_a_server_which_fell_back_has_instead_is_obeyed(stage: Stage, name: str) -> None:
    agent, _ = listening(stage, name)
    topic, inbox = f"control:{name}", f"chat:{name}"
    for id, command in {"3-0": RESUME, "4-0": STOP, "5-0": RESUME}.items():
        stage.admin.xadd(topic, command, id=id)
    async with stage.running(agent.bus) as run:
        old = stage.admin.dump(topic)
        stage.admin.xadd(topic, PAUSE, id="9-0")
        await stage.until(lambda: stage.admin.sismember(keys.paused(inbox), name))
        with stage.admin.pipeline(transaction=True) as at_once:
            at_once.delete(keys.paused(inbox), keys.obeyed(inbox))
            at_once.restore(topic, 0, old, replace=True)
            for id, command in {"6-0": STOP, "7-0": RESUME}.items():
                at_once.xadd(topic, command, id=id)
            at_once.execute()
        stage.admin.xadd(topic, {"payload": "null"}, id="10-0")  # so that it is noticed at once
        await stage.until(run.done)
    assert [gap.reason for gap in stage.told(events.Gapped)] == ["rolled back"]
    assert stage.admin.hget(keys.obeyed(inbox), name).endswith(b" 7-0"), "the last word on pausing counts all the same"


async def test_a_stop_from_before_it_ran_is_not_for_it_though_the_server_falls_back(stage: Stage, name: str) -> None:
    agent, _ = listening(stage, name)
    topic, inbox = f"control:{name}", f"chat:{name}"
    for id, command in {"3-0": RESUME, "4-0": STOP}.items():
        stage.admin.xadd(topic, command, id=id)
    async with stage.running(agent.bus) as run:
        old = stage.admin.dump(topic)
        stage.admin.xadd(topic, RESUME, id="9-0")
        await stage.until(lambda: (stage.admin.hget(keys.obeyed(inbox), name) or b"").endswith(b" 9-0"))
        stage.admin.delete(keys.obeyed(inbox))
        stage.admin.restore(topic, 0, old, replace=True)
        stage.admin.xadd(topic, {"payload": "null"}, id="10-0")
        await stage.until(lambda: (stage.admin.hget(keys.obeyed(inbox), name) or b"").endswith(b" 3-0"))
        stage.admin.xadd(topic, PAUSE, id="11-0")
        await stage.until(lambda: stage.admin.sismember(keys.paused(inbox), name))
        assert not run.done()


async def test_an_agent_that_cannot_be_controlled_does_not_start(stage: Stage, name: str) -> None:
    agent, _ = listening(stage, name)
    stage.admin.set(f"control:{name}", "in the way")
    with pytest.raises(WrongKeyTypeError, match=f"control:{name}"):
        await stage.app.run(agent.bus, signals=False)


async def test_an_agent_ends_while_its_server_is_away(server: Server, stage: Stage, proxy: Proxy, name: str) -> None:
    async with Stage(proxy.url, stage.admin, stage.topic) as cut_off:
        agent, _ = listening(cut_off, name, Subscription(drain=timedelta(0)))
        run = cut_off.start(agent.bus)
        await cut_off.until(lambda: cut_off.told(Started))
        proxy.refusing = True
        proxy.cut()
        await cut_off.until(lambda: cut_off.told(Trouble))
        cut_off.app.stop()
        async with asyncio.timeout(20):
            await run
        cut_off.run = None


async def test_an_agent_survives_its_servers_restart_and_hears_its_commands(
    stage: Stage, proxy: Proxy, name: str
) -> None:
    async with Stage(proxy.url, stage.admin, stage.topic) as shaken:
        agent, heard = listening(shaken, name)
        async with shaken.running(agent.bus):
            proxy.cut()
            await Control(stage.app, name).pause()
            await shaken.until(lambda: pauses(shaken) == [True])
            proxy.cut()
            await Control(stage.app, name).resume()
            await tell(stage, name, "hello")
            await shaken.until(lambda: heard == ["hello"])


def test_control_names_no_conversation(stage: Stage) -> None:
    with pytest.raises(ValueError, match="agent's name"):
        Control(stage.app, "42")
