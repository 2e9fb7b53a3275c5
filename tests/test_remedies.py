"""Remedies name only what exists: options, settings, extras and pages. (See test_commands_in_docs.)"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from penstock import config
from penstock.catalog.rules.publication import CONTENT_CODES, remedy_for
from penstock.errors import PenstockError
from scripts import reference
from tests.syntax_trees import nodes

ROOT = Path(__file__).resolve().parent.parent
SETTING = re.compile(r"\bPENSTOCK_[A-Z0-9_]*[A-Z0-9]")
EXTRA = re.compile(r"penstock\[([a-z,]+)\]")
INSTALLED = re.compile(r"\binstall_(?:command|remedy)\(['\"]([\w-]+)['\"]\)")
PAGE = re.compile(r"\bdocs/[\w/.-]+\.md\b")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*[a-z]")


@cache
def texts() -> list[tuple[str, str]]:
    """Strings of the program, with the place of each: f-strings as one text, docstrings left out."""
    return list(_texts())


def _texts() -> Iterator[tuple[str, str]]:
    for path in sorted((ROOT / "src").rglob("*.py")):
        tree = nodes(path.read_text(encoding="utf-8"))
        # Docstrings and strings after a constant; and the parts of f-strings.
        left_out = {id(node.value) for node in tree if isinstance(node, ast.Expr)}
        left_out |= {id(part) for node in tree if isinstance(node, ast.JoinedStr) for part in node.values}
        for node in tree:
            if isinstance(node, ast.JoinedStr):
                parts = [part.value if isinstance(part, ast.Constant) else "…" for part in node.values]
                yield f"{path.name}:{node.lineno}", "".join(map(str, parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in left_out:
                yield f"{path.name}:{node.lineno}", node.value


def test_settings_in_messages_exist():
    known = {name for setting in config.SETTINGS for name in (setting.env, *setting.aliases)}
    found = [(where, name) for where, text in texts() for name in SETTING.findall(text)]

    assert [] == [(where, name) for where, name in found if name not in known]
    assert len(found) > 5


def test_extras_in_messages_exist():
    with (ROOT / "pyproject.toml").open("rb") as file:
        extras = tomllib.load(file)["project"]["optional-dependencies"]
    calls = [
        (path.name, name)
        for path in sorted((ROOT / "src").rglob("*.py"))
        for name in INSTALLED.findall(path.read_text(encoding="utf-8"))
    ]
    texted = [
        (where, one) for where, text in texts() for some in EXTRA.findall(text) for one in some.split(",")
    ]

    assert [] == [(where, name) for where, name in calls + texted if name not in extras]
    assert {"postgres", "redis"} <= {name for _, name in calls}


def test_pages_in_messages_exist():
    named = [(where, page) for where, text in texts() for page in PAGE.findall(text)]

    assert [] == [(where, page) for where, page in named if not (ROOT / page).is_file()]
    assert named


def errors() -> list[type[PenstockError]]:
    module = reference.load("penstock.errors")
    classes = [one for one in vars(module).values() if isinstance(one, type)]
    return [one for one in classes if issubclass(one, PenstockError)]


def test_options_in_remedies_exist():
    module = reference.load("penstock.cli.main")
    assert module is not None
    root = reference.root_command(module)
    known = {
        option for command, _ in reference.commands(root) for one in command.params for option in one.opts
    }
    named = [(one.code, option) for one in errors() for option in OPTION.findall(one.default_remedy)]

    assert [] == [(code, option) for code, option in named if option not in known]
    assert ("ERR_NO_TEXT", "--exclude") in named


def test_a_retry_is_a_remedy_only_where_it_can_help():
    remedies = {one.code: one.default_remedy for one in errors()}

    assert {code: remedies[code] for code in CONTENT_CODES} == {
        code: remedy_for(code) for code in CONTENT_CODES
    }
    assert [] == [code for code in sorted(CONTENT_CODES) if "penstock retry" in remedies[code]]
    assert "penstock retry" in remedies["ERR_PERMANENT"]
