"""Code extractor: modules, classes, functions and methods; definitions, imports, calls and inheritance."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

from penstock.catalog.entities import CLASS, FUNCTION, METHOD, MODULE, Entity, Extraction, Relation
from penstock.pipeline.chunk.languages import MAX_PARSED
from penstock.pipeline.graph.code_symbols import NamedDefinition, Symbols, read_symbols
from penstock.pipeline.graph.protocol import NOTHING, GraphChunk, GraphDocument
from penstock.pipeline.graph.syntax import SYNTAX

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
    symbols = read_symbols(
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

    def __init__(self, symbols: Symbols, document: GraphDocument) -> None:
        self._module = document.module
        self._syntax = SYNTAX[document.language]
        self._defined: dict[str, NamedDefinition] = {one.name: one for one in symbols.definitions}
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
