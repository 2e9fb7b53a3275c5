"""Figures of the code base: the code behind a name, the borders crossed, the files that a command runs.

``python -m scripts.figures`` prints them. ``--page`` also writes docs/contributing/figures.md, ``--review``
lists what a person should look at. ``--check`` only fails if modules import each other.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "penstock"
PAGE = ROOT / "docs" / "contributing" / "figures.md"
SATELLITE = 60
"""Code lines of a module with one user, below which it is listed for review."""
WIDE = 25
"""Names of a module used from outside, above which it is listed for review."""
TOURS = (
    ("index", "a folder of two files", ("index", "docs")),
    ("search", "", ("search", "mill")),
    ("why", "", ("why", "docs/one.md")),
    ("schedule add", "", ("schedule", "add", "0 3 * * *", "index", "docs")),
    ("status", "", ("status",)),
)

Import = ast.Import | ast.ImportFrom
Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


class Module(NamedTuple):
    """A source file of the package."""

    name: str
    text: str
    tree: ast.Module


class Crossing(NamedTuple):
    """A name that one module uses of another one."""

    user: str
    owner: str
    name: str


class Figure(NamedTuple):
    """One line of the report."""

    title: str
    value: str
    goal: str


def read_package(package: Path) -> list[Module]:
    return [_read(package, path) for path in sorted(package.rglob("*.py"))]


def _read(package: Path, path: Path) -> Module:
    parts = path.relative_to(package.parent).with_suffix("").parts
    text = path.read_text(encoding="utf-8")
    name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    return Module(name, text, ast.parse(text))


def code_lines(module: Module) -> int:
    """Lines without blank ones, comments and docstrings."""
    documentation: set[int] = set()
    for node in ast.walk(module.tree):
        if isinstance(node, Documented) and ast.get_docstring(node) is not None:
            documentation.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    numbered = enumerate(module.text.splitlines(), 1)
    return sum(1 for at, line in numbered if at not in documentation and re.match(r"\s*[^\s#]", line))


def import_lines(module: Module) -> int:
    found = [node for node in ast.walk(module.tree) if isinstance(node, Import)]
    return sum((node.end_lineno or node.lineno) - node.lineno + 1 for node in found)


def crossings(modules: Iterable[Module]) -> set[Crossing]:
    """Names imported from other modules of the package, also those used as ``module.name``."""
    modules = list(modules)
    names = {module.name for module in modules}
    return {
        Crossing(module.name, owner, name)
        for module in modules
        for owner, name in _used(module, names)
        if owner != module.name
    }


def _used(module: Module, names: set[str]) -> Iterator[tuple[str, str]]:
    attributes: defaultdict[str, set[str]] = defaultdict(set)
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            attributes[node.value.id].add(node.attr)
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                if whole in names:
                    yield from ((whole, name) for name in attributes[alias.asname or alias.name])
                elif node.module in names:
                    yield node.module, alias.name


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


def review(modules: list[Module]) -> list[str]:
    """Modules to look at: small ones that one other module uses, and those with many names used outside."""
    users, names = defaultdict(set), defaultdict(set)
    for crossing in crossings(modules):
        users[crossing.owner].add(crossing.user)
        names[crossing.owner].add(crossing.name)
    sizes = {module.name: code_lines(module) for module in modules}
    satellites = [
        f"satellite: {name}, {sizes[name]} code lines, is used by {min(users[name])} alone"
        for name in sorted(users)
        if len(users[name]) == 1 and sizes[name] < SATELLITE
    ]
    wide = [f"wide: {name}, {len(found)} names" for name, found in sorted(names.items()) if len(found) > WIDE]
    return satellites + wide


def structure(modules: list[Module]) -> list[Figure]:
    sizes = [lines for module in modules if (lines := code_lines(module)) > 2]
    code = sum(sizes)
    found = crossings(modules)
    users: defaultdict[tuple[str, str], int] = defaultdict(int)
    for crossing in found:
        users[crossing.owner, crossing.name] += 1
    alone = sum(1 for count in users.values() if count == 1)
    imported = sum(import_lines(module) for module in modules)
    return [
        Figure("code lines", str(code), ""),
        Figure("modules / mean code lines", f"{len(sizes)} / {code // len(sizes)}", "180 / 350"),
        Figure("code lines for each name that crosses a module", f"{code / len(users):.1f}", "40"),
        Figure("imports of such names, per 1,000 code lines", f"{len(found) / code * 1000:.0f}", "60"),
        Figure("names for exactly one module", str(alone), "900"),
        Figure("import lines, share of code", f"{imported / code:.1%}", "6%"),
        Figure("import cycles", str(len(cycles(imports(modules)))), "0"),
    ]


def tours() -> list[Figure]:
    """For each command, the source files whose functions run, and the modules loaded."""
    goals = dict(zip((name for name, *_ in TOURS), ("80", "40", "35", "30", "32"), strict=True))
    with tempfile.TemporaryDirectory() as place:
        docs = Path(place) / "docs"
        docs.mkdir()
        for name in ("one", "two"):
            (docs / f"{name}.md").write_text(f"# {name}\n\nA mill by the river.\n", encoding="utf-8")
        return [
            Figure(f"files run / modules loaded: {name}", _run(arguments, Path(place)), goals[name])
            for name, _, arguments in TOURS
        ]


def _run(arguments: tuple[str, ...], place: Path) -> str:
    given = {**os.environ, "PENSTOCK_STATE": str(place / "state"), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "scripts.tour", *arguments]
    done = subprocess.run(command, cwd=place, env=given, capture_output=True, text=True, check=True)
    files, loaded = re.findall(r"^files (\d+) loaded (\d+)$", done.stderr, re.MULTILINE)[-1]
    return f"{files} / {loaded}"


def page(figures: list[Figure]) -> str:
    rows = [f"| {figure.title} | {figure.value} | {figure.goal} |" for figure in figures]
    return "\n".join(
        [
            "# Figures of the code base",
            "",
            "`make figures ARGS=--page` writes this page. Nothing fails when a figure misses its goal: a",
            "module that owns a subject is right at any length. Only import cycles fail.",
            "",
            "| figure | now | goal |",
            "|---|---:|---:|",
            *rows,
            "",
        ]
    )


def main(arguments: list[str]) -> int:
    modules = read_package(PACKAGE)
    if "--check" in arguments:
        found = cycles(imports(modules))
        for line in found:
            print(f"import cycle: {line}", file=sys.stderr)
        return 1 if found else 0
    if "--review" in arguments:
        print("\n".join(review(modules)))
        return 0
    figures = structure(modules) + tours()
    for figure in figures:
        print(f"{figure.title:<50} {figure.value:>10}   {figure.goal and 'goal ' + figure.goal}")
    if "--page" in arguments:
        PAGE.write_text(page(figures), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
