"""An agent: its inbox, who handles it, and the commands it obeys."""

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.agents.bodies import ChatMessage
from penstock.agents.obedience import Obedience
from penstock.agents.topics import check_agent, control_topic, inbox_topic
from penstock.options import LEASE, Retry, Subscription

if TYPE_CHECKING:
    from penstock.app import Penstock

F = TypeVar("F", bound=Callable[[Any], Any])


class Agent:
    """Delivers what is said to an agent, in as many processes as run it. `app.run()` or `penstock run` runs it.

    `bus` is its inbox, read by a group of the agent's name: everything that holds of a bus holds here. While it runs it
    obeys `Control`: a pause that was asked for while it did not run holds from its first moment on.
    """

    def __init__(
        self,
        app: "Penstock",
        name: str,
        *,
        retry: Retry = Retry(),  # noqa: B008 - frozen
        lease: timedelta = LEASE,
        options: Subscription = Subscription(),  # noqa: B008 - frozen
    ) -> None:
        self.name = check_agent(name)
        self.bus = app.bus(inbox_topic(name), group=name, retry=retry, lease=lease, options=options)
        self.bus.accompany(Obedience(app, self.bus, control_topic(name)))

    def hears(self, function: F) -> F:
        """Register what handles each message, a function of one `Delivery[ChatMessage]`."""
        return self.bus.on(ChatMessage)(function)

    def __repr__(self) -> str:
        return f"<Agent {self.name}>"
