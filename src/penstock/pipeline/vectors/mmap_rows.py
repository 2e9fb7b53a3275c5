"""Vectors of a tenant in one space, in a memory-mapped file, shared by processes.

Row numbers are stable within a lineage. A removed vector leaves a hole (all zeros, no source), so that an
index over the rows (``ann_index``) is valid for every later file of the lineage.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

import msgspec
import numpy as np
import numpy.typing as npt

from penstock.catalog.views import SourceMark
from penstock.named_tuple import NamedTuple
from penstock.pipeline.vectors.footer import FooterFile, read_footer, write_footer
from penstock.pipeline.vectors.memory_rows import Floats, Mask, Numbers, VectorRows, of_runs, run_starts

VERSION = 1
HOLE = -1
BATCH_ROWS = 4_096
"""Rows copied or scored at a time."""


class FileOwner(msgspec.Struct, frozen=True):
    """Catalog, tenant and space of a vector file."""

    catalog: str
    tenant_id: str
    space: str


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
    version: int = VERSION


class Origin(NamedTuple):
    """Parts of a label known before the rows are written."""

    owner: FileOwner
    dimension: int
    lineage: str
    sequence: int
    witnesses: tuple[SourceMark, ...]


class MappedRows:
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
        return of_runs(self.keys, self._run_starts, sources)

    @cached_property
    def _run_starts(self) -> Numbers:
        return run_starts(self.keys)

    def pieces(self, alive: Mask | None, *, holes: bool) -> Iterable[VectorRows]:
        """Batches of the rows to write again. Deleted rows become holes or are dropped."""
        for start in range(0, len(self), BATCH_ROWS):
            piece = slice(start, start + BATCH_ROWS)
            ids, keys, vectors = self.ids[piece], self.keys[piece], self.vectors[piece]
            kept = keys != HOLE if alive is None else (keys != HOLE) & alive[piece]
            if kept.all():
                yield VectorRows(ids, keys, vectors)
            elif holes:
                blank = np.where(kept[:, None], vectors, np.float32(0))
                yield VectorRows(np.where(kept, ids, HOLE), np.where(kept, keys, HOLE), blank)
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
    if (label.version, label.owner, label.dimension) != (VERSION, owner, dimension) or label.rows < 1:
        return False
    return _names_at(label.rows, dimension) + 16 * label.rows == footer.length


def write_rows(file: BinaryIO, origin: Origin, pieces: Iterable[VectorRows]) -> None:
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
    file.write(bytes(_names_at(rows, origin.dimension) - 4 * rows * origin.dimension))
    file.write(numbers.data)
    file.write(sources.data)
    label = Label(
        owner=origin.owner,
        dimension=origin.dimension,
        rows=rows,
        holes=int(np.count_nonzero(sources == HOLE)),
        lineage=origin.lineage,
        sequence=origin.sequence,
        witnesses=origin.witnesses,
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
