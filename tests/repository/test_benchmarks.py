"""What benchmarks take from the project itself, and would only miss when they are run in full."""

from benchmarks.growth.whole import script_names
from penstock.backend.redis.scripts import load


def test_commands_of_scripts_are_told_by_the_files_of_these() -> None:
    names = script_names()
    assert names[load("settle").sha] == "settle.lua"
    assert len(names) > 50
