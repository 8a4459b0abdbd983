"""What every part of a worker has at hand: the terms it works on, the server, and whom to tell."""

from typing import Any

from penstock.backend.base import StreamBackend
from penstock.delivery.plan import Plan
from penstock.events import Event, Listeners, Scope, Trouble


class Duty:
    """One group of one topic, as one consumer."""

    def __init__(self, plan: Plan, backend: StreamBackend, listeners: Listeners, context: Any = None) -> None:
        self.plan = plan
        self.backend = backend
        self.context = context
        """Whatever a face wants its deliveries to find."""

        self._listeners = listeners
        self.is_stopping = False
        """Nothing that was not begun is to be begun any more."""

    def tell(self, kind: type[Event], *facts: Any) -> None:
        """Tell listeners of an event of this topic and group."""
        self._listeners.emit(kind(*facts, topic=self.plan.topic, group=self.plan.group))

    def trouble(self, scope: Scope, error: BaseException) -> None:
        self.tell(Trouble, scope, error)
