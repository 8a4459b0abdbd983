"""One attempt at a job, as its handler sees it."""

from typing import TYPE_CHECKING, TypeVar

from penstock.delivery.delivery import Delivery
from penstock.errors import ConfigurationError, JobCancelledError
from penstock.options import Priority

if TYPE_CHECKING:
    from penstock.jobs.doing import Doing

T = TypeVar("T")


class JobDelivery(Delivery[T], frozen=True, gc=False):
    """A job, and what is known of this attempt at it. Leased to this process until it is settled."""

    @property
    def queue(self) -> str:
        return self._doing.queue

    @property
    def priority(self) -> Priority:
        return self._doing.priority_of(self.topic)

    @property
    def metadata(self) -> dict[str, str]:
        """What whoever enqueued it said beside the body."""
        return self.headers

    def progress(self, percent: int, message: str = "") -> None:
        """Say how far it is, from 0 to 100. Works in a thread too; others see it within a second."""
        if not isinstance(percent, int) or isinstance(percent, bool) or not 0 <= percent <= 100:
            raise ConfigurationError(f"progress is a whole number from 0 to 100, not {percent!r}")
        if not isinstance(message, str):
            raise ConfigurationError(f"what is said of the progress is text, not {message!r}")
        self._doing.progressed(self, percent, message)

    @property
    def is_cancelled(self) -> bool:
        """Whether somebody wants it to end. An `async def` is cancelled then; a thread must look here, or `check()`."""
        return self._doing.is_cancelled(self.id)

    def check(self) -> None:
        """Raise `JobCancelledError` if it is to end; let that pass, and the job is cancelled."""
        if self.is_cancelled:
            raise JobCancelledError(f"job {self.id} is to end")

    @property
    def _doing(self) -> "Doing":
        doing: Doing = self.desk.context
        return doing
