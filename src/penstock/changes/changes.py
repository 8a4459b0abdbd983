"""The change stream of an app, which can be published to as well."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from penstock.changes.ground import Ground
from penstock.changes.opening import Opening
from penstock.changes.stream import ChangeStream
from penstock.changes.terms import Terms

if TYPE_CHECKING:
    from penstock.bus.publisher import Receipt
    from penstock.delivery.letters import DeadLetters

T = TypeVar("T")


class Publish(Protocol):
    """How a message gets onto the topic: as any other, see `Bus.publish`."""

    async def __call__(
        self,
        body: Any,
        *,
        key: str | None = None,
        id: str | None = None,
        headers: Mapping[str, str] | None = None,
        once: bool = False,
    ) -> "Receipt": ...


class Changes(ChangeStream[T]):
    """A change stream of an app. Made by `Penstock.changes`."""

    def __init__(
        self, terms: Terms, ground: Ground, opening: Opening, publish: Publish, dead: "Callable[[], DeadLetters]"
    ) -> None:
        super().__init__(terms, ground, opening)
        self._publish = publish
        self._dead = dead

    @property
    def dead(self) -> "DeadLetters":
        """The dead letters of this reader. They cannot be replayed: there is no place for them in its order."""
        return self._dead()

    async def publish(
        self,
        body: T,
        *,
        key: str | None = None,
        id: str | None = None,
        headers: Mapping[str, str] | None = None,
        once: bool = False,
    ) -> "Receipt":
        """Append a change; it is on the server when this returns. As `Bus.publish`."""
        return await self._publish(body, key=key, id=id, headers=headers, once=once)
