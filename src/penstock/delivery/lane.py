"""One topic's part of a worker: what is leased of it, where its outcomes go, and how it stands.

A bus's worker has one. That of a queue has one for each priority, and one crew for all of them.
"""

from penstock.delivery.admission import Admission
from penstock.delivery.desk import Desk
from penstock.delivery.duty import Duty
from penstock.delivery.holdings import Holdings
from penstock.delivery.intake import Intake
from penstock.delivery.outlook import Outlook
from penstock.delivery.promoter import Promoter
from penstock.delivery.settlement import Settlement


class Lane:
    """The parts that belong to one topic."""

    def __init__(self, duty: Duty) -> None:
        self.duty = duty
        self.plan = duty.plan
        self.holdings = Holdings()
        self.lost = self.holdings.lost
        """What another consumer took while we held it."""

        self.promoter = Promoter(duty)
        self.desk = Desk(duty, self.holdings, Settlement(duty, on_park=self.promoter.expect))
        self.intake = Intake(self)
        self.admission = Admission(self)
        self.outlook = Outlook(duty)
