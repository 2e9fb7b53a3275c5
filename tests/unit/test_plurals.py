"""Messages with a number: ``how_many`` gives the noun, so that no message says "1 jobs"."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from tests.syntax_trees import nodes

SOURCE = Path(penstock.__file__).parent
NOUNS = (
    "jobs files documents chunks pages workers messages processes rows tasks gateways children notes records "
    "texts results parts retries reports"
)
PLURAL = re.compile(rf" (?:{'|'.join(NOUNS.split())})\b(?!/)")
LOGGED = re.compile(rf"%d(?:{PLURAL.pattern})")


def wrong_plurals(tree: ast.AST) -> Iterator[str]:
    """Plural nouns after a number that may be 1: in format strings of the log, and in f-strings."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and LOGGED.search(node.value):
            yield node.value
        if isinstance(node, ast.JoinedStr):
            for before, value, after in zip([None, *node.values], node.values, node.values[1:], strict=False):
                if _is_count(value) and _says(after, PLURAL) and not _says(before, re.compile(r".*\bof ")):
                    yield ast.unparse(node)


def _is_count(value: ast.expr) -> bool:
    """A number with separators or a length, but no constant."""
    if not isinstance(value, ast.FormattedValue):
        return False
    name = value.value.attr if isinstance(value.value, ast.Attribute) else getattr(value.value, "id", "")
    separated = value.format_spec is not None and "," in ast.unparse(value.format_spec)
    length = isinstance(value.value, ast.Call) and ast.unparse(value.value.func) == "len"
    return (separated or length) and not name.isupper()


def _says(part: ast.expr | None, pattern: re.Pattern[str]) -> bool:
    text = part.value if isinstance(part, ast.Constant) else ""
    return isinstance(text, str) and pattern.match(text) is not None


def test_no_message_puts_a_plural_after_a_number_that_may_be_one():
    found = [
        f"{path.relative_to(SOURCE)}: {text}"
        for path in sorted(SOURCE.rglob("*.py"))
        for text in wrong_plurals(nodes(path.read_text())[0])
    ]

    assert [] == found


@pytest.mark.parametrize(
    ("code", "wrong"),
    [
        ('log.warning("released %d jobs", n)', 1),
        ('f"{n:,} files were read"', 1),
        ('f"for {len(names)} jobs"', 1),
        ('f"{LIMIT:,} files at most"', 0),
        ('f"{done:,} of {total:,} pages"', 0),
        ('f"{kind} jobs"', 0),
        ('how_many(n, "job")', 0),
    ],
)
def test_the_check_finds_them(code: str, wrong: int):
    assert wrong == len(list(wrong_plurals(ast.parse(code))))
