"""Global options before and after every command."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from penstock.cli.main import cli
from penstock.cli.session import OPTIONS


def commands(command: click.Command, *path: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        for name, below in command.commands.items():
            yield from commands(below, *path, name)


TREE = dict(commands(cli))


def test_the_tree_is_walked_to_its_leaves():
    assert {(), ("queue",), ("queue", "add"), ("documents", "list"), ("index",)} <= TREE.keys()


@pytest.mark.parametrize("path", TREE, ids=" ".join)
def test_every_command_takes_the_global_options(path: tuple[str, ...]):
    options = [name for option in TREE[path].params for name in option.opts]

    assert dict.fromkeys(OPTIONS, 1) == {name: options.count(name) for name in OPTIONS}
    assert "--json" in CliRunner().invoke(cli, [*path, "--help"]).output


WHERE = ["--state", "STATE", "--url", "URL", "--json"]


@pytest.mark.parametrize(
    "line",
    [
        [*WHERE, "config", "show"],
        ["config", *WHERE, "show"],
        ["config", "show", *WHERE],
        ["--json", "config", "--url", "URL", "show", "--state", "STATE"],
        ["--url", "sqlite:////nowhere/else.db", "config", "show", *WHERE],
    ],
)
def test_where_the_global_options_stand_makes_no_difference(tmp_path: Path, line: list[str]):
    places = {"STATE": str(tmp_path / "state"), "URL": f"sqlite:///{tmp_path}/queue.db"}

    result = CliRunner().invoke(cli, [places.get(word, word) for word in line])

    assert 0 == result.exit_code, result.output
    shown = json.loads(result.stdout)
    assert {"value": places["URL"], "source": "argument"} == shown["url"]
    assert {"value": places["STATE"], "source": "argument"} == shown["state_dir"]


def test_a_group_that_does_something_by_itself_answers_in_json(tmp_path: Path):
    result = CliRunner().invoke(cli, ["documents", "--json", "--state", str(tmp_path)])

    assert {"documents": [], "next": None} == json.loads(result.stdout)
