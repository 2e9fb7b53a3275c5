"""Symbols of one source file: definitions, calls, imports and base classes, with their places."""

from __future__ import annotations

import math
from operator import itemgetter
from typing import TYPE_CHECKING

from penstock.catalog.entities import CLASS, FUNCTION, MAX_NAME, METHOD
from penstock.named_tuple import NamedTuple
from penstock.pipeline.chunk.code import parser
from penstock.pipeline.graph.imports import Import, read_imports
from penstock.pipeline.graph.syntax import (
    SYNTAX,
    Syntax,
    defines,
    definition_name,
    dotted,
    name_of,
    node_query,
)

if TYPE_CHECKING:
    from tree_sitter import Node


_MAX_DEPTH = 1_000
"""Nesting that is looked into. Deeper code is generated, or made to hurt: a search costs too much there."""


class NamedDefinition(NamedTuple):
    """``name`` is qualified within the file: ``Queue.claim``. ``start`` counts bytes."""

    name: str
    kind: str
    parent: str
    start: int


class Use(NamedTuple):
    """A name used in ``scope``, a definition of the file: the callee of a call, or the base of a class."""

    scope: str
    name: str
    start: int


class Symbols(NamedTuple):
    definitions: list[NamedDefinition]
    calls: list[Use]
    bases: list[Use]
    imports: list[Import]
    attributes: set[tuple[str, str]]
    """Attributes set on objects of a class: class and name. They hide methods of base classes."""


class _Scope(NamedTuple):
    """A definition around the nodes up to ``end``, a number of bytes."""

    name: str
    class_name: str
    """The innermost class around, if no function is between."""
    end: float


def read_symbols(source: bytes, language: str, module: str, *, package: bool) -> Symbols:
    """Read a file. ``package``: relative imports begin in the module itself, not beside it."""
    found = Symbols([], [], [], [], set())
    syntax = SYNTAX[language]
    open_scopes = [_Scope("", "", math.inf)]
    for start, _, node in _nodes(source, language):
        while open_scopes[-1].end <= start:
            open_scopes.pop()
        scope = open_scopes[-1]
        kind = node.type
        if (field := syntax.calls.get(kind)) is not None:
            _add_call(node, field, scope.name, found)
        elif kind in syntax.imports:
            found.imports.extend(read_imports(node, language, module, package=package))
        elif kind in syntax.assignments:
            _add_attribute(node, scope.name, syntax, found)
        elif (inner := _define(node, scope, syntax, found)) is not None:
            open_scopes.append(inner)
    return found


def _nodes(source: bytes, language: str) -> list[tuple[int, int, Node]]:
    """The relevant nodes, in the order of the source, outer ones first.

    The tree is searched by the library: a step in Python for each of its nodes costs five times as much.
    """
    from tree_sitter import QueryCursor

    cursor = QueryCursor(node_query(language))
    cursor.set_max_start_depth(_MAX_DEPTH)
    captured = cursor.captures(parser(language).parse(source).root_node)
    nodes = [(node.start_byte, -node.end_byte, node) for some in captured.values() for node in some]
    nodes.sort(key=itemgetter(0, 1))
    return nodes


def _define(node: Node, scope: _Scope, syntax: Syntax, found: Symbols) -> _Scope | None:
    """Record a definition, and return the inner scope; None: the node defines nothing."""
    kind = syntax.definitions.get(node.type)
    if (kind is None or not defines(node)) and node.type not in syntax.scopes:
        return None
    name = definition_name(node)
    qualified = f"{scope.name}.{name}" if scope.name else name
    if not name or len(qualified) > MAX_NAME:
        return None
    if kind is None:
        return _Scope(qualified, qualified, node.end_byte)
    if kind == FUNCTION and (scope.class_name or node.type == "method_declaration"):
        kind = METHOD
    start = node.child_by_field_name("name") or node
    found.definitions.append(NamedDefinition(qualified, kind, scope.name, start.start_byte))
    if kind == CLASS:
        _add_bases(node, qualified, syntax, found)
    return _Scope(qualified, "" if kind in (FUNCTION, METHOD) else qualified, node.end_byte)


def _add_call(node: Node, field: str, scope: str, found: Symbols) -> None:
    callee = node.child_by_field_name(field)
    name = dotted(callee)
    if node.type == "method_invocation":
        around = node.child_by_field_name("object")
        name = name_of(callee) if around is None else f"{dotted(around)}.{name_of(callee)}"
    if name and not name.startswith("."):
        found.calls.append(Use(scope, name, node.start_byte))


def _add_bases(node: Node, qualified: str, syntax: Syntax, found: Symbols) -> None:
    waiting = [child for child in node.children if child.type in syntax.bases]
    while waiting:
        holder = waiting.pop(0)
        for child in holder.named_children:
            if child.type in ("extends_clause", "implements_clause", "type_list"):
                waiting.append(child)
            elif name := dotted(child):
                found.bases.append(Use(qualified, name, child.start_byte))


def _add_attribute(node: Node, scope: str, syntax: Syntax, found: Symbols) -> None:
    owner, _, attribute = dotted(node.child_by_field_name("left")).partition(".")
    if owner in syntax.own and attribute and "." not in attribute:
        found.attributes.add((scope, attribute))
