"""Whoever reads the runbook at night can type what it says: its commands are whole."""

import re
import shlex

import pytest

from penstock.cli.tree import app as command_line
from tests.support.pages import ROOT

PAGE = (ROOT / "docs" / "runbook.md").read_text()
COMMANDS = sorted(set(re.findall(r"`(penstock [^`]+)`", PAGE)))


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_in_the_text_is_one_that_penstock_takes(command: str) -> None:
    command_line.parse_args(shlex.split(command)[1:], exit_on_error=False, print_error=False)


def test_every_alarm_worth_having_leads_to_what_to_do() -> None:
    metrics = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    alarms = metrics.partition("Alarms worth having:")[2].partition("\n\n")[0]
    names = set(re.findall(r"penstock_\w+", alarms))
    assert names
    assert names <= set(re.findall(r"penstock_\w+", PAGE.partition("## ")[0]))
