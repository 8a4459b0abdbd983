"""For those who only want to hear of errors."""

from typing import Protocol

from penstock.errors import ConfigurationError
from penstock.events import Event, Failed, Listener, Scope, Trouble, check_called


class ErrorObserver(Protocol):
    """Somebody who is told of every error, with the part of the work in which it happened."""

    def on_error(self, scope: Scope, error: BaseException, topic: str, group: str) -> None:
        """Called where the error happens, sometimes in the lease thread: be quick, do not block.

        `HANDLER`: a handler raised, or ran out of time; its message is tried again or dead-lettered. `DROP`: a message
        was lost on account of it, as a group that acks on receipt has chosen. All others: the engine tries again, or,
        in `UPKEEP`, does without what it may not do. `group` is empty where only a publisher is concerned.
        """
        ...


def observe(observer: ErrorObserver) -> Listener:
    """The listener that tells `observer`: `app.listen(observe(mine))`."""
    if not hasattr(observer, "on_error"):
        raise ConfigurationError(f"an observer has on_error(scope, error, topic, group); {observer!r} has not")
    check_called("an observer's on_error", observer.on_error)

    def tell(event: Event) -> None:
        if isinstance(event, Trouble):
            observer.on_error(event.scope, event.error, event.topic, event.group)
        elif isinstance(event, Failed):
            observer.on_error(Scope.HANDLER, event.error, event.topic, event.group)

    return tell
