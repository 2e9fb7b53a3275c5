"""Imports of source code as dotted names of modules, resolved against the module they stand in."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from penstock.named_tuple import NamedTuple
from penstock.pipeline.graph.syntax import text_of

if TYPE_CHECKING:
    from tree_sitter import Node


class Import(NamedTuple):
    """An import. ``alias``: the name in this file; ``target``: the full name of the imported object."""

    module: str
    target: str
    alias: str
    start: int


def read_imports(node: Node, language: str, module: str, *, package: bool) -> Iterator[Import]:
    """The imports of one statement."""
    if language == "python":
        yield from _python(node, module, package=package)
    elif language in ("javascript", "typescript", "tsx"):
        yield from _javascript(node, module)
    elif language == "java":
        name = text_of(node).removeprefix("import").strip().removeprefix("static ").strip("; \t")
        yield Import(name.rpartition(".")[0] or name, name, name.rpartition(".")[2], node.start_byte)
    elif language == "rust":
        name = text_of(node).removeprefix("pub ").removeprefix("use ").strip("; \t\n").replace("::", ".")
        if "{" not in name:
            yield Import(name.rpartition(".")[0] or name, name, name.rpartition(".")[2], node.start_byte)
    else:
        given = node.child_by_field_name("path")
        name = text_of(given).strip("\"'<>`")
        if name:
            yield Import(name, name, name.rpartition("/")[2], node.start_byte)


# Python.


def _python(node: Node, module: str, *, package: bool) -> Iterator[Import]:
    if node.type == "import_statement":
        for named in node.children_by_field_name("name"):
            target = text_of(named.child_by_field_name("name")) if named.type == "aliased_import" else ""
            alias = text_of(named.child_by_field_name("alias"))
            target = target or text_of(named)
            # ``import a.b`` binds only ``a``.
            first = target.partition(".")[0]
            yield Import(target, target if alias else first, alias or first, node.start_byte)
        return
    origin = node.child_by_field_name("module_name")
    written = text_of(origin)
    relative = origin is not None and origin.type == "relative_import"
    base = resolve_relative(written, module, package=package) if relative else written
    for named in node.children_by_field_name("name"):
        aliased = named.type == "aliased_import"
        name = text_of(named.child_by_field_name("name")) if aliased else text_of(named)
        alias = text_of(named.child_by_field_name("alias")) if aliased else name
        target = f"{base}.{name}" if base else name
        # Of ``from . import name`` the name is nearly always a module.
        of_package = relative and not written.strip(". ")
        yield Import(target if of_package else base, target, alias, node.start_byte)


def resolve_relative(written: str, module: str, *, package: bool) -> str:
    """The full name of a relative import such as ``..tasks`` in a module, or in the file of a package."""
    dots = len(written) - len(written.lstrip("."))
    parts = module.split(".")
    kept = parts[: len(parts) - dots + package] if dots - package else parts
    return ".".join([*kept, *filter(None, [written.lstrip(". ")])])


# JavaScript and TypeScript.


def _javascript(node: Node, module: str) -> Iterator[Import]:
    written = text_of(node.child_by_field_name("source")).strip("\"'`")
    if not written:
        return
    base = written
    if written.startswith("."):
        suffix = posixpath.splitext(module)[1]
        base = posixpath.normpath(posixpath.join(posixpath.dirname(module), written))
        base = base if posixpath.splitext(base)[1] else base + suffix
    found = False
    waiting = [child for child in node.named_children if child.type == "import_clause"]
    while waiting:
        child = waiting.pop()
        if child.type == "import_specifier":
            name = text_of(child.child_by_field_name("name"))
            alias = text_of(child.child_by_field_name("alias")) or name
            found = True
            yield Import(base, f"{base}.{name}", alias, node.start_byte)
        elif child.type == "namespace_import":
            found = True
            yield Import(base, base, text_of(child).rpartition(" ")[2], node.start_byte)
        elif child.type == "identifier":
            found = True
            yield Import(base, f"{base}.default", text_of(child), node.start_byte)
        else:
            waiting.extend(reversed(child.named_children))
    if not found:
        yield Import(base, base, "", node.start_byte)


_PYTHON = (".py", ".pyi", ".pyw")


def module_name(path: str, is_package: Callable[[str], bool]) -> str:
    """The dotted name of a Python file, below the outermost package folder; for others the path.

    ``is_package``: whether a folder has the file that makes it a package.
    """
    file = PurePosixPath(path)
    if file.suffix not in _PYTHON:
        return path
    parts = [] if file.stem == "__init__" else [file.stem]
    folder = file.parent
    while folder.name and is_package(str(folder)):
        parts.insert(0, folder.name)
        folder = folder.parent
    return ".".join(parts) or folder.name or file.stem
