"""What a look at a group tells: how it stands, who reads for it, and whose turn it is."""

from datetime import datetime, timedelta

from msgspec import Struct


class GroupSighting(Struct, frozen=True):
    """How a group stands on a stream, and what changed since it was last looked at, by whomever.

    Keep the last one you got: a server that came back with older data has older notes too, and only you can then see
    that `last_id` or `entries_added` fell, or bear witness of an entry that it has lost.
    """

    exists: bool
    """The stream is there."""

    group_exists: bool

    paused: bool
    """The group is to read nothing for now."""

    epoch: str | None = None
    """Of this very stream: another one, made under the same name later, has another. None if there is no stream."""

    previous_epoch: str | None = None
    """At the last look, which may be `epoch`; None if there was none."""

    first_id: str | None = None
    """Of the oldest entry; None if there is no entry."""

    last_id: str | None = None
    """Of the newest entry ever added."""

    newest_id: str | None = None
    """Of the newest entry that is there; None if there is none."""

    last_deleted: str | None = None
    """Of the newest entry that was ever deleted by itself, and not trimmed; "0-0" before the first."""

    entries_added: int = 0
    """How many were ever added."""

    length: int = 0

    last_delivered: str | None = None
    """The newest entry the group was given; "0-0" before the first."""

    entries_read: int | None = None
    """How many of `entries_added` the group is past, the missed ones included; None if the server lost count."""

    pending: int = 0

    low_water: str | None = None
    """The oldest pending entry, or `last_delivered` if that is older: everything before it is settled."""

    is_low_held: bool = False
    """`low_water` is pending: if the group vanishes, that entry has to come again too."""

    previous_low_water: str | None = None
    previous_last_delivered: str | None = None

    lag: int | None = None
    """How many entries the group was not given yet; None if the server's numbers do not tell."""

    lag_exact: bool = False
    """`lag` is proved; else it is the server's count, which can be too high after unread entries were trimmed."""

    missed: int = 0
    """How many entries were trimmed or deleted before the group was given them, and no earlier look has counted; one
    that an earlier look told of as `deleted_unread` counts here too, once all before it is gone."""

    missed_since: str | None = None
    """Where the group stood before the first of these, or of what `deleted_unread` tells, went missing."""

    deleted_unread: str | None = None
    """The newest entry known to be trimmed or deleted before the group was given it, where `missed` could not count."""

    fell_back_to: str | None = None
    """If the server lost an entry that was there: the newest before it that is there, "0-0" for none."""

    fell_back_from: str | None = None
    """That entry; no look of this group tells of it again, or of an older one."""


class Consumer(Struct, frozen=True):
    """One reader of a group, as the server knows it."""

    name: str
    pending: int

    idle: timedelta
    """Since it last asked for anything; on Redis 7.0, since it was last given anything."""

    inactive: timedelta | None = None
    """Since it was last given anything; None if it never was, or if the server does not keep it."""


class Turn(Struct, frozen=True):
    """Who may read a topic in sequence, and what the reader comes to next."""

    now: datetime
    holder: str | None
    until: datetime | None
    """When the lease of the holder ends; it is renewed long before."""

    failed_id: str
    """The entry that failed last; empty if none did."""

    failures: int

    @property
    def is_held(self) -> bool:
        return self.holder is not None and self.until is not None and self.until > self.now
