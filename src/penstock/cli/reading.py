"""What `penstock pipeline archive`, `metrics` and `alerts` have in common: from where Spark reads, and how."""

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from penstock.cli.servers import Server


@dataclass(frozen=True, kw_only=True)
class Reading(Server):
    """Of topics, by Spark."""

    master: str | None = None
    """Where Spark runs, like local[2] or spark://host:7077; on all cores of this machine unless given."""

    partitions: int | None = None
    """Cut what there is to read into at least so many tasks; without it each topic is one."""

    allow_loss: Annotated[bool, Parameter(negative=(), show_default=False)] = False
    """Go on with what is there although entries were lost before they were read, and tell how many."""

    @property
    def options(self) -> dict[str, str]:
        """Those of the source."""
        split = {} if self.partitions is None else {"minPartitions": str(self.partitions)}
        return split | ({"failOnDataLoss": "false"} if self.allow_loss else {})
