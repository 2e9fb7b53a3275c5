"""Definitions and calls of a Python package, as its own ``ast`` module sees them: the truth for bench.graph.

A call counts when its target is certain: a name defined in the module, a name imported from the package, or
``self.method`` of a method of the class or its bases in the package.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from penstock.pipeline.graph.code import module_name, resolve_relative


class Module(NamedTuple):
    name: str
    path: Path
    tree: ast.Module
    defined: dict[str, ast.AST]
    """Definitions by qualified name in the module."""
    imported: dict[str, str]
    """Full names of what was imported from the package, by the name in the module."""


DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def read_package(folder: Path) -> dict[str, Module]:
    modules: dict[str, Module] = {}
    for path in sorted(folder.rglob("*.py")):
        name = module_name(str(path), lambda folder: (Path(folder) / "__init__.py").exists())
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except (SyntaxError, UnicodeDecodeError):
            continue
        imported = dict(_imported(tree, name, package=path.name == "__init__.py"))
        modules[name] = Module(name, path, tree, dict(_defined(tree, "")), imported)
    return modules


def definitions(modules: dict[str, Module]) -> set[str]:
    return {f"{module.name}.{name}" for module in modules.values() for name in module.defined}


def calls(modules: dict[str, Module]) -> Iterator[tuple[str, str]]:
    """The full names of caller and callee, for each call whose target is certain."""
    for module in modules.values():
        for scope, node in _calls(module.tree, ""):
            target = _target(modules, module, scope, node.func)
            if target is not None:
                yield (f"{module.name}.{scope}" if scope else module.name), target


def _defined(node: ast.AST, scope: str) -> Iterator[tuple[str, ast.AST]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, DEFINITIONS):
            name = f"{scope}.{child.name}" if scope else child.name
            yield name, child
            yield from _defined(child, name)
        else:
            yield from _defined(child, scope)


def _calls(node: ast.AST, scope: str) -> Iterator[tuple[str, ast.Call]]:
    for child in ast.iter_child_nodes(node):
        inner = scope
        if isinstance(child, DEFINITIONS):
            inner = f"{scope}.{child.name}" if scope else child.name
            for decorator in child.decorator_list:
                yield from _calls(ast.Expr(decorator), scope)
            child.decorator_list = []
        if isinstance(child, ast.Call):
            yield scope, child
        yield from _calls(child, inner)


def _imported(tree: ast.Module, module: str, *, package: bool) -> Iterator[tuple[str, str]]:
    root = module.partition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            written = "." * node.level + (node.module or "")
            base = resolve_relative(written, module, package=package) if node.level else node.module or ""
            if base.partition(".")[0] == root:
                for one in node.names:
                    yield one.asname or one.name, f"{base}.{one.name}"


def _target(modules: dict[str, Module], module: Module, scope: str, called: ast.expr) -> str | None:
    if isinstance(called, ast.Name):
        return _name(modules, module, scope, called.id)
    if not isinstance(called, ast.Attribute) or not isinstance(called.value, ast.Name):
        return None
    if called.value.id in ("self", "cls"):
        around = _class_around(module, scope)
        return around and _method(modules, module, around, called.attr)
    return None


def _name(modules: dict[str, Module], module: Module, scope: str, name: str) -> str | None:
    while True:
        qualified = f"{scope}.{name}" if scope else name
        if qualified in module.defined and not isinstance(module.defined.get(scope), ast.ClassDef):
            return f"{module.name}.{qualified}"
        if not scope:
            return followed(modules, module.imported.get(name))
        scope = scope.rpartition(".")[0]


def followed(modules: dict[str, Module], target: str | None) -> str | None:
    """The definition behind an imported name, by way of modules that import it themselves."""
    for _ in range(10):
        if target is None:
            return None
        owner, _, name = target.rpartition(".")
        module = modules.get(owner)
        if module is None:
            return None
        if name in module.defined:
            return target
        target = module.imported.get(name)
    return None


def _class_around(module: Module, scope: str) -> str | None:
    while scope:
        if isinstance(module.defined.get(scope), ast.ClassDef):
            return scope
        scope = scope.rpartition(".")[0]
    return None


def _method(modules: dict[str, Module], module: Module, class_name: str, method: str) -> str | None:
    waiting = [(module, class_name)]
    for _ in range(50):
        if not waiting:
            return None
        owner, name = waiting.pop(0)
        if f"{name}.{method}" in owner.defined:
            return f"{owner.name}.{name}.{method}"
        found = owner.defined.get(name)
        for base in found.bases if isinstance(found, ast.ClassDef) else ():
            if isinstance(base, ast.Name):
                full = _name(modules, owner, name.rpartition(".")[0], base.id)
                waiting += [_place(modules, full)] if full is not None else []
    return None


def _place(modules: dict[str, Module], full: str) -> tuple[Module, str]:
    """The module of a definition, and its name there."""
    owner = full.rpartition(".")[0]
    while owner not in modules:
        owner = owner.rpartition(".")[0]
    return modules[owner], full[len(owner) + 1 :]
