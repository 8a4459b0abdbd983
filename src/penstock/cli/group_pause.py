"""`penstock group pause` and `resume`: whether the workers of a group read."""

from typing import TYPE_CHECKING

from penstock.cli.looking import group_there
from penstock.cli.pausing import paused_until, resumed
from penstock.cli.servers import HERE, At, ask
from penstock.diagnosis.finding import command

if TYPE_CHECKING:
    from penstock.app import Penstock


def pause(topic: str, group: str, /, *, server: At = HERE) -> None:
    """Have the workers of a group read nothing more until it is resumed. What they have in hand they finish.

    Parameters
    ----------
    topic
        Its whole name.
    group
        The group's.
    """

    async def note(app: "Penstock") -> bool:
        was_paused = (await group_there(app, topic, group)).paused
        await app.backend.pause(topic, group)
        return was_paused

    was_paused = ask(server, note)
    print(f"Group {group!r} of {topic!r} {paused_until(was_paused, command('group', 'resume', topic, group))}")


def resume(topic: str, group: str, /, *, server: At = HERE) -> None:
    """Have the workers of a group read again. One that is not paused stays as it is.

    Parameters
    ----------
    topic
        Its whole name.
    group
        The group's. One that is paused need not exist any more.
    """

    async def take_back(app: "Penstock") -> bool:
        was_paused = await app.backend.resume(topic, group)
        if not was_paused:
            await group_there(app, topic, group)
        return was_paused

    was_paused = ask(server, take_back)
    print(f"Group {group!r} of {topic!r} {resumed(was_paused)}")
