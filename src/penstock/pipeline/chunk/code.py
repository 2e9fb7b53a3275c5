"""Chunks of source code: whole functions and classes while they fit, with the names they define."""

from __future__ import annotations

import bisect
import functools
import heapq
import importlib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from penstock.pipeline.chunk.languages import (
    COMMENTS,
    GRAMMARS,
    MAX_MORE_PARSED,
    MAX_PARSED,
    MORE_GRAMMARS,
    Grammar,
    grammar_installed,
)
from penstock.pipeline.chunk.text import (
    AFTER_HEADING,
    CHUNKING_VERSION,
    HEADING,
    LINE,
    Chunk,
    ChunkSizes,
    ProseChunker,
    Units,
    build_chunks,
    cuts,
    split_long_units,
)
from penstock.pipeline.extract.protocol import Shape

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

_MAX_DEPTH = 5
"""Nested classes and modules that are looked into."""
_MAX_GROUP_DEPTH = 50
"""Nested groups that are looked into. In C, each ``#elif`` is nested in the branch before."""
_MAX_NAME = 200
_MAX_NAME_NODES = 10
_TAIL = -1
"""Rank of a piece that belongs to the definition before it."""
_MAX_RECEIVER = 300
_RECEIVER = re.compile(r"\b(\w++)\s*+(?:\[.*\]\s*+)?\)$")


class Definition(msgspec.Struct, frozen=True):
    start: int
    end: int
    name: str
    """Qualified: ``Queue.claim``."""


class Piece(msgspec.Struct, frozen=True):
    """A stretch of code at one level. Offsets count bytes."""

    start: int
    end: int
    rank: int
    name: str = ""
    members: tuple[Piece, ...] = ()


class CodeChunker:
    """Cuts between definitions. Unparsable code, or code in an unknown language, is cut by lines."""

    version = CHUNKING_VERSION

    def __init__(self, language: str | None) -> None:
        self._language = language if language in GRAMMARS and grammar_installed(language) else None
        self.name = f"code-{self._language}" if self._language else "code"

    def chunk(self, text: str, sizes: ChunkSizes) -> list[Chunk]:
        pieces = self._pieces(text)
        if pieces is None:
            return ProseChunker(Shape.ROWS).chunk(text, sizes)
        units, definitions = _flatten(text, pieces, sizes.size)
        chunks = build_chunks(text, cuts(text, split_long_units(text, units, sizes.size), sizes.size), sizes)
        return list(_with_symbols(chunks, definitions))

    def _pieces(self, text: str) -> tuple[Piece, ...] | None:
        most = MAX_MORE_PARSED if self._language in MORE_GRAMMARS else MAX_PARSED
        if self._language is None or len(text) > most:
            return None
        source = text.encode("utf-8", "surrogatepass")
        root = parser(self._language).parse(source).root_node
        if _error_bytes(root) > len(source) // 10:
            return None
        return tuple(_level(root, GRAMMARS[self._language], "", 0))


@functools.cache
def parser(language: str) -> Parser:
    from tree_sitter import Language, Parser

    grammar = GRAMMARS[language]
    package = importlib.import_module(grammar.package)
    return Parser(Language(getattr(package, grammar.function)()))


def _error_bytes(root: Node) -> int:
    """Bytes of parse errors near the top of the tree."""
    if not root.has_error:
        return 0
    if root.type == "ERROR":
        return root.end_byte - root.start_byte
    errors = [child for node in root.children for child in (node, *node.children) if child.type == "ERROR"]
    return sum(error.end_byte - error.start_byte for error in errors)


def _level(parent: Node, grammar: Grammar, path: str, depth: int, group: int = 0) -> Iterator[Piece]:
    """The pieces directly in ``parent``, with the parts of one definition joined."""
    last: Piece | None = None
    for piece in _parts(parent, grammar, path, depth, group):
        clause = grammar.clauses and last is not None and piece.name == last.name != ""
        if last is not None and last.name and (piece.rank == _TAIL or clause):
            last = replace(last, end=piece.end)
            continue
        if last is not None:
            yield last
        last = piece if piece.rank != _TAIL else replace(piece, rank=LINE)
    if last is not None:
        yield last


def _parts(parent: Node, grammar: Grammar, path: str, depth: int, group: int) -> Iterator[Piece]:
    """The pieces directly in ``parent``. A comment belongs to the definition right below."""
    comments: list[Node] = []
    for node in parent.children:
        if node.type in COMMENTS:
            if comments and not _adjacent(comments[-1], node):
                yield _comment_piece(comments)
                comments = []
            comments.append(node)
            continue
        pieces = list(_node_pieces(node, grammar, path, depth, group))
        if comments and pieces and pieces[0].name and _adjacent(comments[-1], node):
            pieces[0] = replace(pieces[0], start=comments[0].start_byte)
        elif comments:
            yield _comment_piece(comments)
        comments = []
        yield from pieces
    if comments:
        yield _comment_piece(comments)


def _comment_piece(comments: list[Node]) -> Piece:
    return Piece(comments[0].start_byte, comments[-1].end_byte, LINE)


def _adjacent(before: Node, node: Node) -> bool:
    return node.start_point[0] - before.end_point[0] <= 1


def _node_pieces(node: Node, grammar: Grammar, path: str, depth: int, group: int) -> Iterator[Piece]:
    definitions = _definitions(node, grammar)
    if definitions:
        first, *others = (_named_piece(found, node, grammar, path, depth) for found in definitions)
        # Several definitions in one statement stay together, as members of the first.
        yield replace(first, start=node.start_byte, end=node.end_byte, members=(*first.members, *others))
    elif node.type in grammar.groups and group < _MAX_GROUP_DEPTH:
        yield Piece(node.start_byte, node.start_byte, LINE)
        yield from _level(node, grammar, path, depth, group + 1)
    elif node.is_named:
        rank = _TAIL if node.type in grammar.tails else LINE
        yield Piece(node.start_byte, node.end_byte, rank)


def _named_piece(definition: Node, around: Node, grammar: Grammar, path: str, depth: int) -> Piece:
    name = _name(definition, grammar) or _normalise_name(_text(_innermost_declarator(around)))
    qualified = f"{path}.{name}" if path and name else name or path
    body = _body(definition, grammar)
    members: tuple[Piece, ...] = ()
    if body is not None and definition.type in grammar.containers and depth < _MAX_DEPTH:
        members = tuple(_level(body, grammar, qualified, depth + 1))
    return Piece(definition.start_byte, definition.end_byte, HEADING + depth, qualified, members)


def _definitions(node: Node, grammar: Grammar, deeper: int = 2) -> list[Node]:
    """Definitions: the node itself, or the contents of a wrapper. A bare ``struct x`` defines nothing."""
    if node.type in grammar.containers or node.type in grammar.leaves:
        return [node] if _defines(node, grammar) else []
    if node.type not in grammar.wrappers or deeper < 0:
        return []
    return [found for child in node.named_children for found in _definitions(child, grammar, deeper - 1)]


def _body(node: Node, grammar: Grammar, deeper: int = 1) -> Node | None:
    """The node with the members of a definition."""
    found = node.child_by_field_name("body")
    if found is not None or not grammar.bodies:
        return found
    for child in node.named_children:
        if child.type in grammar.bodies:
            return child
        inner = _body(child, grammar, deeper - 1) if deeper and node.type in grammar.needing_body else None
        if inner is not None:
            return inner
    return node if "." in grammar.bodies else None


def _defines(node: Node, grammar: Grammar) -> bool:
    if grammar.keywords:
        return _text(node.child(0)) in grammar.keywords
    if node.type in grammar.short_functions:
        left = node.named_children[0] if node.named_children else None
        return left is not None and left.type == "call_expression"
    if node.type in grammar.needing_body:
        return _body(node, grammar) is not None
    if node.type == "variable_declarator":
        value = node.child_by_field_name("value")
        return value is not None and value.type in (
            "arrow_function",
            "function_expression",
            "generator_function",
            "class",
        )
    if node.type.endswith("_specifier"):
        return node.child_by_field_name("body") is not None
    return True


def _name(node: Node, grammar: Grammar) -> str:
    named = node.child_by_field_name("name")
    if named is None and node.type == "impl_item":
        named = node.child_by_field_name("type")
    if named is None:
        named = _innermost_declarator(node)
    if named is None and node.type == "block":
        # resource "aws_instance" "wheel" { … }
        parts = [child for child in node.named_children if child.type in grammar.names]
        return _normalise_name(".".join(_text(part).strip('"') for part in parts))
    if named is None and grammar.names:
        named = _first_name(node.children[1:] if grammar.keywords else node.children, grammar)
    text = _text(named)
    if node.type == "method_declaration":
        around = _text(node.child_by_field_name("receiver"))
        receiver = _RECEIVER.search(around) if len(around) <= _MAX_RECEIVER else None
        text = f"{receiver[1]}.{text}" if receiver else text
    return _normalise_name(text)


def _first_name(nodes: list[Node], grammar: Grammar, deeper: int = 4) -> Node | None:
    """The first name node, in the order of the text."""
    for node in nodes[:_MAX_NAME_NODES]:
        found = node if node.type in grammar.names else None
        if found is None and deeper:
            found = _first_name(node.children, grammar, deeper - 1)
        if found is not None:
            return found
    return None


def _normalise_name(name: str) -> str:
    """Normalise a name: no type parameters, no spaces, dots between the parts."""
    name = name.replace("::", ".")
    opening, closing = name.find("<"), name.rfind(">")
    if 0 <= opening < closing:
        name = name[:opening] + name[closing + 1 :]
    return "".join(name.split())[:_MAX_NAME]


def _innermost_declarator(node: Node) -> Node | None:
    """Innermost declarator of a node: C wraps the name of a function in declarators."""
    found = node.child_by_field_name("declarator")
    while found is not None:
        inner = found.child_by_field_name("declarator")
        if inner is None:
            inner = next(
                (child for child in found.named_children if child.type.endswith("_declarator")), None
            )
        if inner is None:
            return found
        found = inner
    return None


def _text(node: Node | None) -> str:
    return node.text.decode("utf-8", "replace") if node is not None and node.text is not None else ""


def _flatten(text: str, pieces: tuple[Piece, ...], size: int) -> tuple[Units, list[Definition]]:
    """Units, as character offsets, and all definitions. Only overlong definitions are cut inside."""
    units: list[tuple[int, int]] = []
    definitions: list[Definition] = []
    chars = _Characters(text)

    def visit(piece: Piece, cut_here: bool) -> None:
        start = chars.at(piece.start)
        if cut_here:
            units.append((start, piece.rank))
        if piece.name:
            index = len(definitions)
            definitions.append(Definition(start, start, piece.name))
            opened = cut_here and piece.end - piece.start > size
            for number, member in enumerate(piece.members):
                visit(replace(member, rank=AFTER_HEADING) if number == 0 else member, opened)
            definitions[index] = Definition(start, chars.at(piece.end), piece.name)

    for piece in pieces:
        visit(piece, True)
    if units:
        # Anything before the first piece (a byte order mark, blank lines) belongs to it.
        units[0] = (0, units[0][1])
    return _in_order(units), definitions


def _in_order(units: list[tuple[int, int]]) -> Units:
    """Sort the units. Of several at one place, the best rank counts."""
    best: dict[int, int] = {}
    for start, rank in units:
        best[start] = min(rank, best.get(start, rank))
    return Units(sorted(best.items()))


class _Characters:
    """Converts byte offsets of UTF-8 to character offsets. Cheap in rising order."""

    def __init__(self, text: str) -> None:
        self._source = None if text.isascii() else text.encode("utf-8", "surrogatepass")
        self._byte = 0
        self._char = 0

    def at(self, offset: int) -> int:
        if self._source is None:
            return offset
        if offset >= self._byte:
            self._char += _starts(self._source[self._byte : offset])
        else:
            self._char -= _starts(self._source[offset : self._byte])
        self._byte = offset
        return self._char


_CONTINUATIONS = bytes(range(0x80, 0xC0))


def _starts(encoded: bytes) -> int:
    """Number of characters beginning in these bytes."""
    return len(encoded.translate(None, _CONTINUATIONS))


def _with_symbols(chunks: list[Chunk], definitions: list[Definition]) -> Iterator[Chunk]:
    """Add symbols to chunks: the definition around the start of the chunk, then all beginning inside."""
    by_start = sorted(range(len(definitions)), key=lambda index: definitions[index].start)
    starts = [definitions[index].start for index in by_start]
    begun = 0
    around: list[int] = []
    for chunk in chunks:
        while begun < len(starts) and starts[begun] < chunk.start:
            heapq.heappush(around, -by_start[begun])
            begun += 1
        # The innermost definition that reaches past here. Definitions that ended concern no later chunk.
        while around and definitions[-around[0]].end <= chunk.start:
            heapq.heappop(around)
        first = bisect.bisect_left(starts, chunk.start)
        here = sorted(by_start[first : bisect.bisect_left(starts, chunk.end)])
        indexes = [*(-index for index in around[:1]), *here]
        names = dict.fromkeys(definitions[index].name for index in indexes)
        yield replace(chunk, symbols=tuple(names))
