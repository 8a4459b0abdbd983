"""Security fixes of Redis and Valkey, by the release that brought them. Whoever adds one sets `AS_OF`.

Each row is in the projects' own words: the release notes of each line (`00-RELEASENOTES`, and the release pages made
of it), the advisories that these name, and, for which releases belong together, the announcements of the official
container images. What they do not say is not here: no fault that only builds with RDMA have, none before October 2024,
and no line that Penstock does not connect to. A distribution may bring a fix under an older number: then its own
advisory counts, and `--skip` leaves the rule out.
"""

from collections.abc import Mapping, Sequence
from datetime import date
from typing import NamedTuple

AS_OF = date(2026, 11, 16)

Version = tuple[int, ...]


class Advisory(NamedTuple):
    """One release day of fixes."""

    names: str
    what: str
    fixed: tuple[Version, ...]
    """The first release with the fix, in each line that was maintained then. Newer lines never had the fault."""

    since: Version = (0,)
    """The first release with the fault."""

    def concerns(self, version: Version) -> bool:
        """Whether a release has the fault. A line that was not maintained any more never got the fix."""
        if version < self.since:
            return False
        for fix in self.fixed:
            if version[:2] == fix[:2]:
                return version < fix
        return version < max(self.fixed)

    def fix_for(self, version: Version) -> Version:
        """Where to go: the fix in the same line, else the oldest later one."""
        return min(fix for fix in self.fixed if fix > version)


KNOWN: Mapping[str, Sequence[Advisory]] = {
    "redis": (
        Advisory(
            "CVE-2024-31449, CVE-2024-31227, CVE-2024-31228",
            "code execution through a library of scripts; crashes by ACL selectors and patterns",
            ((7, 2, 6), (7, 4, 1)),
        ),
        Advisory("CVE-2024-46981", "code execution by a script", ((7, 2, 7), (7, 4, 2))),
        Advisory(
            "CVE-2025-32023, CVE-2025-48367", "code execution by HyperLogLog commands; connections are refused",
            ((7, 2, 10), (7, 4, 5), (8, 0, 3)),
        ),
        Advisory(
            "CVE-2025-49844, CVE-2025-46817, CVE-2025-46818, CVE-2025-46819", "code execution by a script",
            ((7, 2, 11), (7, 4, 6), (8, 0, 4), (8, 2, 2)),
        ),
        Advisory("CVE-2025-62507", "code execution by XACKDEL", ((8, 2, 3),), since=(8, 2, 0)),
        Advisory(
            "the release of February 2026", "line ends in error replies forge what a connection reads",
            ((7, 2, 13), (7, 4, 8), (8, 0, 6), (8, 2, 5), (8, 4, 2), (8, 6, 1)),
        ),
        Advisory(
            "CVE-2026-23479, CVE-2026-25243, CVE-2026-23631",
            "code execution through clients that were blocked, RESTORE, and scripts",
            ((7, 2, 14), (7, 4, 9), (8, 2, 6), (8, 4, 3), (8, 6, 3)),
        ),
        Advisory(
            "the release of July 2026", "code execution by RESTORE of a stream",
            ((7, 2, 15), (7, 4, 10), (8, 2, 8), (8, 4, 5), (8, 6, 5)),
        ),
        Advisory(
            "CVE-2026-81934 and others of August 2026", "code execution through TLS connections, and by loading data",
            ((7, 2, 16), (7, 4, 11), (8, 2, 9), (8, 4, 6), (8, 6, 6), (8, 8, 2), (8, 10, 1)),
        ),
        # The notes name no older line: whether it has the fault, they do not say.
        Advisory(
            "the release of September 2026", "a transaction uses keys that its user was denied since",
            ((8, 2, 10), (8, 6, 7), (8, 8, 3), (8, 10, 2)), since=(8, 2, 0),
        ),
    ),
    "valkey": (
        Advisory(
            "CVE-2025-32023, CVE-2025-48367", "code execution by HyperLogLog commands; connections are refused",
            ((7, 2, 10), (8, 0, 4), (8, 1, 3)),
        ),
        Advisory(
            "CVE-2025-49844, CVE-2025-46817, CVE-2025-46818, CVE-2025-46819", "code execution by a script",
            ((7, 2, 11), (8, 0, 6), (8, 1, 4)),
        ),
        Advisory(
            "CVE-2025-67733, CVE-2026-21863", "forged replies by error texts of scripts; crash by the cluster bus",
            ((7, 2, 12), (8, 0, 7), (8, 1, 6), (9, 0, 3)),
        ),
        Advisory("CVE-2026-27623", "anybody who can connect can crash it", ((9, 0, 3),), since=(9, 0, 0)),
        Advisory(
            "CVE-2026-23479, CVE-2026-25243, CVE-2026-23631",
            "code execution through clients that were blocked, RESTORE, and a full synchronisation",
            ((7, 2, 13), (8, 0, 9), (8, 1, 7), (9, 0, 4)),
        ),
        Advisory(
            "CVE-2026-56684, CVE-2026-63639", "code execution by CLIENT KILL over TLS, and by loading a stream",
            ((7, 2, 14), (8, 0, 10), (8, 1, 9), (9, 0, 5), (9, 1, 1)),
        ),
        Advisory(
            "GHSA-fq2f-crmw-q97r", "memory of scripts is used after it was freed, by whoever can connect",
            ((9, 1, 2),), since=(9, 1, 0),
        ),
    ),
}  # fmt: skip
