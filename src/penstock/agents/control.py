"""Telling an agent what to do, wherever it runs."""

from typing import TYPE_CHECKING

from penstock.agents.bodies import Command, Order
from penstock.agents.topics import check_agent, control_topic
from penstock.bus.publisher import Receipt

if TYPE_CHECKING:
    from penstock.app import Penstock


class Control:
    """Commands to one agent. They return when the command is stored; every process of the agent obeys by itself."""

    def __init__(self, app: "Penstock", agent: str) -> None:
        self.agent = check_agent(agent)
        self.topic = control_topic(agent)
        self._bus = app.bus(self.topic)

    async def pause(self, reason: str = "") -> Receipt:
        """Have it take up no more messages, within about a second; what it is doing goes on. Lasts over restarts."""
        return await self._tell(Order.PAUSE, reason)

    async def resume(self, reason: str = "") -> Receipt:
        return await self._tell(Order.RESUME, reason)

    async def stop(self, reason: str = "") -> Receipt:
        """Have it drain and end in every process where it runs now. One that is started later is not concerned."""
        return await self._tell(Order.STOP, reason)

    async def _tell(self, order: Order, reason: str) -> Receipt:
        return await self._bus.publish(Command(order, reason), once=True)
