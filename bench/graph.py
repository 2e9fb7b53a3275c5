"""``python -m bench.graph``: what the extractors without a model find, and what they cost.

Prose: untyped entities and pairs of CoNLL04, next to runs of capitalised words. Code: definitions and calls
of a Python package, next to what Python's ``ast`` resolves.
"""

from __future__ import annotations

import argparse
import ast
import re
import time
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from itertools import combinations
from pathlib import Path
from typing import NamedTuple, TypeVar

from bench import graph_reference
from bench.judged_sets import CORPUS
from penstock.catalog.graph import Extraction
from penstock.pipeline.draft import chunk_page
from penstock.pipeline.extract.protocol import Shape
from penstock.pipeline.graph.code import CALLS, DEFINES, CodeExtractor, module_name
from penstock.pipeline.graph.prose import extract_text
from penstock.pipeline.graph.protocol import GraphChunk, GraphDocument

CONLL04 = CORPUS.parent / "graph" / "conll04" / "dev.txt"
T = TypeVar("T")
Found = tuple[set[str], set[frozenset[str]]]


class Score(NamedTuple):
    right: int
    wrong: int
    missed: int

    @property
    def recall(self) -> float:
        return self.right / max(1, self.right + self.missed)

    @property
    def f1(self) -> float:
        return 2 * self.right / max(1, 2 * self.right + self.wrong + self.missed)

    @classmethod
    def of(cls, pairs: Iterable[tuple[AbstractSet[T], AbstractSet[T]]]) -> Score:
        right = wrong = missed = 0
        for gold, found in pairs:
            right += len(gold & found)
            wrong += len(found - gold)
            missed += len(gold - found)
        return cls(right, wrong, missed)


# Prose.


class Labelled(NamedTuple):
    text: str
    entities: set[str]
    pairs: set[frozenset[str]]


def conll04(path: Path) -> list[Labelled]:
    """The sentences of a file with one token a line: number, token, tag, relations, and where they lead."""
    found: list[Labelled] = []
    rows: list[list[str]] = []
    for line in [*path.read_text(encoding="utf-8").splitlines(), "#doc"]:
        if line.startswith("#doc"):
            found += [_labelled(rows)] if rows else []
            rows = []
        elif line.strip():
            rows.append(line.split("\t"))
    return found


def _labelled(rows: list[list[str]]) -> Labelled:
    spans: list[tuple[int, int]] = []
    for at, row in enumerate(rows):
        if row[2].startswith("B-"):
            spans.append((at, at))
        elif row[2].startswith("I-") and spans and spans[-1][1] == at - 1:
            spans[-1] = (spans[-1][0], at)
    names = {last: _folded(_text([row[1] for row in rows[first : last + 1]])) for first, last in spans}
    pairs = {
        frozenset((names[at], names[head]))
        for at, row in enumerate(rows)
        for kind, head in zip(ast.literal_eval(row[3]), ast.literal_eval(row[4]), strict=True)
        if kind != "N" and at in names and head in names
    }
    return Labelled(_text([row[1] for row in rows]), set(names.values()), pairs)


def _text(tokens: list[str]) -> str:
    text = ""
    for token in tokens:
        glued = token in ".,;:!?)]%'" or token.startswith("'") or text[-1:] in ("(", "[")
        text += token if not text or glued else f" {token}"
    return text


def _folded(name: str) -> str:
    return " ".join(name.lower().split())


def extracted(text: str) -> Found:
    found: Extraction = extract_text(text)
    pairs = {frozenset((_folded(one.source.name), _folded(one.target.name))) for one in found.relations}
    return {_folded(entity.name) for entity in found.entities}, pairs


def capitalised(text: str) -> Found:
    """The floor: runs of capitalised words, and all pairs of them."""
    names = {_folded(name) for name in re.findall(r"[A-Z][\w.&'-]*(?: [A-Z][\w.&'-]*)*", text)}
    return names, {frozenset(pair) for pair in combinations(sorted(names), 2)}


def prose_scores(sentences: list[Labelled], find: Callable[[str], Found]) -> tuple[Score, Score]:
    found = [find(one.text) for one in sentences]
    entities = Score.of((one.entities, names) for one, (names, _) in zip(sentences, found, strict=True))
    return entities, Score.of((one.pairs, pairs) for one, (_, pairs) in zip(sentences, found, strict=True))


# Code.


def code_scores(folder: Path) -> tuple[Score, Score]:
    """Definitions and calls of a package. The files are cut into chunks first, as they are when indexed."""
    modules = graph_reference.read_package(folder)
    wanted = graph_reference.definitions(modules), set(graph_reference.calls(modules))
    defined: set[str] = set()
    called: set[tuple[str, str]] = set()
    for module in modules.values():
        for extraction in graph_of(module.path):
            for one in extraction.relations:
                if one.kind == DEFINES:
                    defined.add(one.target.name)
                elif one.kind == CALLS:
                    # An imported name leads where it was imported from; the truth is where it is defined.
                    target = graph_reference.followed(modules, one.target.name) or one.target.name
                    called.add((one.source.name, target))
    known = {pair for pair in called if pair[1] in wanted[0]}
    return Score.of([(wanted[0], defined)]), Score.of([(wanted[1], known)])


def graph_of(path: Path) -> list[Extraction]:
    text = path.read_text(encoding="utf-8")
    chunks = [
        GraphChunk(one.text, 1, one.start, one.start_line, one.end_line)
        for one in chunk_page(text, Shape.CODE, "python")
    ]
    name = module_name(str(path), lambda folder: (Path(folder) / "__init__.py").exists())
    document = GraphDocument(str(path), chunks, "python", name)
    return CodeExtractor().extract(document, range(len(chunks)))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.graph", description=__doc__)
    parser.add_argument("--conll04", type=Path, default=CONLL04, help="a part of CoNLL04")
    parser.add_argument(
        "--package", type=Path, action="append", default=[], help="folder of a Python package"
    )
    options = parser.parse_args()
    if options.conll04.exists():
        sentences = conll04(options.conll04)
        print(f"{options.conll04.name}: {len(sentences)} sentences; F1 of entities and pairs")
        for name, find in (("capitalised words", capitalised), ("penstock", extracted)):
            entities, pairs = prose_scores(sentences, find)
            print(f"  {name:20}{entities.f1:8.3f}{pairs.f1:8.3f}")
    for folder in options.package:
        began = time.process_time()
        defined, called = code_scores(folder)
        print(f"{folder.name}: recall of {defined.right + defined.missed} definitions and of calls")
        print(f"  {'penstock':20}{defined.recall:8.3f}{called.recall:8.3f}  (F1 of calls {called.f1:.3f})")
        print(f"  {time.process_time() - began:.1f} s of CPU time, the reference included")


if __name__ == "__main__":
    main()
