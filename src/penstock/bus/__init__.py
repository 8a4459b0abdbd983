"""The event bus: publish to a topic; every group of handlers gets each message."""
