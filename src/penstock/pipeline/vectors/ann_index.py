"""Approximate index (usearch) over the rows of a vector file: proposes candidates for exact scores.

The index holds each vector in a quarter of its size, with its row number. It may cover only the first rows;
the others are scored one by one. How many candidates a search needs to find nearly all neighbours is measured
when the index is built. The sample queries lie between the vectors, like those of users.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import msgspec
import numpy as np

from penstock.pipeline.vectors.footer import FooterFile, read_footer, write_footer
from penstock.pipeline.vectors.memory_rows import Floats, Numbers
from penstock.pipeline.vectors.mmap_rows import HOLE, Label, MappedRows, read_rows

if TYPE_CHECKING:
    from usearch.index import Index

VERSION = 1
CONNECTIVITY, EXPANSION_ADD = 16, 128
"""Measured with 200,000 chunks and 200 queries: half the expansion halves the build time and finds 4 of 100
less; more neighbours cost space and find no more."""
REACHES = (400, 800, 1_600, 3_200)
MIN_RECALL = 0.98
"""Average share of the ten nearest that a search must find for the index to be used."""
SAMPLE_QUERIES = 64
BATCH_ROWS = 2_000


class IndexStamp(msgspec.Struct, frozen=True, kw_only=True):
    """Footer of an index file. ``reach``: candidates per search; 0: no number of them finds enough."""

    lineage: str
    dimension: int
    covered: int
    reach: int
    found: float
    size: int
    checksum: int
    version: int = VERSION


class AnnIndex:
    def __init__(self, index: Index, stamp: IndexStamp, data: mmap.mmap) -> None:
        self.stamp = stamp
        self._index = index
        self._data = data  # keeps the map open that the index reads

    def search(self, query: Floats) -> Numbers:
        """Row numbers of ``reach`` candidates."""
        return _search(self._index, query, self.stamp.reach)


def usearch_installed() -> bool:
    from importlib.util import find_spec

    return find_spec("usearch") is not None


def open_index(path: Path, rows: MappedRows) -> AnnIndex | None:
    """Open the index over these rows. The whole file is checked first: a damaged index would crash."""
    footer = _read_stamped(path, rows)
    if footer is None or not footer.meta.reach or not usearch_installed():
        return None
    stamp = footer.meta
    index = _new_index(stamp.dimension)
    try:
        index.view(memoryview(footer.data)[: stamp.size])
    except RuntimeError:
        return None
    index.expansion_search = stamp.reach
    return AnnIndex(index, stamp, footer.data)


def damaged(path: Path, index: Path) -> bool:
    """Check a vector file and the index for damage. Reads both files completely."""
    footer = read_footer(path, Label)
    if footer is None:
        return path.exists()
    rows = read_rows(path, footer.meta.owner, footer.meta.dimension)
    if rows is None or not rows.intact():
        return True
    index_file = read_footer(index, IndexStamp)
    if index_file is None:
        return index.exists()
    return index_file.meta.size != index_file.length or _checksum(index_file) != index_file.meta.checksum


def read_stamp(path: Path, rows: MappedRows) -> IndexStamp | None:
    footer = _read_stamped(path, rows)
    return footer.meta if footer is not None else None


def _read_stamped(path: Path, rows: MappedRows) -> FooterFile[IndexStamp] | None:
    footer = read_footer(path, IndexStamp)
    if footer is None or footer.meta.version != VERSION:
        return None
    stamp = footer.meta
    if (stamp.lineage, stamp.dimension) != (rows.label.lineage, rows.label.dimension):
        return None
    intact = (
        stamp.covered <= len(rows) and stamp.size == footer.length and _checksum(footer) == stamp.checksum
    )
    return footer if intact else None


def build_index(
    file: BinaryIO, new_path: Path, rows: MappedRows, before: Path, until: int, stop: Callable[[], bool]
) -> bool:
    """Write an index over the first ``until`` rows, extending the existing one; False: stopped early."""
    index, start = _new_index(rows.label.dimension), 0
    footer = _read_stamped(before, rows)
    if footer is not None:
        index.load(memoryview(footer.data)[: footer.meta.size])
        start = footer.meta.covered
    for at in range(start, until, BATCH_ROWS):
        if stop():
            return False
        _add(index, rows, np.arange(at, min(at + BATCH_ROWS, until)))
    found, reach = _measure_recall(index, rows, until)
    index.save(str(new_path))
    size = new_path.stat().st_size
    file.seek(0)
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        checksum = _word_sum(data, size)
    file.seek(size)
    write_footer(
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


def _new_index(dimension: int) -> Index:
    from usearch.index import Index

    return Index(
        ndim=dimension, metric="cos", dtype="i8", connectivity=CONNECTIVITY, expansion_add=EXPANSION_ADD
    )


def _add(index: Index, rows: MappedRows, numbers: Numbers) -> None:
    vectors = rows.vectors[numbers]
    # Without holes and zero vectors: they are near nothing.
    indexed = (rows.keys[numbers] != HOLE) & vectors.any(axis=1)
    if indexed.any():
        index.add(numbers[indexed], vectors[indexed], threads=1)


def _search(index: Index, query: Floats, count: int) -> Numbers:
    found: Numbers = index.search(query, count, threads=1).keys.astype(np.int64)
    return found


def _measure_recall(index: Index, rows: MappedRows, until: int) -> tuple[float, int]:
    """Recall among the ten nearest, and the smallest reach with enough recall."""
    queries = _sample_queries(rows, until)
    tenth = _tenth_scores(rows.vectors[:until], queries)
    found = 0.0
    for reach in REACHES:
        index.expansion_search = reach
        hits = 0
        for query, worst in zip(queries, tenth, strict=True):
            scores = rows.vectors[_search(index, query, reach)] @ query
            hits += min(10, int(np.count_nonzero(scores >= worst - 1e-6)))
        found = hits / (10 * len(queries))
        if found >= MIN_RECALL:
            return found, reach
    return found, 0


def _sample_queries(rows: MappedRows, until: int) -> Floats:
    """Sample queries: each halfway between two vectors, chosen by a fixed seed."""
    generator = np.random.default_rng(until)
    vectors = rows.vectors[generator.integers(0, until, 2 * SAMPLE_QUERIES)]
    made = vectors[::2] + vectors[1::2]
    lengths = np.linalg.norm(made, axis=1, keepdims=True)
    return np.ascontiguousarray(made / np.maximum(lengths, 1e-6), np.float32)


def _tenth_scores(vectors: Floats, queries: Floats) -> Floats:
    top: Floats = np.full((len(queries), 10), -1, np.float32)
    for start in range(0, len(vectors), 8_192):
        scores = np.concatenate([top, queries @ vectors[start : start + 8_192].T], axis=1)
        top = np.partition(scores, -10, axis=1)[:, -10:]
    worst: Floats = top.min(axis=1)
    return worst


def _checksum(footer: FooterFile[IndexStamp]) -> int:
    return _word_sum(footer.data, footer.length)


def _word_sum(data: mmap.mmap, size: int) -> int:
    """Checksum by adding words and the remaining bytes: fast enough for every opening of the file."""
    words = np.frombuffer(data, "<u8", size // 8)
    rest = int.from_bytes(data[size - size % 8 : size], "little")
    total = (int(np.add.reduce(words)) + rest) % 2**63 if size else 0
    del words  # the map cannot be closed while a view of it exists
    return total
