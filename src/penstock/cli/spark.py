"""`penstock spark doctor`: what Spark needs, what of it is here, how to get the rest."""

from penstock.errors import SetupError
from penstock.spark.start.doctor import Finding, examine


def doctor() -> None:
    """Say what Spark needs, what of it is here, and how to get the rest.

    Exit code 0: a session can start. 1: something is missing or unfit.
    """
    findings = []
    for finding in examine():
        print(line(finding), flush=True)  # one by one: each may take a second
        findings.append(finding)
    if wrong := [finding.what for finding in findings if finding.remedy]:
        raise SetupError(f"Spark cannot start here; see above what to do about {', '.join(wrong)}")
    print("\nSpark can start: penstock.spark.session()")


def line(finding: Finding) -> str:
    mark = "WRONG" if finding.remedy else "ok"
    besides = f" ({finding.besides})" if finding.besides else ""
    remedy = f"\n       {'':<20}-> {finding.remedy}{besides}" if finding.remedy else ""
    return f"{mark:<7}{finding.what:<20}{finding.found}{remedy}"
