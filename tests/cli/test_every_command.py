"""Every command of the tree: wrong arguments, a server that is not there, and one where nothing is."""

from pathlib import Path

import pytest
import redis
from cyclopts import Argument

from penstock.lake import Lake
from tests.support.answers import FORMS, read
from tests.support.command_line import CommandLine
from tests.support.commands import ROWS, RULES, Leaf, leaves, wrong_values
from tests.support.started import Started

every_leaf = pytest.mark.parametrize("leaf", leaves().values(), ids=lambda leaf: leaf.name.replace(" ", "-"))


def those(**of: str) -> pytest.MarkDecorator:
    """The commands with these facts in their rows."""
    found = [leaf for leaf in leaves().values() if all(getattr(leaf.row, name) == fact for name, fact in of.items())]
    return pytest.mark.parametrize("leaf", found, ids=lambda leaf: leaf.name.replace(" ", "-"))


@pytest.fixture
def places(tmp_path: Path) -> dict[str, str]:
    """What the rows name beside what is on a server."""
    rules = tmp_path / "rules.toml"
    rules.write_text(RULES)
    return {"lake": str(Lake.create(tmp_path / "lake").path), "rules": str(rules)}


def test_every_command_has_a_row_and_every_row_a_command() -> None:
    assert sorted(ROWS) == sorted(leaves())


@every_leaf
def test_wrong_arguments_are_exit_code_2_and_one_line(
    leaf: Leaf, unreachable: CommandLine, places: dict[str, str]
) -> None:
    command = leaf.command(**places)
    for at in range(len(leaf.words), len(command) + 1):
        unreachable.refused(*command[:at], "--nonsense", *command[at:], code=2)
    for argument in leaf.arguments:
        if argument.required:
            unreachable.refused(*without(leaf, command, argument), code=2)
    positional = [one for one in leaf.arguments if one.index is not None]
    if not any(one.field_info.kind is one.field_info.VAR_POSITIONAL for one in positional):
        unreachable.refused(*leaf.words, *("superfluous" for _ in range(len(positional) + 1)), code=2)


@every_leaf
def test_every_argument_is_explained(leaf: Leaf) -> None:
    assert [one.name for one in leaf.arguments if one.show and not one.parameter.help] == []


@every_leaf
def test_values_that_cannot_be_are_exit_code_2_and_say_which(
    leaf: Leaf, penstock: CommandLine, places: dict[str, str]
) -> None:
    command = leaf.command(**places)
    for argument in leaf.arguments:
        for value in wrong_values(argument):
            said = penstock.refused(*with_value(leaf, command, argument, value), code=2)
            assert value in said or argument.name in said


def without(leaf: Leaf, command: list[str], argument: Argument) -> list[str]:
    if argument.index is not None:
        return command[: len(leaf.words) + argument.index]
    at = command.index(argument.name)
    return command[:at] + command[at + 2 :]


def with_value(leaf: Leaf, command: list[str], argument: Argument, value: str) -> list[str]:
    if argument.index is None:
        return [*command, f"{argument.name}={value}"]
    at = len(leaf.words) + argument.index
    return [*command[:at], value, *command[at + 1 :]]


@those(asks="a server")
def test_a_server_that_is_not_there_is_exit_code_4_and_one_line_that_names_it(
    leaf: Leaf, unreachable: CommandLine, places: dict[str, str]
) -> None:
    assert "/nobody" in unreachable.refused(*leaf.command(**places), code=4)


@those(asks="a server")
def test_without_a_server_none_is_made_up(leaf: Leaf, nowhere: CommandLine, places: dict[str, str]) -> None:
    assert "no server: give --url or --context" in nowhere.refused(*leaf.command(**places), code=2)


@pytest.mark.parametrize("name", ["run", "serve"])
def test_a_service_whose_server_is_not_there_ends_likewise(name: str, tmp_path: Path) -> None:
    with Started(*leaves()[name].command(), url=f"unix://{tmp_path}/nobody") as started:
        done = started.finish()
    assert (done.code, done.out) == (4, "")
    assert "Traceback" not in done.err
    assert "/nobody" in done.err.splitlines()[-1]


@pytest.mark.parametrize(
    "leaf",
    [leaf for leaf in leaves().values() if leaf.row.asks in ("a server", "nobody") and leaf.row.needs == "nothing"],
    ids=lambda leaf: leaf.name.replace(" ", "-"),
)
def test_nothing_to_show_is_an_answer(leaf: Leaf, penstock: CommandLine, places: dict[str, str]) -> None:
    for form in FORMS if leaf.has("--output") else (None,):
        told = () if form is None else ("-o", form)
        done = penstock(*leaf.command(**places), *told, code=leaf.row.empty)
        if leaf.row.empty:
            assert done.err.startswith("penstock: ")
            assert done.err.count("\n") == 1
        rows = read(form, done.out)
        if not (leaf.row.tells or leaf.row.acts):
            assert rows == 0


@those(acts=False, asks="a server", needs="nothing")
def test_who_only_looks_leaves_an_empty_server_empty(
    leaf: Leaf, penstock: CommandLine, client: "redis.Redis", places: dict[str, str]
) -> None:
    penstock(*leaf.command(**places), code=leaf.row.empty)
    assert client.keys() == []
