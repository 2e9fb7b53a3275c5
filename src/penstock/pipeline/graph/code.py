"""Graph of source code: definitions, imports, calls and inheritance of modules, classes and functions.

``_Syntax`` has the node types of each language, ``_read_symbols`` finds the symbols of one file with their
places, and ``_Names`` resolves a used name to what it names. Imports are full names of modules.
"""

from __future__ import annotations

import functools
import math
import posixpath
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from operator import itemgetter
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import TYPE_CHECKING

import msgspec

from penstock.catalog.graph import (
    CLASS,
    FUNCTION,
    MAX_NAME,
    METHOD,
    MODULE,
    Entity,
    Extraction,
    Relation,
)
from penstock.pipeline.chunk.code import parser
from penstock.pipeline.chunk.languages import MAX_PARSED
from penstock.pipeline.graph.protocol import NOTHING, GraphChunk, GraphDocument

if TYPE_CHECKING:
    from tree_sitter import Node, Query


class _Syntax(msgspec.Struct, frozen=True):
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


_JAVASCRIPT = _Syntax(
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
_C = _Syntax(
    _kinds("struct_specifier union_specifier enum_specifier class_specifier", "function_definition"),
    {"call_expression": "function"},
    frozenset(["preproc_include"]),
    frozenset(["base_class_clause"]),
    scopes=frozenset(["namespace_definition"]),
    own=frozenset(["this"]),
    assignments={"assignment_expression": "field_expression"},
    implicit=True,
)

SYNTAX: Mapping[str, _Syntax] = MappingProxyType(
    {
        "python": _Syntax(
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
        "go": _Syntax(
            _kinds("type_spec", "function_declaration method_declaration"),
            {"call_expression": "function"},
            frozenset(["import_spec"]),
            capital_classes=False,
        ),
        "rust": _Syntax(
            _kinds("struct_item enum_item union_item trait_item", "function_item", "mod_item"),
            {"call_expression": "function"},
            frozenset(["use_declaration"]),
            scopes=frozenset(["impl_item"]),
            own=frozenset(["self", "Self"]),
            assignments={"assignment_expression": "field_expression"},
        ),
        "java": _Syntax(
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
def _node_query(language: str) -> Query:
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


def _text_of(node: Node | None) -> str:
    return node.text.decode("utf-8", "replace") if node is not None and node.text is not None else ""


def _name_of(node: Node | None) -> str:
    """The text of a name node; empty if too long."""
    return _text_of(node) if node is not None and _is_short(node) else ""


def _is_short(node: Node) -> bool:
    return node.end_byte - node.start_byte <= MAX_NAME


def _definition_name(node: Node) -> str:
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
    name = _name_of(named)
    if node.type == "method_declaration" and (receiver := node.child_by_field_name("receiver")) is not None:
        words = _text_of(receiver).strip("()").replace("*", " ").split("[")[0].split()
        name = f"{words[-1]}.{name}" if words else name
    return "".join(name.replace("::", ".").split("<")[0].split())


def _defines(node: Node) -> bool:
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


def _dotted(node: Node | None) -> str:
    """The dotted name of an expression; empty for other expressions, such as the result of a call."""
    if node is None or (node.type not in _DOTTED and node.type not in _PLAIN and node.type not in _GENERIC):
        return ""
    written = _name_of(node)
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
            parts.append(_text_of(named[-1]))
            node = named[0]
        elif node.type in _GENERIC:
            node = node.named_children[0] if node.named_children else None
        elif node.type == "call" and _name_of(node.child_by_field_name("function")) == "super":
            return [*parts, "super()"]
        elif node.type in _PLAIN:
            return [*parts, "super()" if node.type == "super" else _text_of(node)]
        else:
            return []
    return parts


class _Import(msgspec.Struct, frozen=True):
    """An import. ``alias``: the name in this file; ``target``: the full name of the imported object."""

    module: str
    target: str
    alias: str
    start: int


def _read_imports(node: Node, language: str, module: str, *, package: bool) -> Iterator[_Import]:
    """The imports of one statement."""
    if language == "python":
        yield from _python(node, module, package=package)
    elif language in ("javascript", "typescript", "tsx"):
        yield from _javascript(node, module)
    elif language == "java":
        name = _text_of(node).removeprefix("import").strip().removeprefix("static ").strip("; \t")
        yield _Import(name.rpartition(".")[0] or name, name, name.rpartition(".")[2], node.start_byte)
    elif language == "rust":
        name = _text_of(node).removeprefix("pub ").removeprefix("use ").strip("; \t\n").replace("::", ".")
        if "{" not in name:
            yield _Import(name.rpartition(".")[0] or name, name, name.rpartition(".")[2], node.start_byte)
    else:
        given = node.child_by_field_name("path")
        name = _text_of(given).strip("\"'<>`")
        if name:
            yield _Import(name, name, name.rpartition("/")[2], node.start_byte)


def _python(node: Node, module: str, *, package: bool) -> Iterator[_Import]:
    if node.type == "import_statement":
        for named in node.children_by_field_name("name"):
            target = _text_of(named.child_by_field_name("name")) if named.type == "aliased_import" else ""
            alias = _text_of(named.child_by_field_name("alias"))
            target = target or _text_of(named)
            # ``import a.b`` binds only ``a``.
            first = target.partition(".")[0]
            yield _Import(target, target if alias else first, alias or first, node.start_byte)
        return
    origin = node.child_by_field_name("module_name")
    written = _text_of(origin)
    relative = origin is not None and origin.type == "relative_import"
    base = resolve_relative(written, module, package=package) if relative else written
    for named in node.children_by_field_name("name"):
        aliased = named.type == "aliased_import"
        name = _text_of(named.child_by_field_name("name")) if aliased else _text_of(named)
        alias = _text_of(named.child_by_field_name("alias")) if aliased else name
        target = f"{base}.{name}" if base else name
        # Of ``from . import name`` the name is nearly always a module.
        of_package = relative and not written.strip(". ")
        yield _Import(target if of_package else base, target, alias, node.start_byte)


def resolve_relative(written: str, module: str, *, package: bool) -> str:
    """The full name of a relative import such as ``..tasks`` in a module, or in the file of a package."""
    dots = len(written) - len(written.lstrip("."))
    parts = module.split(".")
    kept = parts[: len(parts) - dots + package] if dots - package else parts
    return ".".join([*kept, *filter(None, [written.lstrip(". ")])])


def _javascript(node: Node, module: str) -> Iterator[_Import]:
    written = _text_of(node.child_by_field_name("source")).strip("\"'`")
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
            name = _text_of(child.child_by_field_name("name"))
            alias = _text_of(child.child_by_field_name("alias")) or name
            found = True
            yield _Import(base, f"{base}.{name}", alias, node.start_byte)
        elif child.type == "namespace_import":
            found = True
            yield _Import(base, base, _text_of(child).rpartition(" ")[2], node.start_byte)
        elif child.type == "identifier":
            found = True
            yield _Import(base, f"{base}.default", _text_of(child), node.start_byte)
        else:
            waiting.extend(reversed(child.named_children))
    if not found:
        yield _Import(base, base, "", node.start_byte)


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


_MAX_DEPTH = 1_000
"""Nesting that is looked into. Deeper code is generated, or made to hurt: a search costs too much there."""


class _NamedDefinition(msgspec.Struct, frozen=True):
    """``name`` is qualified within the file: ``Queue.claim``. ``start`` counts bytes."""

    name: str
    kind: str
    parent: str
    start: int


class Use(msgspec.Struct, frozen=True):
    """A name used in ``scope``, a definition of the file: the callee of a call, or the base of a class."""

    scope: str
    name: str
    start: int


class _Symbols(msgspec.Struct, frozen=True):
    definitions: list[_NamedDefinition]
    calls: list[Use]
    bases: list[Use]
    imports: list[_Import]
    attributes: set[tuple[str, str]]
    """Attributes set on objects of a class: class and name. They hide methods of base classes."""


class _Scope(msgspec.Struct, frozen=True):
    """A definition around the nodes up to ``end``, a number of bytes."""

    name: str
    class_name: str
    """The innermost class around, if no function is between."""
    end: float


def _read_symbols(source: bytes, language: str, module: str, *, package: bool) -> _Symbols:
    """Read a file. ``package``: relative imports begin in the module itself, not beside it."""
    found = _Symbols([], [], [], [], set())
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
            found.imports.extend(_read_imports(node, language, module, package=package))
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

    cursor = QueryCursor(_node_query(language))
    cursor.set_max_start_depth(_MAX_DEPTH)
    captured = cursor.captures(parser(language).parse(source).root_node)
    nodes = [(node.start_byte, -node.end_byte, node) for some in captured.values() for node in some]
    nodes.sort(key=itemgetter(0, 1))
    return nodes


def _define(node: Node, scope: _Scope, syntax: _Syntax, found: _Symbols) -> _Scope | None:
    """Record a definition, and return the inner scope; None: the node defines nothing."""
    kind = syntax.definitions.get(node.type)
    if (kind is None or not _defines(node)) and node.type not in syntax.scopes:
        return None
    name = _definition_name(node)
    qualified = f"{scope.name}.{name}" if scope.name else name
    if not name or len(qualified) > MAX_NAME:
        return None
    if kind is None:
        return _Scope(qualified, qualified, node.end_byte)
    if kind == FUNCTION and (scope.class_name or node.type == "method_declaration"):
        kind = METHOD
    start = node.child_by_field_name("name") or node
    found.definitions.append(_NamedDefinition(qualified, kind, scope.name, start.start_byte))
    if kind == CLASS:
        _add_bases(node, qualified, syntax, found)
    return _Scope(qualified, "" if kind in (FUNCTION, METHOD) else qualified, node.end_byte)


def _add_call(node: Node, field: str, scope: str, found: _Symbols) -> None:
    callee = node.child_by_field_name(field)
    name = _dotted(callee)
    if node.type == "method_invocation":
        around = node.child_by_field_name("object")
        name = _name_of(callee) if around is None else f"{_dotted(around)}.{_name_of(callee)}"
    if name and not name.startswith("."):
        found.calls.append(Use(scope, name, node.start_byte))


def _add_bases(node: Node, qualified: str, syntax: _Syntax, found: _Symbols) -> None:
    waiting = [child for child in node.children if child.type in syntax.bases]
    while waiting:
        holder = waiting.pop(0)
        for child in holder.named_children:
            if child.type in ("extends_clause", "implements_clause", "type_list"):
                waiting.append(child)
            elif name := _dotted(child):
                found.bases.append(Use(qualified, name, child.start_byte))


def _add_attribute(node: Node, scope: str, syntax: _Syntax, found: _Symbols) -> None:
    owner, _, attribute = _dotted(node.child_by_field_name("left")).partition(".")
    if owner in syntax.own and attribute and "." not in attribute:
        found.attributes.add((scope, attribute))


DEFINES, IMPORTS, CALLS, INHERITS = "defines", "imports", "calls", "inherits"
_MAX_BASES = 20
"""Classes looked through for a method."""


class CodeExtractor:
    """Parses the whole file, joined from the chunks, and assigns the entities and relations to the chunks."""

    name = "code"
    version = 1

    def extract(self, document: GraphDocument, wanted: Sequence[int]) -> list[Extraction]:
        text, starts = joined(document.chunks)
        if document.language not in SYNTAX or len(text) > MAX_PARSED:
            return [NOTHING for _ in wanted]
        places = _Places(text, starts)
        entities: list[Counter[Entity]] = [Counter() for _ in document.chunks]
        relations: list[Counter[tuple[Entity, str, Entity]]] = [Counter() for _ in document.chunks]
        for start, source, kind, target in _relations(text, document):
            at = places.chunk(start)
            entities[at][target] += kind == DEFINES
            entities[at][source] += 0
            relations[at][source, kind, target] += 1
        if document.chunks:
            entities[0][Entity(document.module, MODULE)] += 1
        return [
            Extraction(
                entities[at],
                [Relation(*parts, weight=float(count)) for parts, count in relations[at].items()],
            )
            for at in wanted
        ]


def _relations(text: str, document: GraphDocument) -> Iterator[tuple[int, Entity, str, Entity]]:
    module = Entity(document.module, MODULE)
    package = document.path.endswith("/__init__.py")
    symbols = _read_symbols(
        text.encode("utf-8", "surrogatepass"), document.language, document.module, package=package
    )
    names = Names(symbols, document)
    for one in symbols.definitions:
        yield one.start, names.entity(one.parent), DEFINES, names.entity(one.name)
    for imported in symbols.imports:
        if imported.module and imported.module != document.module:
            yield imported.start, module, IMPORTS, Entity(imported.module, MODULE)
    for base in symbols.bases:
        target = names.resolve(base.name, names.parent(base.scope), kind=CLASS)
        if target is not None:
            yield base.start, names.entity(base.scope), INHERITS, target
    for call in symbols.calls:
        target = names.resolve(call.name, call.scope)
        if target is not None:
            yield call.start, names.entity(call.scope), CALLS, target


class Names:
    """The names of a file: definitions, imports, and the resolution of used names."""

    def __init__(self, symbols: _Symbols, document: GraphDocument) -> None:
        self._module = document.module
        self._syntax = SYNTAX[document.language]
        self._defined: dict[str, _NamedDefinition] = {one.name: one for one in symbols.definitions}
        self._imported = {one.alias: one.target for one in symbols.imports}
        self._modules = {one.target for one in symbols.imports if one.target == one.module}
        self._bases: dict[str, list[str]] = {}
        self._lineages: dict[str, tuple[list[str], str]] = {}
        self._last_parts = {one.name.rpartition(".")[2] for one in symbols.definitions}
        self._attributes = {
            (class_name, name)
            for scope, name in symbols.attributes
            if (class_name := self._class_around(scope)) is not None
        }
        for base in symbols.bases:
            self._bases.setdefault(base.scope, []).append(base.name)

    def entity(self, name: str) -> Entity:
        """The entity of a definition of this file, or of the file itself."""
        found = self._defined.get(name)
        if found is None:
            return Entity(f"{self._module}.{name}", CLASS) if name else Entity(self._module, MODULE)
        return Entity(f"{self._module}.{name}", found.kind)

    def parent(self, name: str) -> str:
        found = self._defined.get(name)
        return found.parent if found is not None else ""

    def resolve(self, name: str, scope: str, *, kind: str | None = None) -> Entity | None:
        """The entity behind a name used in a scope; None: neither defined nor imported here."""
        head, *rest = name.split(".")
        if head in self._syntax.own or head == "super()":
            around = self._class_around(scope)
            if around is None or len(rest) != 1 or (around, rest[0]) in self._attributes:
                return None
            return self._method(around, rest[0], skip_own=head == "super()")
        local = self._local(head, scope)
        if local is not None:
            if not rest:
                return self.entity(local)
            return self._method(local, rest[0]) if len(rest) == 1 else None
        target = self._imported.get(head)
        if target is None:
            return None
        return self._outside(target, rest, kind)

    def _local(self, name: str, scope: str) -> str | None:
        """The definition of a name, in the scope or an outer one."""
        if name.rpartition(".")[2] not in self._last_parts:
            return None
        while True:
            qualified = f"{scope}.{name}" if scope else name
            found = self._defined.get(qualified)
            around = self._defined.get(scope)
            member = around is not None and around.kind == CLASS
            if found is not None and (self._syntax.implicit or not member):
                return qualified
            if not scope:
                return None
            scope = around.parent if around is not None else scope.rpartition(".")[0]

    def _class_around(self, scope: str) -> str | None:
        while scope:
            found = self._defined.get(scope)
            if found is None or found.kind == CLASS:
                return scope
            scope = found.parent
        return None

    def _method(self, class_name: str, name: str, *, skip_own: bool = False) -> Entity | None:
        """A method of a class or the bases. A base of another file is assumed to have the method."""
        classes, outside = self._lineage(class_name)
        for current in classes[1:] if skip_own else classes:
            if (own := f"{current}.{name}") in self._defined:
                return self.entity(own)
        return Entity(f"{outside}.{name}", METHOD) if outside else None

    def _lineage(self, class_name: str) -> tuple[list[str], str]:
        """A class of this file with its bases there, nearest first, and the first base of another file."""
        known = self._lineages.get(class_name)
        if known is not None:
            return known
        classes, outside = [class_name], ""
        for current in classes:
            for local, target in self._resolved_bases(current):
                outside = outside or target
                if local and local not in classes and len(classes) < _MAX_BASES:
                    classes.append(local)
        self._lineages[class_name] = classes, outside
        return classes, outside

    def _resolved_bases(self, class_name: str) -> Iterator[tuple[str, str]]:
        """The bases of a class: the name in this file, or else the full name of an imported one."""
        for base in self._bases.get(class_name, ())[:_MAX_BASES]:
            local = self._local(base, self.parent(class_name))
            head, *rest = base.split(".")
            imported = self._imported.get(head) if local is None else None
            yield local or "", ".".join([imported, *rest]) if imported else ""

    def _outside(self, target: str, rest: Sequence[str], kind: str | None) -> Entity | None:
        """An imported name. The kind is guessed from the spelling: classes begin with a capital."""
        full = ".".join([target, *rest])
        if len(rest) > 2 or full in self._modules:
            return None
        last = full.rpartition(".")[2]
        before = full.rpartition(".")[0].rpartition(".")[2]
        if kind is None:
            in_class = before[:1].isupper() and self._syntax.capital_classes
            is_class = last[:1].isupper() and self._syntax.capital_classes
            kind = CLASS if is_class else METHOD if in_class else FUNCTION
        return Entity(full, kind)


class _Places:
    """Chunks by byte offsets of the joined text. Cheap in any order: the offsets are counted once."""

    def __init__(self, text: str, starts: Sequence[int]) -> None:
        self._starts: list[int] = []
        counted = at = 0
        for start in starts:
            at += len(text[counted:start].encode("utf-8", "surrogatepass"))
            counted = start
            self._starts.append(at)

    def chunk(self, offset: int) -> int:
        return max(bisect_right(self._starts, offset) - 1, 0)


def joined(chunks: Sequence[GraphChunk]) -> tuple[str, list[int]]:
    """The text of a file joined from chunks, and the offset of each chunk.

    Between chunks stood white space only: lines are counted, the rest is the indentation.
    """
    parts: list[str] = []
    starts: list[int] = []
    length = 0
    tabs = any("\n\t" in chunk.text for chunk in chunks)
    for before, chunk in pairwise([None, *chunks]):
        assert chunk is not None
        text = chunk.text
        if before is not None and before.page_number == chunk.page_number:
            gap = chunk.start - (before.start + len(before.text))
            lines = (chunk.first_line or 0) - (before.last_line or 0)
            lines = min(max(lines, 1), max(gap, 0))
            white = "\n" * lines + ("\t" if tabs else " ") * (gap - lines)
            text = white + text if gap >= 0 else text[-gap:]
            starts.append(length + max(gap, 0))
        else:
            text = "\n" + text if parts else text
            starts.append(length + (1 if parts else 0))
        parts.append(text)
        length += len(text)
    return "".join(parts), starts
