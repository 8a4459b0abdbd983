"""An observer hears of errors, each with the part of the work in which it happened, and of nothing else."""

from penstock import events
from penstock.events import Listeners, Scope
from penstock.telemetry import ErrorObserver, observe

WHERE = {"topic": "orders", "group": "billing"}


class Ear:
    def __init__(self) -> None:
        self.heard: list[tuple[Scope, BaseException, str, str]] = []

    def on_error(self, scope: Scope, error: BaseException, topic: str, group: str) -> None:
        self.heard.append((scope, error, topic, group))


def test_troubles_and_failures_are_heard_of_and_nothing_else() -> None:
    ear = Ear()
    observer: ErrorObserver = ear
    listeners = Listeners()
    stop = listeners.listen(observe(observer))
    errors = [RuntimeError(str(number)) for number in range(len(Scope))]
    for scope, error in zip(Scope, errors, strict=True):
        listeners.emit(events.Trouble(scope, error, **WHERE))
    failure = ValueError()
    listeners.emit(events.Failed("u", "1-1", None, 1, failure, **WHERE))
    listeners.emit(events.DeadLettered("u", "1-1", 5, "why", "", **WHERE))
    listeners.emit(events.Handled(1, 0.1, **WHERE))
    expected = [(scope, error, "orders", "billing") for scope, error in zip(Scope, errors, strict=True)]
    assert ear.heard == [*expected, (Scope.HANDLER, failure, "orders", "billing")]
    stop()
    listeners.emit(events.Trouble(Scope.READ, failure, **WHERE))
    assert len(ear.heard) == len(expected) + 1
