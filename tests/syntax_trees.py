"""Syntax trees of the package's modules, for the checks of the code base."""

from __future__ import annotations

import ast
import functools
import gc
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "src" / "penstock"
MODULES = sorted(PACKAGE.rglob("*.py"))


def module_name(path: Path) -> str:
    """``queue/sql/store.py`` → ``queue.sql.store``; a package without ``__init__``."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if len(parts) > 1 and parts[-1] == "__init__" else parts)


@functools.cache
def nodes(source: str) -> tuple[ast.AST, ...]:
    """The syntax tree of a source, parsed once for all checks.

    Trees stay to the end of the run. The garbage collector would go through all of them at each new one,
    three quarters of the work.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        return tuple(ast.walk(ast.parse(source)))
    finally:
        gc.freeze()
        if collects:
            gc.enable()


def imports(tree: Iterable[ast.AST], module: str, *, package: bool = False) -> Iterator[tuple[int, str]]:
    """Every imported dotted name, relative ones resolved, wherever in the file the import stands."""
    here = [] if module in ("__init__", "__main__") else module.split(".")
    if not package and here:
        here = here[:-1]
    for node in tree:
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = [node.module] if node.module else []
            if node.level:
                origin = ["penstock", *here[: len(here) - node.level + 1], *origin]
            yield from ((node.lineno, ".".join([*origin, alias.name])) for alias in node.names)


def names_used(tree: Sequence[ast.AST]) -> Iterator[tuple[int, str]]:
    """Every dotted name the code refers to, with import aliases undone."""
    origin: dict[str, str] = {}
    for node in tree:
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.split(".")[0]
                origin[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            origin.update({(a.asname or a.name): f"{node.module}.{a.name}" for a in node.names})
    for node in tree:
        if isinstance(node, ast.Name | ast.Attribute):
            head, _, rest = dotted(node).partition(".")
            if head in origin:
                yield node.lineno, f"{origin[head]}.{rest}" if rest else origin[head]


def dotted(node: ast.expr) -> str:
    """The dotted name ``a.b.c``; empty unless the expression begins with a name."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""
