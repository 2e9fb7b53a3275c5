"""Syntax of source code: the node types of definitions, calls, imports and base classes in each language."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from penstock.catalog.entities import CLASS, FUNCTION, MAX_NAME, MODULE
from penstock.named_tuple import NamedTuple
from penstock.pipeline.chunk.code import parser

if TYPE_CHECKING:
    from tree_sitter import Node, Query


class Syntax(NamedTuple):
    """Node types of a language. ``definitions`` gives their kind; ``scopes`` have a name, but define nothing.

    ``calls`` gives the field of the called expression, ``bases`` the children of a class that name others.
    ``own``: the names by which a method calls another of its object; ``implicit``: it needs none of them.
    ``assignments`` gives the type of the left side that is an attribute.
    ``capital_classes``: names that begin with a capital are those of classes.
    """

    definitions: Mapping[str, str]
    calls: Mapping[str, str]
    imports: frozenset[str]
    bases: frozenset[str] = frozenset()
    scopes: frozenset[str] = frozenset()
    own: frozenset[str] = frozenset()
    assignments: Mapping[str, str] = MappingProxyType({})
    implicit: bool = False
    capital_classes: bool = True


def _kinds(classes: str = "", functions: str = "", modules: str = "") -> dict[str, str]:
    return (
        dict.fromkeys(classes.split(), CLASS)
        | dict.fromkeys(functions.split(), FUNCTION)
        | dict.fromkeys(modules.split(), MODULE)
    )


_JAVASCRIPT = Syntax(
    _kinds(
        "class_declaration abstract_class_declaration interface_declaration enum_declaration",
        "function_declaration generator_function_declaration method_definition variable_declarator",
    ),
    {"call_expression": "function", "new_expression": "constructor"},
    frozenset(["import_statement"]),
    frozenset(["class_heritage", "extends_type_clause"]),
    own=frozenset(["this"]),
    assignments={"assignment_expression": "member_expression"},
)
_C = Syntax(
    _kinds("struct_specifier union_specifier enum_specifier class_specifier", "function_definition"),
    {"call_expression": "function"},
    frozenset(["preproc_include"]),
    frozenset(["base_class_clause"]),
    scopes=frozenset(["namespace_definition"]),
    own=frozenset(["this"]),
    assignments={"assignment_expression": "field_expression"},
    implicit=True,
)

SYNTAX: Mapping[str, Syntax] = MappingProxyType(
    {
        "python": Syntax(
            _kinds("class_definition", "function_definition"),
            {"call": "function"},
            frozenset(["import_statement", "import_from_statement"]),
            frozenset(["argument_list"]),
            own=frozenset(["self", "cls"]),
            assignments={"assignment": "attribute"},
        ),
        "javascript": _JAVASCRIPT,
        "typescript": _JAVASCRIPT,
        "tsx": _JAVASCRIPT,
        "go": Syntax(
            _kinds("type_spec", "function_declaration method_declaration"),
            {"call_expression": "function"},
            frozenset(["import_spec"]),
            capital_classes=False,
        ),
        "rust": Syntax(
            _kinds("struct_item enum_item union_item trait_item", "function_item", "mod_item"),
            {"call_expression": "function"},
            frozenset(["use_declaration"]),
            scopes=frozenset(["impl_item"]),
            own=frozenset(["self", "Self"]),
            assignments={"assignment_expression": "field_expression"},
        ),
        "java": Syntax(
            _kinds(
                "class_declaration interface_declaration enum_declaration record_declaration",
                "method_declaration constructor_declaration",
            ),
            {"method_invocation": "name", "object_creation_expression": "type"},
            frozenset(["import_declaration"]),
            frozenset(["superclass", "super_interfaces", "extends_interfaces"]),
            own=frozenset(["this"]),
            assignments={"assignment_expression": "field_access"},
            implicit=True,
        ),
        "c": _C,
        "cpp": _C,
    }
)


@functools.cache
def node_query(language: str) -> Query:
    """The query for definitions, calls, imports and attribute assignments of a language."""
    from tree_sitter import Query

    syntax = SYNTAX[language]
    grammar = parser(language).language
    assert grammar is not None
    types = {*syntax.definitions, *syntax.scopes, *syntax.calls, *syntax.imports}
    # Languages with the same syntax here have not all types of it: C has no classes.
    there = [name for name in sorted(types) if grammar.id_for_node_kind(name, True) is not None]
    patterns = [f"({name}) @found" for name in there]
    patterns += [f"({name} left: ({left})) @found" for name, left in syntax.assignments.items()]
    return Query(grammar, " ".join(patterns))


def text_of(node: Node | None) -> str:
    return node.text.decode("utf-8", "replace") if node is not None and node.text is not None else ""


def name_of(node: Node | None) -> str:
    """The text of a name node; empty if too long."""
    return text_of(node) if node is not None and _is_short(node) else ""


def _is_short(node: Node) -> bool:
    return node.end_byte - node.start_byte <= MAX_NAME


def definition_name(node: Node) -> str:
    """The name of a definition: for a Go method with the receiver, for C from inside the declarators."""
    named = node.child_by_field_name("name")
    if named is None and node.type == "impl_item":
        named = node.child_by_field_name("type")
    declarator = node.child_by_field_name("declarator")
    while named is None and declarator is not None:
        inner = declarator.child_by_field_name("declarator")
        if inner is None:
            named = declarator
        declarator = inner
    name = name_of(named)
    if node.type == "method_declaration" and (receiver := node.child_by_field_name("receiver")) is not None:
        words = text_of(receiver).strip("()").replace("*", " ").split("[")[0].split()
        name = f"{words[-1]}.{name}" if words else name
    return "".join(name.replace("::", ".").split("<")[0].split())


def defines(node: Node) -> bool:
    """Check whether a node of the type of a definition is one: ``struct x *p`` is not."""
    if node.type == "variable_declarator":
        value = node.child_by_field_name("value")
        return value is not None and value.type in ("arrow_function", "function_expression")
    return not node.type.endswith("_specifier") or node.child_by_field_name("body") is not None


_DOTTED = frozenset(
    "attribute member_expression selector_expression field_expression scoped_identifier field_access "
    "qualified_identifier scoped_type_identifier".split()
)
_GENERIC = frozenset(["subscript", "generic_type", "template_type"])
_PLAIN = frozenset(["identifier", "type_identifier", "this", "self", "super", "namespace_identifier"])
_WRITTEN = re.compile(r"(?!super\b)[^\W\d]\w*+(?:\.[^\W\d]\w*+)*+")
"""A dotted name as it is written in nearly all calls, for which its parts need not be looked at."""


def dotted(node: Node | None) -> str:
    """The dotted name of an expression; empty for other expressions, such as the result of a call."""
    if node is None or (node.type not in _DOTTED and node.type not in _PLAIN and node.type not in _GENERIC):
        return ""
    written = name_of(node)
    if _WRITTEN.fullmatch(written):
        return written
    name = ".".join(reversed(_parts(node)))
    return name if len(name) <= MAX_NAME else ""


def _parts(node: Node | None) -> list[str]:
    """The parts of a dotted name, the last one first; none if the expression is not one."""
    parts: list[str] = []
    while node is not None:
        if node.type in _DOTTED:
            named = [child for child in node.named_children if child.type != "type_arguments"]
            if len(named) < 2:
                return []
            parts.append(text_of(named[-1]))
            node = named[0]
        elif node.type in _GENERIC:
            node = node.named_children[0] if node.named_children else None
        elif node.type == "call" and name_of(node.child_by_field_name("function")) == "super":
            return [*parts, "super()"]
        elif node.type in _PLAIN:
            return [*parts, "super()" if node.type == "super" else text_of(node)]
        else:
            return []
    return parts
