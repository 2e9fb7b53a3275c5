"""A tenant's vectors of one space in a file, mapped: processes share what one of them has read.

Row numbers stay while the lineage does. A vector that went leaves a hole, all zeros and of no source, so that
a graph over the rows (``graph``) holds for every later file of its lineage.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from penstock.catalog.views import SourceMark
from penstock.pipeline.vectors.footer import FooterFile, seal, unseal
from penstock.pipeline.vectors.memory_rows import Floats, Mask, Numbers, VectorRows, of_sources

VERSION = 1
HOLE = -1
AT_ONCE = 4_096
"""Rows copied or gathered in one piece."""


class FileOwner(msgspec.Struct, frozen=True):
    """Whose vectors a file holds."""

    catalog: str
    tenant_id: str
    space: str


class Label(msgspec.Struct, frozen=True, kw_only=True):
    """What a file of vectors says of itself."""

    owner: FileOwner
    dimension: int
    rows: int
    holes: int
    lineage: str
    sequence: int
    """The change of the catalog it was right for."""
    witnesses: tuple[SourceMark, ...]
    names_sum: int
    vectors_sum: int
    version: int = VERSION


class Origin(NamedTuple):
    """Where rows come from: what their file will say, besides what is counted while it is written."""

    owner: FileOwner
    dimension: int
    lineage: str
    sequence: int
    witnesses: tuple[SourceMark, ...]


class MappedRows:
    def __init__(self, sealed: FooterFile[Label]) -> None:
        self.label = label = sealed.meta
        self.stamp = sealed.stamp
        values = label.rows * label.dimension
        start = _names_at(label.rows, label.dimension)
        self.vectors: Floats = np.frombuffer(sealed.data, "<f4", values).reshape(-1, label.dimension)
        self.ids: Numbers = np.frombuffer(sealed.data, "<i8", label.rows, start)
        self.keys: Numbers = np.frombuffer(sealed.data, "<i8", label.rows, start + 8 * label.rows)

    def __len__(self) -> int:
        return self.label.rows

    def sound(self) -> bool:
        """Whether all of it is as it was written. Reads everything."""
        return _sum(self.vectors) == self.label.vectors_sum

    def scored(self, query: Floats, chosen: Mask | None) -> tuple[Numbers, Floats]:
        """Exact scores of the rows chosen (None: of all)."""
        if chosen is None:
            return self.ids, self.vectors @ query
        rows = np.flatnonzero(chosen)
        if 4 * len(rows) > len(self):
            # Reading past some costs less than picking out the others.
            return self.ids[rows], (self.vectors @ query)[rows]
        return self.scored_at(rows, query)

    def scored_at(self, rows: Numbers, query: Floats) -> tuple[Numbers, Floats]:
        pieces = (rows[start : start + AT_ONCE] for start in range(0, len(rows), AT_ONCE))
        scores = [self.vectors[piece] @ query for piece in pieces]
        return self.ids[rows], np.concatenate(scores) if scores else np.empty(0, np.float32)

    def of_sources(self, some: Collection[int]) -> Mask:
        return of_sources(self.keys, some)

    def pieces(self, alive: Mask | None, *, holes: bool) -> Iterable[VectorRows]:
        """The rows to be written again; of those not alive, holes are left or nothing."""
        for start in range(0, len(self), AT_ONCE):
            piece = slice(start, start + AT_ONCE)
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
    """None: there is no file, or not one that could be this owner's, whole."""
    sealed = unseal(path, Label)
    if sealed is None or not _fits(sealed, owner, dimension):
        return None
    rows = MappedRows(sealed)
    # A wrong number here would be another chunk; a wrong vector is only a wrong rank.
    return rows if _sum(rows.ids) + _sum(rows.keys) == rows.label.names_sum else None


def _fits(sealed: FooterFile[Label], owner: FileOwner, dimension: int) -> bool:
    label = sealed.meta
    if (label.version, label.owner, label.dimension) != (VERSION, owner, dimension) or label.rows < 1:
        return False
    return _names_at(label.rows, dimension) + 16 * label.rows == sealed.length


def write_rows(file: BinaryIO, origin: Origin, pieces: Iterable[VectorRows]) -> None:
    """Piece after piece, so that no more than one is in memory, and the names of all."""
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
    seal(file, label)


def _names_at(rows: int, dimension: int) -> int:
    """Where the numbers begin: eight bytes each, at a multiple of that."""
    return -(-4 * rows * dimension // 8) * 8


def _sum(values: npt.NDArray[np.generic]) -> int:
    if not values.size:
        return 0
    return int(np.add.reduce(values.reshape(-1).view("<u4"), dtype=np.uint64))
