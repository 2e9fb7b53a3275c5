"""Names in the architecture page and in the how-tos for contributors exist in the code.

A name in backticks right after a path belongs to that file: `worker/child.py` `Child.run`. Paths are
relative to the repository or to ``src/penstock``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "penstock"
PAGE = ROOT / "docs" / "concepts" / "architecture.md"
LIST = ROOT / "docs" / "contributing" / "README.md"
HOW_TOS = sorted(LIST.parent.glob("add-*.md"))
PAGES = [PAGE, LIST, *HOW_TOS]

SUFFIX = r"\.(?:py|sql|lua|md|toml)"
FILE = rf"`([\w/.-]+{SUFFIX})`"
FOLDER = re.compile(r"`((?:[\w.-]+/)+)`")
NAMED = re.compile(FILE + rf"((?:,?\s+`(?![\w.]*{SUFFIX}`)[A-Za-z_][\w.]*`)*)")
NAME = re.compile(r"`([A-Za-z_][\w.]*)`")
BLOCK = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
STEP = re.compile(r"^\d+\. (.*(?:\n {2,}.*)*)", re.MULTILINE)
LONGEST_SENTENCE = 25
LONGEST_LINE = 100


def text_of(page: Path) -> str:
    """The page without code blocks: their paths are examples."""
    return BLOCK.sub("", page.read_text(encoding="utf-8"))


def found(path: str) -> Path | None:
    places = [place / path for place in (ROOT, PACKAGE)]
    return next((place for place in places if place.exists()), None)


def defined(path: Path) -> set[str]:
    """Names of a module: functions, classes and constants, and ``Class.member``."""
    names: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        own = set(_bound(node))
        names |= own
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{name}" for part in node.body for name in _bound(part)}
    return names


def _bound(node: ast.stmt) -> Iterator[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.Assign(targets=targets):
            yield from (target.id for target in targets if isinstance(target, ast.Name))
        case ast.AnnAssign(target=ast.Name(id=name)):
            yield name


def wrong_names(text: str) -> list[str]:
    wrong = []
    for path, names in NAMED.findall(text):
        file = found(path)
        if file is None:
            wrong.append(path)
        elif file.suffix == ".py":
            known = defined(file)
            wrong += [f"{path} {name}" for name in NAME.findall(names) if name not in known]
    return wrong + [folder for folder in FOLDER.findall(text) if found(folder) is None]


def walks(text: str) -> dict[str, list[str]]:
    """The steps of each walk, by heading."""
    parts = re.split(r"^## (Walk .+)$", text, flags=re.MULTILINE)[1:]
    return {
        title: STEP.findall(body.partition("\n## ")[0])
        for title, body in zip(parts[::2], parts[1::2], strict=True)
    }


def sentences(text: str) -> Iterator[str]:
    """Sentences of paragraphs and list items; a table cell has no sentence."""
    prose = "\n".join("" if line.startswith(("|", "#")) else line for line in text.splitlines())
    prose = re.sub(r"\n(?= *(?:[-*]|\d+\.) )", "\n\n", prose)
    for paragraph in prose.split("\n\n"):
        # A name in backticks counts as one word, whatever is in it.
        flat = re.sub(r"`[^`]*`", "name", " ".join(paragraph.split()))
        yield from re.split(r"(?<=[.:;?!])\s", flat)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_and_name_exists(page: Path):
    assert [] == wrong_names(text_of(page))


def test_every_package_is_listed():
    packages = {path.parent.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("__init__.py")} - {"."}
    listed = re.findall(r"^\| `([\w/]+)/` \|", text_of(PAGE), re.MULTILINE)

    assert (set(), set()) == (packages - {*listed}, {*listed} - packages)


def test_every_module_at_the_top_is_listed():
    _, _, section = text_of(PAGE).partition("\n## Modules at the top\n")
    listed = re.findall(r"`(\w+\.py)`", section.partition("\n## ")[0])

    modules = {path.name for path in PACKAGE.glob("*.py")} - {"__init__.py"}
    assert (set(), set()) == (modules - {*listed}, {*listed} - modules)


def test_every_step_of_a_walk_begins_with_a_file_and_a_name():
    steps = walks(text_of(PAGE))

    assert 3 == len(steps)
    assert [] == [
        step for walk in steps.values() for step in walk if not re.match(FILE + r"\s`[\w.]+`:", step)
    ]
    assert [] == [title for title, walk in steps.items() if len(walk) < 8]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_sentences_and_lines_are_short(page: Path):
    lines = page.read_text(encoding="utf-8").splitlines()

    assert [] == [
        sentence for sentence in sentences(text_of(page)) if len(sentence.split()) > LONGEST_SENTENCE
    ]
    assert [] == [line for line in lines if len(line) > LONGEST_LINE and not line.startswith("|")]


def test_every_how_to_is_linked_from_the_list_of_how_tos():
    pages = LIST.read_text(encoding="utf-8")

    assert len(HOW_TOS) >= 6
    assert [] == [page.name for page in HOW_TOS if f"({page.name})" not in pages]


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("`worker/child.py` `Child._claim` and `queue/`", []),
        ("`worker/no_child.py` `Child`", ["worker/no_child.py"]),
        ("`worker/child.py` `Child._clam`, `main`", ["worker/child.py Child._clam"]),
        ("`worker/child.py`\n   `Claim`", ["worker/child.py Claim"]),
        ("`no_package/`", ["no_package/"]),
        ("`src/penstock/config.py` `SETTINGS`", []),
    ],
)
def test_wrong_names_are_found(text: str, wrong: list[str]):
    assert wrong == wrong_names(text)
