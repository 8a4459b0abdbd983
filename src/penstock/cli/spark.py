"""`penstock spark doctor`: what Spark needs, what of it is here, how to get the rest."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from penstock.cli.printing import Form, chosen, printing
from penstock.cli.saying import warn
from penstock.cli.tables import Row
from penstock.errors import SetupError
from penstock.spark.start.doctor import Finding, examine

_COLUMNS = ("level", "what", "found", "remedy")


def doctor(*, output: Form = None) -> None:
    """Say what Spark needs, what of it is here, and how to get the rest.

    Exit code 0: a session can start. 1: something is missing or unfit.
    """
    wrong = []
    with _printing(output) as show:
        for finding in examine():
            show(finding)
            sys.stdout.flush()  # one by one: each may take a second
            if finding.remedy:
                wrong.append(finding.what)
    if wrong:
        raise SetupError(f"Spark cannot start here; see above what to do about {', '.join(wrong)}")
    warn("Spark can start: penstock.spark.session()")


@contextmanager
def _printing(form: str | None) -> Iterator[Callable[[Finding], object]]:
    """For people a remedy has a line of its own, as long as it is: for copying."""
    if chosen(form) == "table":
        yield lambda finding: sys.stdout.write(f"{_line(finding)}\n")
        return
    with printing(form, _COLUMNS) as printer:
        yield lambda finding: printer.write(_row(finding))


def _row(finding: Finding) -> Row:
    level = "wrong" if finding.remedy else "ok"
    return {"level": level, "what": finding.what, "found": finding.found, "remedy": finding.remedy or None}


def _line(finding: Finding) -> str:
    mark = "WRONG" if finding.remedy else "ok"
    besides = f" ({finding.besides})" if finding.besides else ""
    remedy = f"\n       {'':<20}-> {finding.remedy}{besides}" if finding.remedy else ""
    return f"{mark:<7}{finding.what:<20}{finding.found}{remedy}"
