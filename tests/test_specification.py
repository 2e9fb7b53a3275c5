"""The specification page: each rule is there, with a module and a test that exist.

Only text is read, so that these tests take no time.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "specification.md"
DEPARTURES = ROOT / "docs" / "decisions" / "departures.md"
PACKAGE = ROOT / "src" / "penstock"
SUFFIXES = frozenset([".md", ".py", ".sql", ".lua"])

LAST = {"S0": 75, "S1": 65, "S2": 57, "S3": 35, "S4": 53}
CONTRADICTIONS = [*range(1, 29), *range(30, 42), 43, 45, 47, 49]
RULES = [
    *(f"{document}-{number}" for document, last in LAST.items() for number in range(1, last + 1)),
    *(f"C{number}" for number in CONTRADICTIONS),
]

ROW = re.compile(r"^\| <a id=\"([a-z0-9-]+)\"></a>([SC][0-9-]+) \| (.+) \| (.*) \| (.*) \|$", re.MULTILINE)
DEPARTED = re.compile(r"\[Departs\]\(decisions/departures\.md#([a-z-]+)\)")
DEPARTURE = re.compile(r"^\| <a id=\"([a-z-]+)\"></a>(.+?) \| ", re.MULTILINE)
CODE = re.compile(r"`([^`]+)`")
LINKED = re.compile(r"\[([SC][0-9-]+)\]\([^)]*\)")
SPECIFIED = re.compile(r"\b(S\d)-(\d+)(?:\s*…\s*(?:\1-)?(\d+))?")
CONTRADICTION = re.compile(r"\bC\d{1,2}\b")


class Rule(NamedTuple):
    """A row of the page."""

    anchor: str
    number: str
    meaning: str
    modules: list[str]
    tests: list[str]


def rules(text: str) -> list[Rule]:
    """The rules of a page, in its order."""
    return [
        Rule(anchor, number, meaning, CODE.findall(modules), CODE.findall(tests))
        for anchor, number, meaning, modules, tests in ROW.findall(text)
    ]


@functools.cache
def page() -> list[Rule]:
    return rules(PAGE.read_text(encoding="utf-8"))


@functools.cache
def functions_of(path: str) -> frozenset[str]:
    file = ROOT / path
    return frozenset(
        re.findall(r"^ *(?:async )?def (test_\w+)", file.read_text("utf-8"), re.M) if file.is_file() else ()
    )


def faults(rule: Rule) -> list[str]:
    """What a rule lacks: a meaning, a module or a test that exists."""
    found = [f"{rule.number}: no module {name}" for name in rule.modules if not (PACKAGE / name).is_file()]
    for test in rule.tests:
        path, _, name = test.partition("::")
        if name not in functions_of(path):
            found.append(f"{rule.number}: no test {test}")
    if not rule.modules:
        found.append(f"{rule.number}: names no module")
    if not rule.tests:
        found.append(f"{rule.number}: names no test")
    if not DEPARTED.sub("", rule.meaning).strip(" *,"):
        found.append(f"{rule.number}: has no meaning")
    return found


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
            if path.suffix in SUFFIXES and path not in (PAGE, Path(__file__).resolve()):
                text = path.read_text(encoding="utf-8")
                found.update(dict.fromkeys(citations(text), str(path.relative_to(ROOT))))
    return found


def test_every_rule_is_on_the_page_once_in_order_under_its_own_anchor():
    assert RULES == [rule.number for rule in page()]
    assert [number.lower() for number in RULES] == [rule.anchor for rule in page()]
    assert 285 == sum(LAST.values())


def test_every_rule_has_a_meaning_a_module_and_a_test():
    assert [] == [fault for rule in page() for fault in faults(rule)]


def test_every_cited_rule_is_on_the_page():
    known = {*RULES}

    assert [] == sorted(f"{number} ({file})" for number, file in cited().items() if number not in known)


def test_departures_and_their_rules_lead_to_each_other():
    text = DEPARTURES.read_text(encoding="utf-8")
    departed = {(number, anchor) for anchor, cell in DEPARTURE.findall(text) for number in citations(cell)}
    marked = {(rule.number, anchor) for rule in page() for anchor in DEPARTED.findall(rule.meaning)}

    assert (set(), set()) == (departed - marked, marked - departed)


ROW_PARTS = ("`queue/transitions.py`", "`tests/test_specification.py::test_faults_of_a_rule_are_found`")


@pytest.mark.parametrize(
    ("meaning", "module", "test", "expected"),
    [
        ("A rule.", *ROW_PARTS, []),
        ("A rule.", "`queue/transition.py`", ROW_PARTS[1], ["S0-1: no module queue/transition.py"]),
        ("A rule.", "", "", ["S0-1: names no module", "S0-1: names no test"]),
        ("A rule.", ROW_PARTS[0], "`tests/test_no.py::test_a`", ["S0-1: no test tests/test_no.py::test_a"]),
        ("*[Departs](decisions/departures.md#x)*", *ROW_PARTS, ["S0-1: has no meaning"]),
    ],
)
def test_faults_of_a_rule_are_found(meaning: str, module: str, test: str, expected: list[str]):
    (rule,) = rules(f'| <a id="s0-1"></a>S0-1 | {meaning} | {module} | {test} |')

    assert expected == faults(rule)


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
