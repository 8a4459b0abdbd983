"""What one change stream is to read, as whom, and on which terms."""

from dataclasses import dataclass, field
from datetime import timedelta

from penstock.backend import keys
from penstock.delivery.plan import Plan
from penstock.options import LEASE, ChangeOptions, Subscription, check_count, check_duration, check_kind, check_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Checked."""

    topic: str
    reader: str

    start: str = "0"
    """Where a reader that does not exist yet begins: an entry id, "0" for all there is, "$" for what comes."""

    lease: timedelta = LEASE
    coalesce: int = 1
    options: ChangeOptions = field(default_factory=ChangeOptions)
    buffer_bytes: int = 16 * 1024 * 1024

    holder: str = ""
    """Shown to people. What the server is told is made unique when reading begins: two of one name, as of a process
    that was forked since, would share the turn."""

    def __post_init__(self) -> None:
        keys.check_topic(self.topic)
        check_name("reader", self.reader)
        keys.check_name("group", self.reader)
        check_duration("the lease", self.lease, least=timedelta(milliseconds=100))
        check_count("coalesce", self.coalesce)
        check_kind("options", self.options, ChangeOptions)
        if self.holder:
            check_name("holder", self.holder)

    @property
    def plan(self) -> Plan:
        """The same for those who look after the topic."""
        kept = Subscription(retention=self.options.retention, dead_letters=self.options.dead_letters)
        return Plan(topic=self.topic, group=self.reader, lease=self.lease, options=kept)
