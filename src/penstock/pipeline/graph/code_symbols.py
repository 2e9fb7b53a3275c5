"""Symbols of one source file: definitions, calls, imports and base classes, with their places."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.catalog.entities import CLASS, FUNCTION, METHOD
from penstock.pipeline.graph.imports import Import, read_imports
from penstock.pipeline.graph.syntax import SYNTAX, Syntax, defines, definition_name, dotted, parser, text_of

if TYPE_CHECKING:
    from tree_sitter import Node

_MAX_DEPTH = 200
"""Nesting that is looked into. Deeper code is generated, or made to hurt."""


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


class _Place(NamedTuple):
    node: Node
    scope: str
    class_name: str
    """The innermost class around, if no function is between."""
    depth: int


def read_symbols(source: bytes, language: str, module: str, *, package: bool) -> Symbols:
    """Read a file. ``package``: relative imports begin in the module itself, not beside it."""
    found = Symbols([], [], [], [], set())
    syntax = SYNTAX[language]
    root = parser(language).parse(source).root_node
    waiting = [_Place(root, "", "", 0)]
    while waiting:
        place = waiting.pop()
        inner = _visit(place, syntax, found)
        if place.node.type in syntax.imports:
            found.imports.extend(read_imports(place.node, language, module, package=package))
        elif inner.depth < _MAX_DEPTH:
            children = place.node.named_children
            waiting.extend(inner._replace(node=child, depth=inner.depth + 1) for child in reversed(children))
    return found


def _visit(place: _Place, syntax: Syntax, found: Symbols) -> _Place:
    """Record what a node says, and return the place of its children."""
    node = place.node
    if (field := syntax.calls.get(node.type)) is not None:
        _add_call(place, field, found)
    elif node.type == "assignment" or node.type == "assignment_expression":
        _add_attribute(place, syntax, found)
    kind = syntax.definitions.get(node.type)
    if (kind is None or not defines(node)) and node.type not in syntax.scopes:
        return place
    name = definition_name(node)
    if not name:
        return place
    qualified = f"{place.scope}.{name}" if place.scope else name
    if kind is None:
        return place._replace(scope=qualified, class_name=qualified)
    if kind == FUNCTION and (place.class_name or node.type == "method_declaration"):
        kind = METHOD
    start = node.child_by_field_name("name") or node
    found.definitions.append(NamedDefinition(qualified, kind, place.scope, start.start_byte))
    if kind == CLASS:
        _add_bases(node, qualified, syntax, found)
    return place._replace(scope=qualified, class_name="" if kind in (FUNCTION, METHOD) else qualified)


def _add_call(place: _Place, field: str, found: Symbols) -> None:
    callee = place.node.child_by_field_name(field)
    name = dotted(callee)
    if place.node.type == "method_invocation":
        around = place.node.child_by_field_name("object")
        name = text_of(callee) if around is None else f"{dotted(around)}.{text_of(callee)}"
    if name and not name.startswith("."):
        found.calls.append(Use(place.scope, name, place.node.start_byte))


def _add_bases(node: Node, qualified: str, syntax: Syntax, found: Symbols) -> None:
    waiting = [child for child in node.children if child.type in syntax.bases]
    while waiting:
        holder = waiting.pop(0)
        for child in holder.named_children:
            if child.type in ("extends_clause", "implements_clause", "type_list"):
                waiting.append(child)
            elif name := dotted(child):
                found.bases.append(Use(qualified, name, child.start_byte))


def _add_attribute(place: _Place, syntax: Syntax, found: Symbols) -> None:
    owner, _, attribute = dotted(place.node.child_by_field_name("left")).partition(".")
    if owner in syntax.own and attribute and "." not in attribute:
        found.attributes.add((place.scope, attribute))
