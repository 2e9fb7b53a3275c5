"""Names in the architecture page and in the how-tos for contributors exist in the code.

A name in backticks right after a path belongs to that file: `worker/child.py` `Child.run`. Paths are
relative to the repository or to ``src/penstock``.
"""

from __future__ import annotations

import ast
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest

from penstock import config
from penstock.app import Penstock
from penstock.handlers.generations import MAX_TEXTS
from tests.pipeline.sample_documents import pdf

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
ELSEWHERE = (
    "cli/",
    "application.py",
    "worker/child.py",
    "worker/pool.py",
    "worker/launch.py",
    "worker/pool.py",
    "worker/supervisor.py",
    "worker/upkeep.py",
    "worker/supervisor.py",
)
"""Files of commands, and of a worker with child processes."""
PROCESSES_ONLY = {"Assembly.worker_alive", "Outbox.exchange", "Engine.exchange"}
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
    assert [] == [title for title, walk in steps.items() if not 8 <= len(walk) < 12]


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


def test_every_function_of_the_first_two_walks_is_called(tmp_path: Path):
    """Commands and process handling are left out: this test uses the library and a worker thread."""
    steps = list(walks(text_of(PAGE)).values())
    named = {
        (path, name)
        for step in [*steps[0], *steps[1]]
        for path, names in NAMED.findall(step)
        for name in NAME.findall(names)
        # A class by itself is only named: nothing shows that it was used.
        if ("." in name or name[0].islower())
        and name not in PROCESSES_ONLY
        and not path.startswith(ELSEWHERE)
    }
    settings = config.load({}, state_dir=tmp_path / "state", embedder="hashing")
    with Penstock(settings=settings) as app, recorded() as called:
        app.function("double")(lambda payload: 2 * payload["n"])
        (tmp_path / "docs").mkdir()
        (tmp_path / "docs" / "short.md").write_text("The mill runs.")
        (tmp_path / "docs" / "short.pdf").write_bytes(pdf("The wheel turns."))
        long = (
            f"# Part {number}\n\n" + f"Subject {number} of the wheel. " * 60
            for number in range(MAX_TEXTS + 1)
        )
        (tmp_path / "docs" / "long.md").write_text("\n\n".join(long))
        with app.worker_thread():
            indexed = app.wait(app.index(tmp_path / "docs").job_id, timeout=60)
            job = app.wait(app.call("double", {"n": 21}).job_id, timeout=60)
            app.wait(app.call("double", max_retries=0).job_id, timeout=60)
        assert ("done", "done", 42) == (indexed.status, job.status, app.result(job.queue_id))
        assert "short.md" == Path(app.search("mill")[0].path).name

    assert set() == named - called


@contextmanager
def recorded() -> Iterator[set[tuple[str, str]]]:
    """Path and name of every function of the package that any new thread calls meanwhile."""
    called: set[tuple[str, str]] = set()
    start = f"{PACKAGE}/"

    def record(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(start):
            called.add((code.co_filename.removeprefix(start), code.co_qualname))

    before = sys.getprofile(), threading.getprofile()
    threading.setprofile(record)
    sys.setprofile(record)
    try:
        yield called
    finally:
        sys.setprofile(before[0])
        threading.setprofile(before[1])


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("`worker/child.py` `Child._claim` and `queue/`", []),
        ("`worker/no_child.py` `Child`", ["worker/no_child.py"]),
        ("`worker/child.py` `Child._clam`, `log`", ["worker/child.py Child._clam"]),
        ("`worker/child.py`\n   `Claim`", ["worker/child.py Claim"]),
        ("`no_package/`", ["no_package/"]),
        ("`src/penstock/config.py` `SETTINGS`", []),
    ],
)
def test_wrong_names_are_found(text: str, wrong: list[str]):
    assert wrong == wrong_names(text)
