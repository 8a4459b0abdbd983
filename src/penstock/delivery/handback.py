"""Giving up what was not begun, so that others can have it at once."""

from collections.abc import Collection

from penstock.delivery.duty import Duty
from penstock.delivery.holdings import Holdings, Place


async def hand_back(duty: Duty, holdings: Holdings, places: Collection[Place]) -> int:
    """Hand these entries back; returns how many were still ours."""
    plan, count = duty.plan, 0
    # Forgotten first: a renewal that came after the release would make them ours again.
    holdings.forget(places)
    for stream in plan.streams:
        if ids := [id for where, id in places if where == stream]:
            count += len(ids) - len(await duty.backend.release(stream, plan.group, plan.consumer, ids))
    return count
