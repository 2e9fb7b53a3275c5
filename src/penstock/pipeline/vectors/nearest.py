"""Vectors as rows: in memory, in a mapped file and behind an approximate index, with the scores of a query.

- ``VectorRows``: rows in memory, and ``best``, the selection of the best scores
- ``MappedRows``: the rows of a tenant in one space, in a file that all processes map
- ``AnnIndex``: an index (usearch) over such rows, which proposes candidates for exact scores
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Collection, Iterable
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import msgspec
import numpy as np
import numpy.typing as npt

from penstock.catalog.values import SourceMark, VectorBatch
from penstock.pipeline.vectors.footer import FileOwner, FooterFile, read_footer, write_footer

if TYPE_CHECKING:
    from usearch.index import Index


Floats = npt.NDArray[np.float32]
Numbers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class VectorRows:
    """One vector per row, with content id and source key. Immutable: changes make new objects."""

    def __init__(self, ids: Numbers, keys: Numbers, vectors: Floats) -> None:
        self.ids = ids
        self.keys = keys
        self.vectors = vectors

    @classmethod
    def empty(cls, dimension: int) -> VectorRows:
        return cls(np.empty(0, np.int64), np.empty(0, np.int64), np.empty((0, dimension), np.float32))

    @classmethod
    def from_batch(cls, batch: VectorBatch, dimension: int) -> VectorRows:
        return cls(
            np.frombuffer(batch.content_ids, np.int64),
            np.frombuffer(batch.family_keys, np.int64),
            np.frombuffer(batch.vectors, "<f4").reshape(-1, dimension),
        )

    @classmethod
    def concatenated(cls, parts: Iterable[VectorRows]) -> VectorRows:
        ids, keys, vectors = zip(*((part.ids, part.keys, part.vectors) for part in parts), strict=True)
        return cls(np.concatenate(ids), np.concatenate(keys), np.concatenate(vectors))

    def __len__(self) -> int:
        return len(self.ids)

    def without(self, keys: Collection[int]) -> VectorRows:
        if not keys or not len(self):
            return self
        kept = ~of_sources(self.keys, keys)
        return VectorRows(self.ids[kept], self.keys[kept], self.vectors[kept])

    def scored(self, query: Floats, allowed: Collection[int] | None) -> tuple[Numbers, Floats]:
        ids, vectors = self.ids, self.vectors
        if allowed is not None:
            chosen = of_sources(self.keys, allowed)
            ids, vectors = ids[chosen], vectors[chosen]
        return ids, vectors @ query


def of_sources(keys: Numbers, sources: Collection[int]) -> Mask:
    """Mask of the rows of some sources.

    Rows of a source are adjacent, so each run of rows is looked up once.
    """
    if not len(keys):
        return np.zeros(0, bool)
    return _of_runs(keys, _run_starts(keys), sources)


def _run_starts(keys: Numbers) -> Numbers:
    """First rows of the runs of equal keys."""
    return np.flatnonzero(np.diff(keys, prepend=keys[0] - 1))


def _of_runs(keys: Numbers, starts: Numbers, sources: Collection[int]) -> Mask:
    wanted = np.fromiter(sources, np.int64, len(sources))
    mask: Mask = np.repeat(np.isin(keys[starts], wanted), np.diff(np.append(starts, len(keys))))
    return mask


def best(ids: Numbers, scores: Floats, limit: int) -> tuple[Numbers, Floats]:
    """Best scores first; equal scores in the order of ids, which makes answers reproducible.

    Scores of exactly zero are dropped: a vector of zeros is near nothing.
    """
    # Keep all that equal the last score: the ids decide among them.
    last = np.partition(scores, -limit)[-limit] if len(scores) > limit else np.float32(-np.inf)
    if last > 0:
        chosen = np.flatnonzero(scores >= last)
    else:
        chosen = np.flatnonzero(scores)
        if len(chosen) > limit:
            chosen = chosen[scores[chosen] >= np.partition(scores[chosen], -limit)[-limit]]
    ids, scores = ids[chosen], scores[chosen]
    order = np.lexsort((ids, -scores))[:limit]
    return ids[order], scores[order]


_VERSION = 1
_HOLE = -1
BATCH_ROWS = 4_096
"""Rows copied or scored at a time."""


class Label(msgspec.Struct, frozen=True, kw_only=True):
    """Footer of a vector file."""

    owner: FileOwner
    dimension: int
    rows: int
    holes: int
    lineage: str
    sequence: int
    """Sequence number of the catalog's last change that the file includes."""
    witnesses: tuple[SourceMark, ...]
    names_sum: int
    vectors_sum: int
    version: int = _VERSION


class MappedRows:
    """Vectors of a tenant in one space, in a memory-mapped file.

    Row numbers are stable within a lineage. A removed vector leaves a hole (all zeros, no source), so that an
    index over the rows is valid for every later file of the lineage.
    """

    def __init__(self, footer: FooterFile[Label]) -> None:
        self.label = label = footer.meta
        self.stamp = footer.stamp
        values = label.rows * label.dimension
        start = _names_at(label.rows, label.dimension)
        self.vectors: Floats = np.frombuffer(footer.data, "<f4", values).reshape(-1, label.dimension)
        self.ids: Numbers = np.frombuffer(footer.data, "<i8", label.rows, start)
        self.keys: Numbers = np.frombuffer(footer.data, "<i8", label.rows, start + 8 * label.rows)

    def __len__(self) -> int:
        return self.label.rows

    def intact(self) -> bool:
        """Check whether the vectors match their checksum. Reads all of them."""
        return _sum(self.vectors) == self.label.vectors_sum

    def scored(self, query: Floats, chosen: Mask | None) -> tuple[Numbers, Floats]:
        """Exact scores of the chosen rows (None: of all rows)."""
        if chosen is None:
            return self.ids, self.vectors @ query
        rows = np.flatnonzero(chosen)
        if 4 * len(rows) > len(self):
            # Scoring all rows costs less than gathering most of them.
            return self.ids[rows], (self.vectors @ query)[rows]
        return self.scored_at(rows, query)

    def scored_at(self, rows: Numbers, query: Floats) -> tuple[Numbers, Floats]:
        pieces = (rows[start : start + BATCH_ROWS] for start in range(0, len(rows), BATCH_ROWS))
        scores = [self.vectors[piece] @ query for piece in pieces]
        return self.ids[rows], np.concatenate(scores) if scores else np.empty(0, np.float32)

    def of_sources(self, sources: Collection[int]) -> Mask:
        return _of_runs(self.keys, self._starts, sources)

    @cached_property
    def _starts(self) -> Numbers:
        return _run_starts(self.keys)

    def pieces(self, alive: Mask | None, *, holes: bool) -> Iterable[VectorRows]:
        """Batches of the rows to write again. Deleted rows become holes or are dropped."""
        for start in range(0, len(self), BATCH_ROWS):
            piece = slice(start, start + BATCH_ROWS)
            ids, keys, vectors = self.ids[piece], self.keys[piece], self.vectors[piece]
            kept = keys != _HOLE if alive is None else (keys != _HOLE) & alive[piece]
            if kept.all():
                yield VectorRows(ids, keys, vectors)
            elif holes:
                blank = np.where(kept[:, None], vectors, np.float32(0))
                yield VectorRows(np.where(kept, ids, _HOLE), np.where(kept, keys, _HOLE), blank)
            else:
                yield VectorRows(ids[kept], keys[kept], vectors[kept])


def read_rows(path: Path, owner: FileOwner, dimension: int) -> MappedRows | None:
    """Open a vector file; None if missing, damaged, or of another owner."""
    footer = read_footer(path, Label)
    if footer is None or not _fits(footer, owner, dimension):
        return None
    rows = MappedRows(footer)
    # A wrong id would show another chunk; a wrong vector is only a wrong rank.
    return rows if _sum(rows.ids) + _sum(rows.keys) == rows.label.names_sum else None


def _fits(footer: FooterFile[Label], owner: FileOwner, dimension: int) -> bool:
    label = footer.meta
    if (label.version, label.owner, label.dimension) != (_VERSION, owner, dimension) or label.rows < 1:
        return False
    return _names_at(label.rows, dimension) + 16 * label.rows == footer.length


def write_rows(
    file: BinaryIO,
    pieces: Iterable[VectorRows],
    *,
    owner: FileOwner,
    dimension: int,
    lineage: str,
    sequence: int,
    witnesses: tuple[SourceMark, ...],
) -> None:
    """Write rows batch by batch. Only one batch of vectors, and all ids, are in memory."""
    ids, keys, vectors_sum = [], [], 0
    for piece in pieces:
        vectors = np.ascontiguousarray(piece.vectors, "<f4")
        file.write(vectors.data)
        vectors_sum += _sum(vectors)
        ids.append(piece.ids)
        keys.append(piece.keys)
    numbers, sources = np.concatenate(ids).astype("<i8"), np.concatenate(keys).astype("<i8")
    rows = len(numbers)
    file.write(bytes(_names_at(rows, dimension) - 4 * rows * dimension))
    file.write(numbers.data)
    file.write(sources.data)
    label = Label(
        owner=owner,
        dimension=dimension,
        rows=rows,
        holes=int(np.count_nonzero(sources == _HOLE)),
        lineage=lineage,
        sequence=sequence,
        witnesses=witnesses,
        names_sum=_sum(numbers) + _sum(sources),
        vectors_sum=vectors_sum,
    )
    write_footer(file, label)


def _names_at(rows: int, dimension: int) -> int:
    """Offset of the ids, aligned to eight bytes."""
    return -(-4 * rows * dimension // 8) * 8


def _sum(values: npt.NDArray[np.generic]) -> int:
    if not values.size:
        return 0
    return int(np.add.reduce(values.reshape(-1).view("<u4"), dtype=np.uint64))


CONNECTIVITY, EXPANSION_ADD = 16, 128
"""Measured with 200,000 chunks and 200 queries: half the expansion halves the build time and finds 4 of 100
less; more neighbours cost space and find no more."""
REACHES = (400, 800, 1_600, 3_200)
MIN_RECALL = 0.98
"""Average share of the ten nearest that a search must find for the index to be used."""
SAMPLE_QUERIES = 64
_INDEXED_AT_ONCE = 2_000


class IndexStamp(msgspec.Struct, frozen=True, kw_only=True):
    """Footer of an index file. ``reach``: candidates per search; 0: no number of them finds enough."""

    lineage: str
    dimension: int
    covered: int
    reach: int
    found: float
    size: int
    checksum: int
    version: int = _VERSION


class AnnIndex:
    """An approximate index over the rows of a vector file: proposes candidates for exact scores.

    It holds each vector in a quarter of its size, with its row number. It may cover only the first rows; the
    others are scored one by one.
    """

    def __init__(self, index: Index, stamp: IndexStamp, data: mmap.mmap) -> None:
        self.stamp = stamp
        self._index = index
        self._data = data  # keeps the map open that the index reads

    def search(self, query: Floats) -> Numbers:
        """Row numbers of ``reach`` candidates."""
        return _search(self._index, query, self.stamp.reach)


def usearch_installed() -> bool:
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
    if footer is None or footer.meta.version != _VERSION:
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
    for at in range(start, until, _INDEXED_AT_ONCE):
        if stop():
            return False
        _add(index, rows, np.arange(at, min(at + _INDEXED_AT_ONCE, until)))
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
    indexed = (rows.keys[numbers] != _HOLE) & vectors.any(axis=1)
    if indexed.any():
        index.add(numbers[indexed], vectors[indexed], threads=1)


def _search(index: Index, query: Floats, count: int) -> Numbers:
    found: Numbers = index.search(query, count, threads=1).keys.astype(np.int64)
    return found


def _measure_recall(index: Index, rows: MappedRows, until: int) -> tuple[float, int]:
    """Recall among the ten nearest, and the smallest reach (number of candidates) with enough recall.

    The sample queries lie between the vectors, like those of users.
    """
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
