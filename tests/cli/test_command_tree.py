"""Global options before and after every command."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from penstock.cli.main import cli
from penstock.cli.session import OPTIONS, OTHER_WORDS
from tests.cli.conftest import Run
from tests.test_commands_in_docs import unknown


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


@pytest.mark.parametrize(
    ("word", "what", "command"), [(word, *rest) for words, *rest in OTHER_WORDS for word in words.split()]
)
def test_a_word_of_another_tool_leads_to_a_command(word: str, what: str, command: str):
    assert unknown(command.split()[1:]) is None
    told = CliRunner().invoke(cli, [word, "wheel"])
    if word in cli.commands:
        assert "No such command" not in told.stderr
    else:
        assert 2 == told.exit_code
        assert f"No such command '{word}': {what}: {command}\n" in told.stderr


def test_options_before_such_a_word_change_nothing():
    told = CliRunner().invoke(cli, ["--json", "find", "wheel"])

    assert "No such command 'find': search looks through the index: penstock search WORDS" in told.stderr


def test_another_word_has_no_hint_but_a_like_command():
    told = CliRunner().invoke(cli, ["serch"])

    assert "Did you mean one of: 'search', 'serve'?" in told.stderr


def test_a_word_is_not_led_to_another_thing_of_the_same_name(run: Run):
    assert "'collection'" in run("collections", code=2).stderr
    assert "penstock --version\n" in run("version", code=2).stderr
    assert "penstock --help\n" in run("help", code=2).stderr
