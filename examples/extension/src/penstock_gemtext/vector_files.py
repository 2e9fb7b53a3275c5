"""A vector store in a folder: one file for each collection, read and written as a whole."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from penstock.errors import ServiceUnavailable
from penstock.vector_stores.protocol import (
    EVERY_POINT,
    SERVICE,
    NearPoint,
    Point,
    PointFilter,
    dimension_of,
)


class VectorFiles:
    """A vector store for small collections: ``vectorfiles+local:/FOLDER``."""

    def __init__(self, url: str, timeout_s: float) -> None:  # noqa: ARG002 - files answer at once
        self.address = url
        self._folder = Path(url.partition(":")[2]).expanduser()

    def upsert(self, collection: str, points: Sequence[Point]) -> None:
        """Write points, replacing those with the same number."""
        dimension = dimension_of(points)
        with self._locked():
            found = self._read(collection) or {}
            kept = {len(point.vector) // 4 for point in found.values()} - {dimension}
            if kept:
                raise ServiceUnavailable(
                    SERVICE,
                    f"{collection} in {self.address} holds vectors of {kept.pop()} numbers, not {dimension}",
                    remedy="Delete that collection, or use another folder.",
                )
            self._write(collection, found | {point.content_id: point for point in points})

    def search(
        self, collection: str, query: Sequence[float], *, limit: int, where: PointFilter
    ) -> list[NearPoint] | None:
        """The points nearest to a query, best first; None without such a collection."""
        found = self._read(collection)
        if found is None:
            return None
        points = [point for point in found.values() if _passes(point, where)]
        if not points:
            return []
        vectors = np.frombuffer(b"".join(point.vector for point in points), "<f4").reshape(len(points), -1)
        scores = vectors @ np.asarray(query, np.float32)
        best = np.argsort(-scores, kind="stable")[:limit]
        return [NearPoint(points[n].content_id, points[n].source_key, float(scores[n])) for n in best]

    def delete(self, collection: str, content_ids: Sequence[int]) -> None:
        """Delete points by number."""
        gone = set(content_ids)
        self._keep(collection, lambda point: point.content_id not in gone)

    def delete_where(self, collection: str, where: PointFilter) -> None:
        """Delete the points of a tenant or of sources."""
        self._keep(collection, lambda point: not _passes(point, where))

    def count(self, collection: str, where: PointFilter = EVERY_POINT) -> int:
        """The number of points that pass a filter."""
        return sum(_passes(point, where) for point in (self._read(collection) or {}).values())

    def ids(self, collection: str) -> set[int]:
        """The numbers of all points."""
        return set(self._read(collection) or ())

    def present(self, collection: str, content_ids: Collection[int]) -> set[int]:
        """Those of some numbers that there are points of."""
        return self.ids(collection) & set(content_ids)

    def collections(self, prefix: str) -> list[str]:
        """The names of the collections that begin like this."""
        return sorted(path.stem for path in self._folder.glob("*.json") if path.stem.startswith(prefix))

    def drop(self, collection: str) -> None:
        """Delete a collection, if there is one."""
        self._file(collection).unlink(missing_ok=True)

    def check(self) -> str:
        """The name of the store."""
        return "vector files 1"

    def close(self) -> None:
        """Free nothing: files are closed after each call."""

    def _file(self, collection: str) -> Path:
        return self._folder / f"{collection}.json"

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with (self._folder / "lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                yield
        except OSError as error:
            raise ServiceUnavailable(SERVICE, f"{self.address}: {error.strerror or error}") from error

    def _read(self, collection: str) -> dict[int, Point] | None:
        try:
            rows = json.loads(self._file(collection).read_text())
        except FileNotFoundError:
            return None
        points = (
            Point(number, tenant, source, bytes.fromhex(vector)) for number, tenant, source, vector in rows
        )
        return {point.content_id: point for point in points}

    def _write(self, collection: str, points: dict[int, Point]) -> None:
        new = self._file(collection).with_suffix(".new")
        with new.open("w") as file:
            json.dump([[*point[:3], point.vector.hex()] for point in points.values()], file)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._file(collection))

    def _keep(self, collection: str, wanted: Callable[[Point], bool]) -> None:
        with self._locked():
            found = self._read(collection)
            if found is not None:
                self._write(collection, {number: point for number, point in found.items() if wanted(point)})


def _passes(point: Point, where: PointFilter) -> bool:
    tenant = where.tenant_id is None or where.tenant_id == point.tenant_id
    return tenant and (where.sources is None or point.source_key in where.sources)
