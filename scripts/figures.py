"""Figures of the code base: sizes, names and language. ``python -m scripts.figures`` prints them.

``--check`` fails when one of the rules is broken: no module name ends in -ing, no public class name stands
twice, no import cycle, no numbered access to the rows of the catalog.
"""

from __future__ import annotations

import ast
import re
import statistics
import sys
import tempfile
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import NamedTuple

PACKAGE = Path(__file__).resolve().parent.parent / "src" / "penstock"
LEANING = re.compile(r"\b(it|its|that|what|whose)\b", re.IGNORECASE)
NUMBERED_ROW = re.compile(r"\brow\[-?\d+\]")

Function = ast.FunctionDef | ast.AsyncFunctionDef
Documented = ast.Module | ast.ClassDef | Function


class Module(NamedTuple):
    """A source file of the package."""

    name: str
    text: str
    tree: ast.Module


class Figure(NamedTuple):
    """One line of the report. ``offenders``: what breaks a rule, named one by one."""

    title: str
    value: str
    goal: str
    offenders: tuple[str, ...] = ()


def read_package(package: Path) -> list[Module]:
    return [_read(package, path) for path in sorted(package.rglob("*.py"))]


def _read(package: Path, path: Path) -> Module:
    parts = path.relative_to(package.parent).with_suffix("").parts
    text = path.read_text(encoding="utf-8")
    name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    return Module(name, text, ast.parse(text))


def function_lengths(modules: Iterable[Module]) -> list[int]:
    return sorted(
        (node.end_lineno or node.lineno) - node.lineno + 1
        for module in modules
        for node in ast.walk(module.tree)
        if isinstance(node, Function)
    )


def gerunds(modules: Iterable[Module]) -> list[str]:
    # penstock.testing is the name that users expect, as numpy.testing.
    named = (module.name for module in modules if module.name != "penstock.testing")
    return [name for name in named if name.rpartition(".")[2].endswith("ing")]


def homonyms(modules: Iterable[Module]) -> list[str]:
    """Public class names defined by more than one module."""
    places: defaultdict[str, list[str]] = defaultdict(list)
    for module in modules:
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(module.name)
    return [f"{name}: {', '.join(found)}" for name, found in sorted(places.items()) if len(found) > 1]


def first_lines(modules: Iterable[Module]) -> Iterator[tuple[str, str]]:
    """The first line of every docstring, with the module it stands in."""
    for module in modules:
        for node in ast.walk(module.tree):
            if isinstance(node, Documented):
                text = ast.get_docstring(node)
                if text:
                    yield module.name, text.splitlines()[0]


def imports(modules: Iterable[Module]) -> dict[str, set[str]]:
    """The modules of the package that each module imports, at its top or later."""
    modules = list(modules)
    names = {module.name for module in modules}
    return {module.name: set(_imported(module, names)) - {module.name} for module in modules}


def _imported(module: Module, names: set[str]) -> Iterator[str]:
    for node in _executed(module.tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in names)
        elif isinstance(node, ast.ImportFrom) and node.module in names:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in names else node.module


def _executed(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those below ``if TYPE_CHECKING``, which no running program imports."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"):
            yield from _executed(child)


def cycles(graph: Mapping[str, set[str]]) -> list[str]:
    """Groups of modules that import each other, directly or not (strongly connected components)."""
    reached = {name: _reachable(name, graph) for name in graph}
    groups = {frozenset(other for other in reached[name] if name in reached[other]) for name in graph}
    return sorted(" <-> ".join(sorted(group)) for group in groups if len(group) > 1)


def _reachable(start: str, graph: Mapping[str, set[str]]) -> set[str]:
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        for name in graph[waiting.pop()] - seen:
            seen.add(name)
            waiting.append(name)
    return seen


def numbered_rows(modules: Iterable[Module]) -> list[str]:
    return [
        f"{module.name}:{number}"
        for module in modules
        if module.name.startswith("penstock.catalog")
        for number, line in enumerate(module.text.splitlines(), 1)
        for _ in NUMBERED_ROW.finditer(line)
    ]


def files_of_an_index() -> int:
    """The source files whose functions run while a folder is indexed by a worker thread."""
    from penstock import Penstock

    seen: set[str] = set()

    def record(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_name != "<module>":
            seen.add(frame.f_code.co_filename)

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "notes"
        folder.mkdir()
        (folder / "one.md").write_text("# One\n\nA note to index.\n", encoding="utf-8")
        threading.setprofile(record)
        sys.setprofile(record)
        try:
            with Penstock(state_dir=place) as app, app.worker_thread():
                app.wait(app.index(folder).job_id, timeout=60)
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
    return sum(1 for name in seen if name.startswith(str(PACKAGE)))


def figures(modules: list[Module]) -> list[Figure]:
    lengths = function_lengths(modules)
    p90 = lengths[len(lengths) * 9 // 10]
    lines = list(first_lines(modules))
    leaning = sum(1 for _, line in lines if LEANING.search(line))
    rules = [
        ("modules ending in -ing", gerunds(modules)),
        ("public class names that stand twice", homonyms(modules)),
        ("import cycles", cycles(imports(modules))),
        ("numbered row accesses in the catalog", numbered_rows(modules)),
    ]
    return [
        Figure("Python files", str(len(modules)), "225"),
        Figure("lines of a function, mean / p90", f"{statistics.mean(lengths):.1f} / {p90}", "7.4 / 16"),
        Figure("docstrings that lean on their neighbours", f"{leaning / len(lines):.0%}", "25%"),
        Figure("files that run for a folder index", str(files_of_an_index()), "80"),
        *(Figure(title, str(len(found)), "0", tuple(found)) for title, found in rules),
    ]


def main(arguments: list[str]) -> int:
    found = figures(read_package(PACKAGE))
    for figure in found:
        print(f"{figure.title:<42} {figure.value:>10}   goal {figure.goal}")
    broken = [f"{figure.title}: {offender}" for figure in found for offender in figure.offenders]
    if "--check" not in arguments:
        return 0
    for line in broken:
        print(line, file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
