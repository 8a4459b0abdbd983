"""`penstock group pause` and `resume`: whether the workers of a group read."""

from typing import TYPE_CHECKING

from penstock.cli.servers import HERE, At, ask
from penstock.overview import Overview

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

    async def note(app: "Penstock") -> None:
        await Overview(app.backend).group(topic, group)
        await app.backend.pause(topic, group)

    ask(server, note)


def resume(topic: str, group: str, /, *, server: At = HERE) -> None:
    """Have the workers of a group read again. One that is not paused stays as it is.

    Parameters
    ----------
    topic
        Its whole name.
    group
        The group's. It need not exist any more.
    """
    ask(server, lambda app: app.backend.resume(topic, group))
