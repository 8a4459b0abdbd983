"""`penstock doctor`: what is wrong with the server, its topics, and this machine."""

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from penstock.cli.findings import Skip, print_findings, without
from penstock.cli.moments import Span
from penstock.cli.printing import Form
from penstock.cli.servers import HERE, At, ask
from penstock.cli.usage import UsageError

if TYPE_CHECKING:
    from penstock.app import Penstock
    from penstock.diagnosis.finding import Finding


def doctor(
    *,
    quiet: Span = timedelta(minutes=2),
    abandoned: Span = timedelta(days=1),
    skip: Skip = None,
    machine: Annotated[bool, Parameter(negative="--no-machine")] = True,
    output: Form = None,
    server: At = HERE,
) -> None:
    """Say what is wrong with the server, its topics and groups, and with Java and Spark here. Changes nothing.

    Exit code 0: healthy. 1: something is wrong; each finding says what it is known by, and what mends it.

    Parameters
    ----------
    quiet
        Who was silent for longer, and holds entries, is dead.
    abandoned
        A group that nobody has read with for longer is not expected back.
    skip
        Leave out the findings of this rule; may be given several times.
    machine
        Look at Java, pandas and Spark on this machine too.
    """
    from penstock.diagnosis.case import Patience
    from penstock.diagnosis.diagnosis import DOCTORS, Diagnosis

    if strange := set(skip or ()) - {*DOCTORS, "spark"}:
        known = ", ".join(sorted((*DOCTORS, "spark")))
        raise UsageError(f"there is no rule {sorted(strange)[0]!r}: there are {known}.")
    patience = Patience(quiet=quiet, abandoned=abandoned)

    async def examine(app: "Penstock") -> "list[Finding]":
        return await Diagnosis(app.backend, patience).doctor()

    found = ask(server, examine) + (_machine() if machine else [])
    print_findings(without(found, skip), output, fine=f"{server.address()} is healthy")


def _machine() -> "list[Finding]":
    """What Spark lacks here. That it is not installed at all is no fault: Penstock works without."""
    from penstock.diagnosis.finding import Finding
    from penstock.spark.start.doctor import examine, missing

    if "pyspark" in missing():
        what, remedy, besides = "Spark is not installed", "pip install 'penstock[spark]'", "if this is to run pipelines"
        return [Finding(rule="spark", subject="this machine", what=what, remedy=remedy, besides=besides, level="note")]
    return [
        Finding(
            rule="spark", subject=f"this machine: {one.what}", what=one.found, remedy=one.remedy, besides=one.besides
        )
        for one in examine()
        if one.remedy
    ]
