"""What a manager has done so far, counted from what it tells its listeners."""

from penstock.events import DeadLettered, Event, Failed, Handled


class Tally:
    """A listener. Counts for this process alone; what the server holds is in `get_health`."""

    def __init__(self) -> None:
        self.read = 0
        """Messages that were handed out; nobody tells of them, so whoever hands them out counts here."""

        self.acknowledged = 0
        self.failed = 0
        self.dead = 0

    def __call__(self, event: Event) -> None:
        if isinstance(event, Handled):
            self.acknowledged += event.count
        elif isinstance(event, Failed):
            self.failed += 1
        elif isinstance(event, DeadLettered):
            self.dead += 1
