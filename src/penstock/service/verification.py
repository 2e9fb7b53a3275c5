"""Comparison of the index with itself and with the disk."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from penstock.catalog.protocol import BATCH, Catalog, known_below
from penstock.catalog.values import KnownSource, Place
from penstock.handlers.members import container_of, hash_of
from penstock.handlers.missing_files import CAREFUL, maybe_unmounted
from penstock.handlers.outside_stores import GraphCopies, StoreComparison
from penstock.items import delivered_file_of, validate_name
from penstock.pipeline.extract.protocol import ExtractLimits
from penstock.pipeline.vectors.protocol import VectorCopies
from penstock.pipeline.walk.repository import other_state
from penstock.service.failures import FailedPath, failed_paths
from penstock.service.jobs import Jobs
from penstock.service.projects import followed
from penstock.service.requests import Submission
from penstock.service.responses import Receipt

FORMER_VERSION = "cannot be read in its new version; search still finds the former one"


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """A difference between files and catalog. ``path`` is None for a fault inside the catalog."""

    what: str
    place: Place | None = None
    path: str | None = None
    left_alone: str | None = None
    """The reason why ``fix`` leaves the path alone: the disk may be unmounted, or the file be unreadable."""
    content: bool = False
    """Found by the checksum alone: size and time are unchanged."""


class Verifier:
    """Reads the whole index, one page of paths at a time; only ``repair`` and ``fix`` write."""

    def __init__(
        self,
        catalog: Catalog,
        jobs: Jobs,
        vector_copies: VectorCopies,
        limits: ExtractLimits,
        vector_store: StoreComparison | None = None,
        graph_copies: GraphCopies | None = None,
    ) -> None:
        """``limits``: of the workers; they decide which part of a large text is compared.

        ``vector_store``, ``graph_copies``: the stores outside the catalog, if there are any.
        """
        self._graph_copies = graph_copies
        self._catalog = catalog
        self._jobs = jobs
        self._vector_copies = vector_copies
        self._limits = limits
        self._vector_store = vector_store

    def differences(self, tenant_id: str | None = None, *, checksum: bool = False) -> Iterator[Difference]:
        """List all differences; ``checksum`` reads every file, also those with unchanged size and time.

        for difference in app.verifier.differences(checksum=True):
            print(difference.path, difference.what)
        """
        if tenant_id is not None:
            validate_name("tenant_id", tenant_id)
        for complaint in self._catalog.audit():
            yield Difference(what=complaint)
        # Copies, not part of the index: only damage is reported.
        for path in self._vector_copies.damaged():
            yield Difference(what=f"a copy of vectors is damaged: {path}")
        for store in (self._vector_store, self._graph_copies):
            for what in store.differences() if store is not None else ():
                yield Difference(what=what)
        with self._catalog.snapshot() as snapshot:
            places = [Place(one.tenant_id, one.collection, one.branch) for one in snapshot.tenants(tenant_id)]
        elsewhere = self._other_roots(places)
        for place in places:
            roots = _Roots(self._catalog, place)
            for known in known_below(self._catalog, place):
                if known.path.startswith(elsewhere.get(place, ())):
                    continue
                found = _differs(known, place, roots, self._limits if checksum else None)
                if found is not None and not self._on_its_way(known):
                    yield found

    def _other_roots(self, places: list[Place]) -> dict[Place, tuple[str, ...]]:
        """Folders in which another branch than a place's is checked out: their files are not the place's."""
        projects = self._catalog.projects.all()
        return {
            place: tuple(
                f"{one.root.rstrip('/')}/"
                for one in projects
                if one.tenant_id == place.tenant_id and other_state(one.root, place.branch) is not None
            )
            for place in places
        }

    def close(self) -> None:
        """Close the connection to a graph store outside the catalog."""
        if self._graph_copies is not None:
            self._graph_copies.close()

    def unreadable(self, tenant_id: str | None = None) -> list[FailedPath]:
        """Files with unreadable content, by place and path. No differences: search has nothing of them."""
        with self._catalog.snapshot() as snapshot:
            places = [
                Place(one.tenant_id, one.collection, one.branch)
                for one in snapshot.tenants(tenant_id)
                if one.failed
            ]
        return [one for place in places for one in failed_paths(self._catalog, place) if one.remembered]

    def _on_its_way(self, known: KnownSource) -> bool:
        """Tell whether a delivered file was indexed, but not moved to the final path yet.

        Indexing its path now would bring back the former file, or none.
        """
        with self._catalog.snapshot() as snapshot:
            document = snapshot.document(known.published_id) if known.published_id is not None else None
        job = self._jobs.queue.get(document.job_id) if document is not None and document.job_id else None
        delivered = delivered_file_of(msgspec.json.decode(job.metadata)) if job is not None else None
        if delivered is None or delivered.read_from == known.path:
            return False
        try:
            found = Path(delivered.read_from).lstat()
        except OSError:
            return False
        return (found.st_size, found.st_mtime_ns) == (known.size, known.mtime_ns)

    def repair(self) -> int:
        """Repair faults of the catalog and its copies without reading source files; return the number of
        rows, files and vectors.

        Chunks without a vector become tasks of the vector lane.
        """
        damaged_files = self._vector_copies.damaged()
        for path in damaged_files:
            self._vector_copies.discard(path)
        total = len(damaged_files)
        while repaired := self._catalog.repair():
            total += repaired
        # After the catalog, which the stores are to be equal to.
        if self._vector_store is not None:
            total += self._vector_store.fix()
        if self._graph_copies is not None:
            total += self._graph_copies.repair()
        return total

    def fix(self, found: list[Difference]) -> list[Receipt]:
        """Queue a job for every path different on the disk, unless the disk may be unmounted."""
        submissions: list[Submission] = [
            {
                "item_type": "file",
                "op": "ingest",
                "payload": {"file_path": one.path},
                "tenant_id": one.place.tenant_id,
                "collection": one.place.collection,
                "branch": one.place.branch,
                # Size and time are unchanged: a plain request, which would skip the file, is not the same.
                "dedupe": not one.content,
                # The disk may be unmounted, or another branch checked out, by the time the job runs.
                "metadata": {CAREFUL: True}
                | followed(self._catalog, one.place, one.path)
                | ({"checksum": True} if one.content else {}),
            }
            for one in found
            if one.path is not None and one.place is not None and one.left_alone is None
        ]
        # Without limits: it is one request, and half a repair is no repair.
        batches = (submissions[start : start + BATCH] for start in range(0, len(submissions), BATCH))
        receipts = [self._jobs.submit_many(batch, limited=False, exact=True) for batch in batches]
        return [receipt for batch in receipts for receipt in batch]


class _Roots:
    """Roots of earlier walks above a file."""

    def __init__(self, catalog: Catalog, place: Place) -> None:
        self._catalog = catalog
        self._place = place
        self._known: tuple[str, list[str]] = ("", [])

    def above(self, path: str) -> list[str]:
        """Roots above a path, cached for the folder: consecutive files are mostly in one folder."""
        folder = path.rpartition("/")[0] or "/"
        if folder != self._known[0]:
            with self._catalog.snapshot() as snapshot:
                self._known = (folder, [walk.root for walk in snapshot.walks(self._place, folder)])
        return self._known[1]


def _differs(
    known: KnownSource, place: Place, roots: _Roots, limits: ExtractLimits | None
) -> Difference | None:
    """Compare one source with the disk: by size and time, with limits by content too. Notes have no file."""

    def difference(what: str, left_alone: str | None = None, *, content: bool = False) -> Difference:
        return Difference(what=what, place=place, path=known.path, left_alone=left_alone, content=content)

    failed = known.building_id is not None and known.failed_with is not None
    if not known.path.startswith("/") or (known.published_id is None and not failed):
        return None
    if (container := container_of(known.path)) is not None:
        # A file inside another has the other's time. Its content is part of the other's.
        same = container.mtime_ns in (known.mtime_ns, known.failed_mtime_ns)
        return None if same else difference("is inside a file that has changed since")
    return _file_difference(known, roots, difference, limits, failed=failed)


def _file_difference(
    known: KnownSource,
    roots: _Roots,
    difference: Callable[..., Difference],
    limits: ExtractLimits | None,
    *,
    failed: bool,
) -> Difference | None:
    try:
        found = Path(known.path).lstat()
        if not stat.S_ISREG(found.st_mode):
            return difference("is indexed, but is not a file any more")
        if failed:
            if (found.st_size, found.st_mtime_ns) != (known.failed_size, known.failed_mtime_ns):
                return difference("has changed since it could not be read")
            return difference(FORMER_VERSION, FORMER_VERSION) if known.published_id is not None else None
        if (found.st_size, found.st_mtime_ns) != (known.size, known.mtime_ns):
            return difference("has changed since it was indexed")
        if limits is not None and hash_of(known.path, limits) != known.content_hash:
            return difference("has changed content, but the same size and time", content=True)
    except (FileNotFoundError, NotADirectoryError):
        return difference(
            "is indexed, but not on the disk", maybe_unmounted(known.path, roots.above(known.path))
        )
    except OSError as error:
        why = os.strerror(error.errno or 0)
        return difference(f"is indexed, but cannot be read: {why}", f"cannot be read: {why}")
    return None
