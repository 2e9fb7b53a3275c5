"""Command lines in documentation, messages and remedies: the commands and options exist."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from penstock.cli.main import cli
from penstock.cli.notes import ADD, NoteGroup

ROOT = Path(__file__).resolve().parent.parent
PAGES = [
    ROOT / "README.md",
    ROOT / "SECURITY.md",
    # One is generated from the commands, the other invents one.
    *(
        path
        for path in sorted((ROOT / "docs").rglob("*.md"))
        if path.name not in ("cli.md", "add-a-command.md")
    ),
    *sorted((ROOT / "src").rglob("*.py")),
]
# After a prompt, at the start of a line of a block, in backticks, or at the end of a hint.
LINES = re.compile(r"(?:^\$ |^ {0,4}|`|: )((?:[A-Z_]+=\S+ )*penstock -?[a-z][^`\n]*)", re.MULTILINE)


def command_lines(text: str) -> Iterator[list[str]]:
    for found in LINES.findall(text):
        line = re.split(r"  |[|&>#;{…]|\. |\.?\"|\.$|, ", found)[0]
        try:
            words = shlex.split(line)
        except ValueError:
            continue
        yield words[words.index("penstock") + 1 :]


CONTRACT = ROOT / "docs" / "guides" / "redis-contract.md"
"""The only page that names former spellings: the words of the Redis contract."""


def unknown(words: list[str], *, former: bool = False) -> str | None:
    """The first word of a command line that no command or option has, or that is a former spelling."""
    command: click.Command = cli
    options = _options(cli)
    rest = list(words)
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        found = command.commands.get(rest[0])
        if found is None or (found.hidden and not former):
            return rest[0]
        command, options = found, options | _options(found)
        rest = rest[1:]
        if isinstance(command, NoteGroup) and rest and rest[0] not in command.commands:
            rest = [ADD, *rest]
    return next(
        (word for word in rest if re.match(r"--?[a-z]", word) and word.partition("=")[0] not in options), None
    )


def _options(command: click.Command) -> set[str]:
    named = {name for param in command.params for name in (*param.opts, *param.secondary_opts)}
    return named | {"-h", "--help"}


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("$ penstock jobs ID --watch\n", None),
        ("$ PENSTOCK_URL=x penstock index docs --json\n", None),
        ("Run `penstock serach mill`.", "serach"),
        ("Run `penstock queue list`.", "list"),
        ("Run `penstock index --fast docs`.", "--fast"),
        ("Start one with: penstock redis gatway", "gatway"),
    ],
)
def test_a_wrong_command_line_is_seen(line: str, wrong: str | None):
    (words,) = command_lines(line)

    assert wrong == unknown(words)


def test_every_command_line_is_one():
    wrong = []
    seen = 0
    for path in PAGES:
        for words in command_lines(path.read_text(encoding="utf-8")):
            seen += 1
            if (word := unknown(words, former=path == CONTRACT)) is not None:
                wrong.append(f"{path.relative_to(ROOT)}: penstock {' '.join(words)} ({word})")

    assert [] == wrong
    assert seen > 200
