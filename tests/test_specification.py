"""Rules that are cited by number stand in the digest, and the digest holds no other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DIGEST = ROOT / "docs" / "specification.md"
SUFFIXES = frozenset([".md", ".py", ".sql", ".lua"])

RULE = re.compile(r"^- <a id=\"([a-z0-9-]+)\"></a>\*\*([SC][0-9-]+)\.\*\* ", re.MULTILINE)
LINKED = re.compile(r"\[([SC][0-9-]+)\]\([^)]*\)")
SPECIFIED = re.compile(r"\b(S\d)-(\d+)(?:\s*…\s*(?:\1-)?(\d+))?")
CONTRADICTION = re.compile(r"\bC\d{1,2}\b")


def citations(text: str) -> Iterator[str]:
    """Every rule that a text cites; a range such as S0-22…30 is all of its rules."""
    plain = LINKED.sub(r"\1", text)
    yield from CONTRADICTION.findall(plain)
    for document, first, last in SPECIFIED.findall(plain):
        yield from (f"{document}-{number}" for number in range(int(first), int(last or first) + 1))


def cited() -> dict[str, str]:
    """Each cited rule, with a file that cites it."""
    found: dict[str, str] = {}
    for folder in ("src", "tests", "docs"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in SUFFIXES and path not in (DIGEST, Path(__file__).resolve()):
                text = path.read_text(encoding="utf-8")
                found.update(dict.fromkeys(citations(text), str(path.relative_to(ROOT))))
    return found


def digest() -> list[tuple[str, str]]:
    """Anchor and number of each rule, in the order of the page."""
    return RULE.findall(DIGEST.read_text(encoding="utf-8"))


def test_every_cited_rule_is_in_the_digest():
    known = {number for _, number in digest()}

    assert [] == sorted(f"{number} ({file})" for number, file in cited().items() if number not in known)


def test_every_rule_of_the_digest_is_cited():
    known = cited()

    assert [] == [number for _, number in digest() if number not in known]


def test_every_rule_stands_once_in_order_under_its_own_anchor():
    def place(number: str) -> tuple[str, ...]:
        return tuple(part.zfill(3) for part in re.findall(r"\d+", number))

    rules = digest()
    numbers = [number for _, number in rules]
    specified = [number for number in numbers if number.startswith("S")]
    contradictions = numbers[len(specified) :]

    assert [number.lower() for number in numbers] == [anchor for anchor, _ in rules]
    assert sorted(set(specified), key=place) + sorted(set(contradictions), key=place) == numbers


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("departs from S0-14, S4-14 (C12)", ["C12", "S0-14", "S4-14"]),
        ("S0-22…24", ["S0-22", "S0-23", "S0-24"]),
        ("[S1-15](a.md#s1-15) … [S1-17](a.md#s1-17)", ["S1-15", "S1-16", "S1-17"]),
        ("`S_ISREG`, AS0-1, C, C++, C123, X-S1", []),
    ],
)
def test_citations_are_found(text: str, expected: list[str]):
    assert expected == sorted(citations(text))
