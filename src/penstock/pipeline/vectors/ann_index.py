"""A usearch index over the rows of a file of vectors: which of many are worth an exact look.

It holds each vector in a quarter of its size, and numbers of rows. It may cover only the first of them: what
is behind is looked at one by one. How far a search has to go so that it finds nearly all is measured when it
is drawn, with questions that lie between the vectors as those of people do, not with the vectors themselves.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import msgspec
import numpy as np

from penstock.pipeline.vectors.cache_directory import GRAPH
from penstock.pipeline.vectors.footer import FooterFile, seal, unseal
from penstock.pipeline.vectors.memory_rows import Floats, Numbers
from penstock.pipeline.vectors.mmap_rows import HOLE, Label, MappedRows, read_rows

if TYPE_CHECKING:
    from usearch.index import Index

VERSION = 1
CONNECTIVITY, THOROUGHNESS = 16, 128
"""Measured with 200,000 chunks and 200 questions: half as thorough is half the time to draw, and finds 4 of
100 less; more neighbours cost room and find no more."""
REACHES = (400, 800, 1_600, 3_200)
GOOD = 0.98
"""How many of the ten nearest a search has to find, on the average, for the graph to be used."""
QUESTIONS = 64
AT_ONCE = 2_000


class IndexStamp(msgspec.Struct, frozen=True, kw_only=True):
    """What a graph says of itself. ``reach`` 0: however far it looks, it finds too little."""

    lineage: str
    dimension: int
    covered: int
    reach: int
    found: float
    size: int
    checksum: int
    version: int = VERSION


class AnnIndex:
    def __init__(self, index: Index, drawn: IndexStamp, data: mmap.mmap) -> None:
        self.drawn = drawn
        self._index = index
        self._data = data  # what the index looks at, and does not hold itself

    def near(self, query: Floats) -> Numbers:
        """Row numbers, as many as its reach."""
        return _near(self._index, query, self.drawn.reach)


def usearch_installed() -> bool:
    from importlib.util import find_spec

    return find_spec("usearch") is not None


def read_graph(path: Path, rows: MappedRows) -> AnnIndex | None:
    """The graph over these rows. All of it is read once: what is damaged would not fail, but crash."""
    sealed = _sealed(path, rows)
    if sealed is None or not sealed.meta.reach or not usearch_installed():
        return None
    drawn = sealed.meta
    index = _empty(drawn.dimension)
    try:
        index.view(memoryview(sealed.data)[: drawn.size])
    except RuntimeError:
        return None
    index.expansion_search = drawn.reach
    return AnnIndex(index, drawn, sealed.data)


def damaged(path: Path) -> bool:
    """Whether a file of vectors, or the graph over it, is not as it was written. Reads everything."""
    sealed = unseal(path, Label)
    if sealed is None:
        return path.exists()
    rows = read_rows(path, sealed.meta.owner, sealed.meta.dimension)
    if rows is None or not rows.sound():
        return True
    drawing = unseal(path.with_suffix(GRAPH), IndexStamp)
    if drawing is None:
        return path.with_suffix(GRAPH).exists()
    return drawing.meta.size != drawing.length or _checksum(drawing) != drawing.meta.checksum


def drawn_so_far(path: Path, rows: MappedRows) -> IndexStamp | None:
    sealed = _sealed(path, rows)
    return sealed.meta if sealed is not None else None


def _sealed(path: Path, rows: MappedRows) -> FooterFile[IndexStamp] | None:
    sealed = unseal(path, IndexStamp)
    if sealed is None or sealed.meta.version != VERSION:
        return None
    drawn = sealed.meta
    if (drawn.lineage, drawn.dimension) != (rows.label.lineage, rows.label.dimension):
        return None
    whole = drawn.covered <= len(rows) and drawn.size == sealed.length and _checksum(sealed) == drawn.checksum
    return sealed if whole else None


def draw(
    file: BinaryIO, young: Path, rows: MappedRows, before: Path, until: int, stop: Callable[[], bool]
) -> bool:
    """Write a graph over the first ``until`` rows, going on from the one there is; False: stopped before."""
    index, start = _empty(rows.label.dimension), 0
    sealed = _sealed(before, rows)
    if sealed is not None:
        index.load(memoryview(sealed.data)[: sealed.meta.size])
        start = sealed.meta.covered
    for at in range(start, until, AT_ONCE):
        if stop():
            return False
        _add(index, rows, np.arange(at, min(at + AT_ONCE, until)))
    found, reach = _measured(index, rows, until)
    index.save(str(young))
    size = young.stat().st_size
    file.seek(0)
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        checksum = _total(data, size)
    file.seek(size)
    seal(
        file,
        IndexStamp(
            lineage=rows.label.lineage,
            dimension=rows.label.dimension,
            covered=until,
            reach=reach,
            found=found,
            size=size,
            checksum=checksum,
        ),
    )
    return True


def _empty(dimension: int) -> Index:
    from usearch.index import Index

    return Index(
        ndim=dimension, metric="cos", dtype="i8", connectivity=CONNECTIVITY, expansion_add=THOROUGHNESS
    )


def _add(index: Index, rows: MappedRows, numbers: Numbers) -> None:
    vectors = rows.vectors[numbers]
    # Holes, and texts the model knows nothing of: near nothing.
    meant = (rows.keys[numbers] != HOLE) & vectors.any(axis=1)
    if meant.any():
        index.add(numbers[meant], vectors[meant], threads=1)


def _near(index: Index, query: Floats, count: int) -> Numbers:
    found: Numbers = index.search(query, count, threads=1).keys.astype(np.int64)
    return found


def _measured(index: Index, rows: MappedRows, until: int) -> tuple[float, int]:
    """The share of the ten nearest that is found, and the shortest reach that finds enough."""
    questions = _questions(rows, until)
    tenth = _tenth_scores(rows.vectors[:until], questions)
    found = 0.0
    for reach in REACHES:
        index.expansion_search = reach
        hits = 0
        for question, worst in zip(questions, tenth, strict=True):
            scores = rows.vectors[_near(index, question, reach)] @ question
            hits += min(10, int(np.count_nonzero(scores >= worst - 1e-6)))
        found = hits / (10 * len(questions))
        if found >= GOOD:
            return found, reach
    return found, 0


def _questions(rows: MappedRows, until: int) -> Floats:
    """Halfway between two vectors each, always the same."""
    chance = np.random.default_rng(until)
    vectors = rows.vectors[chance.integers(0, until, 2 * QUESTIONS)]
    made = vectors[::2] + vectors[1::2]
    lengths = np.linalg.norm(made, axis=1, keepdims=True)
    return np.ascontiguousarray(made / np.maximum(lengths, 1e-6), np.float32)


def _tenth_scores(vectors: Floats, questions: Floats) -> Floats:
    top: Floats = np.full((len(questions), 10), -1, np.float32)
    for start in range(0, len(vectors), 8_192):
        scores = np.concatenate([top, questions @ vectors[start : start + 8_192].T], axis=1)
        top = np.partition(scores, -10, axis=1)[:, -10:]
    worst: Floats = top.min(axis=1)
    return worst


def _checksum(sealed: FooterFile[IndexStamp]) -> int:
    return _total(sealed.data, sealed.length)


def _total(data: mmap.mmap, size: int) -> int:
    """Quick enough for every process that opens it: a sum of words, and what is left behind the last."""
    words = np.frombuffer(data, "<u8", size // 8)
    rest = int.from_bytes(data[size - size % 8 : size], "little")
    total = (int(np.add.reduce(words)) + rest) % 2**63 if size else 0
    del words  # the map cannot be closed while it is looked at
    return total
