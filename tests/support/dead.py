"""The dead letters of a topic, opened."""

import redis

from penstock.backend import keys
from penstock.backend.entry import DeadRecord
from penstock.backend.parcel import split_dead


def dead_letters(admin: "redis.Redis", topic: str) -> list[tuple[DeadRecord, list[bytes]]]:
    """Why each one died, and the fields it died with; oldest first."""
    stored = admin.xrange(keys.dead(topic))
    return [split_dead([part for pair in letter.items() for part in pair]) for _, letter in stored]
