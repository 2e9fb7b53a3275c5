"""Chunks of source code: whole functions and classes while they fit, with the names they define."""

from __future__ import annotations

import bisect
import functools
import heapq
import importlib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from penstock.pipeline.chunk.blocks import refined
from penstock.pipeline.chunk.boundaries import AFTER_HEADING, HEADING, LINE, VERSION, Units, cuts
from penstock.pipeline.chunk.languages import COMMENTS, GRAMMARS, LARGEST, Grammar
from penstock.pipeline.chunk.prose import ProseChunker, assembled
from penstock.pipeline.chunk.protocol import Chunk, ChunkSizes
from penstock.pipeline.extract.protocol import Shape

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

_DEEPEST = 5
"""Levels of classes and modules that are told apart."""
_DEEPEST_GROUP = 50
"""Groups within groups that are looked into; an ``#elif`` stands in the one before it."""
_LONGEST_NAME = 200
_LONGEST_RECEIVER = 300
_RECEIVER = re.compile(r"\b(\w++)\s*+(?:\[.*\]\s*+)?\)$")


class Definition(NamedTuple):
    start: int
    end: int
    name: str
    """Qualified: ``Queue.claim``."""


class Piece(NamedTuple):
    """A stretch of code at some level; offsets are bytes."""

    start: int
    end: int
    rank: int
    name: str = ""
    members: tuple[Piece, ...] = ()


class CodeChunker:
    """Cuts between definitions. Code that cannot be parsed, or of another language, is cut by lines."""

    version = VERSION

    def __init__(self, language: str | None) -> None:
        self._language = language if language in GRAMMARS else None
        self.name = f"code-{self._language}" if self._language else "code"

    def chunk(self, text: str, sizes: ChunkSizes) -> list[Chunk]:
        pieces = self._pieces(text)
        if pieces is None:
            return ProseChunker(Shape.ROWS).chunk(text, sizes)
        units, definitions = _flattened(text, pieces, sizes.size)
        chunks = assembled(text, cuts(text, refined(text, units, sizes.size), sizes.size), sizes)
        return list(_named(chunks, definitions))

    def _pieces(self, text: str) -> tuple[Piece, ...] | None:
        if self._language is None or len(text) > LARGEST:
            return None
        source = text.encode("utf-8", "surrogatepass")
        root = _parser(self._language).parse(source).root_node
        if _damage(root) > len(source) // 10:
            return None
        return tuple(_level(root, GRAMMARS[self._language], "", 0))


@functools.cache
def _parser(language: str) -> Parser:
    from tree_sitter import Language, Parser

    grammar = GRAMMARS[language]
    package = importlib.import_module(grammar.package)
    return Parser(Language(getattr(package, grammar.function)()))


def _damage(root: Node) -> int:
    """Bytes near the top that the grammar could not place."""
    if not root.has_error:
        return 0
    if root.type == "ERROR":
        return root.end_byte - root.start_byte
    spots = [child for node in root.children for child in (node, *node.children) if child.type == "ERROR"]
    return sum(spot.end_byte - spot.start_byte for spot in spots)


def _level(parent: Node, grammar: Grammar, path: str, depth: int, group: int = 0) -> Iterator[Piece]:
    """The pieces directly in ``parent``. A comment and the definition right below it begin together."""
    comments: list[Node] = []
    for node in parent.children:
        if node.type in COMMENTS:
            if comments and not _adjacent(comments[-1], node):
                yield _remark(comments)
                comments = []
            comments.append(node)
            continue
        pieces = list(_of_node(node, grammar, path, depth, group))
        if comments and pieces and pieces[0].name and _adjacent(comments[-1], node):
            pieces[0] = pieces[0]._replace(start=comments[0].start_byte)
        elif comments:
            yield _remark(comments)
        comments = []
        yield from pieces
    if comments:
        yield _remark(comments)


def _remark(comments: list[Node]) -> Piece:
    return Piece(comments[0].start_byte, comments[-1].end_byte, LINE)


def _adjacent(before: Node, node: Node) -> bool:
    return node.start_point[0] - before.end_point[0] <= 1


def _of_node(node: Node, grammar: Grammar, path: str, depth: int, group: int) -> Iterator[Piece]:
    definitions = _definitions(node, grammar)
    if definitions:
        first, *others = (_named_piece(found, node, grammar, path, depth) for found in definitions)
        # Several in one statement stay together, as members of the first.
        yield first._replace(start=node.start_byte, end=node.end_byte, members=(*first.members, *others))
    elif node.type in grammar.groups and group < _DEEPEST_GROUP:
        yield Piece(node.start_byte, node.start_byte, LINE)
        yield from _level(node, grammar, path, depth, group + 1)
    elif node.is_named:
        yield Piece(node.start_byte, node.end_byte, LINE)


def _named_piece(definition: Node, around: Node, grammar: Grammar, path: str, depth: int) -> Piece:
    name = _name(definition) or _plain(_text(_declared(around)))
    qualified = f"{path}.{name}" if path and name else name or path
    body = definition.child_by_field_name("body")
    members: tuple[Piece, ...] = ()
    if body is not None and definition.type in grammar.containers and depth < _DEEPEST:
        members = tuple(_level(body, grammar, qualified, depth + 1))
    return Piece(definition.start_byte, definition.end_byte, HEADING + depth, qualified, members)


def _definitions(node: Node, grammar: Grammar, deeper: int = 2) -> list[Node]:
    """The node itself, or what a wrapper holds; a bare ``struct x`` or ``const n = 1`` defines nothing."""
    if node.type in grammar.containers or node.type in grammar.leaves:
        return [node] if _defines(node) else []
    if node.type not in grammar.wrappers or deeper < 0:
        return []
    return [found for child in node.named_children for found in _definitions(child, grammar, deeper - 1)]


def _defines(node: Node) -> bool:
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


def _name(node: Node) -> str:
    named = node.child_by_field_name("name")
    if named is None and node.type == "impl_item":
        named = node.child_by_field_name("type")
    if named is None:
        named = _declared(node)
    text = _text(named)
    if node.type == "method_declaration":
        around = _text(node.child_by_field_name("receiver"))
        receiver = _RECEIVER.search(around) if len(around) <= _LONGEST_RECEIVER else None
        text = f"{receiver[1]}.{text}" if receiver else text
    return _plain(text)


def _plain(name: str) -> str:
    """Without type parameters and spaces, dots between its parts."""
    name = name.replace("::", ".")
    opening, closing = name.find("<"), name.rfind(">")
    if 0 <= opening < closing:
        name = name[:opening] + name[closing + 1 :]
    return "".join(name.split())[:_LONGEST_NAME]


def _declared(node: Node) -> Node | None:
    """C wraps a function's name in its declarators."""
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


def _flattened(text: str, pieces: tuple[Piece, ...], size: int) -> tuple[Units, list[Definition]]:
    """Units in characters. Only a definition that is too long is opened for cuts; all are kept as names."""
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
                visit(member._replace(rank=AFTER_HEADING) if number == 0 else member, opened)
            definitions[index] = Definition(start, chars.at(piece.end), piece.name)

    for piece in pieces:
        visit(piece, True)
    if units:
        # What comes before the first piece, a byte order mark or blank lines, goes with it.
        units[0] = (0, units[0][1])
    return _in_order(units), definitions


def _in_order(units: list[tuple[int, int]]) -> Units:
    """One unit a place, the best rank of those that begin there."""
    best: dict[int, int] = {}
    for start, rank in units:
        best[start] = min(rank, best.get(start, rank))
    return Units(sorted(best.items()))


class _Characters:
    """Where a byte offset of the UTF-8 form lies in the text. Cheap when asked in rising order."""

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
    """How many characters begin here."""
    return len(encoded.translate(None, _CONTINUATIONS))


def _named(chunks: list[Chunk], definitions: list[Definition]) -> Iterator[Chunk]:
    """With the names defined in each, after that of the definition its start lies in."""
    by_start = sorted(range(len(definitions)), key=lambda index: definitions[index].start)
    starts = [definitions[index].start for index in by_start]
    begun = 0
    around: list[int] = []
    for chunk in chunks:
        while begun < len(starts) and starts[begun] < chunk.start:
            heapq.heappush(around, -by_start[begun])
            begun += 1
        # The last of those that reach past here; those that ended reach past no later chunk either.
        while around and definitions[-around[0]].end <= chunk.start:
            heapq.heappop(around)
        first = bisect.bisect_left(starts, chunk.start)
        here = sorted(by_start[first : bisect.bisect_left(starts, chunk.end)])
        indexes = [*(-index for index in around[:1]), *here]
        names = dict.fromkeys(definitions[index].name for index in indexes)
        yield msgspec.structs.replace(chunk, symbols=tuple(names))
