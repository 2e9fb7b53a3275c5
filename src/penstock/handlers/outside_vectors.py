"""The vector store outside the catalog, for tasks and upkeep: points written, withdrawn and removed.

Points are written before their tasks are settled. What no document wants any more is recorded by the catalog,
and removed here.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime

from penstock.catalog.outside_stores import OutsideStore, StoredText
from penstock.catalog.protocol import Catalog
from penstock.catalog.values import Task
from penstock.errors import ServiceUnavailable
from penstock.handlers.store_comparison import StoreComparison
from penstock.handlers.store_fill import CopiedBatch, StoreFiller
from penstock.pipeline.endpoint import ServiceGuard
from penstock.vector_stores.protocol import AT_ONCE, SERVICE, Point, VectorStore, collection_name
from penstock.vocabulary import how_many

POINTS_A_CALL = 64
"""Tasks that are embedded together at least, so that a call to the store is worth its way."""

log = logging.getLogger("penstock.worker")


class OutsideVectors:
    """A vector store beside a catalog. ``guard`` refuses calls while the store is known to be down."""

    def __init__(self, catalog: Catalog, store: VectorStore, guard: ServiceGuard) -> None:
        self._catalog = catalog
        self._store = store
        self._guard = guard
        self._catalog_id = catalog.outside.attach(OutsideStore.VECTOR, store.address).catalog_id
        self._filler = StoreFiller(
            catalog.outside,
            OutsideStore.VECTOR,
            store.address,
            self._copy_after,
            self._lacks,
            self._remove_surplus,
        )
        self._unsettled: dict[int, StoredText] = {}
        """Points written by tasks that are not settled yet, by task."""

    @property
    def address(self) -> str:
        return self._store.address

    def known(self, tasks: Sequence[Task]) -> dict[str, bytes]:
        """Vectors already known for the tasks' texts, by text hash."""
        found: dict[str, bytes] = {}
        with self._catalog.snapshot() as snapshot:
            for (tenant_id, space), some in _by_owner(tasks).items():
                found |= snapshot.vectors(tenant_id, space, [task.text_hash for task in some])
        return found

    def write(self, tasks: Sequence[Task], vectors: Sequence[bytes]) -> None:
        """Write the points of tasks; an empty vector has none. On failure the vectors stay in the cache."""
        by_task = {task.task_id: vector for task, vector in zip(tasks, vectors, strict=True) if vector}
        by_space: dict[str, list[Task]] = {}
        for task in tasks:
            if task.task_id in by_task:
                by_space.setdefault(task.source.space or "", []).append(task)
        try:
            for space, some in by_space.items():
                self._write(space, some, by_task)
        except ServiceUnavailable:
            self._remember(tasks, by_task)
            raise

    def _write(self, space: str, tasks: Sequence[Task], vectors: dict[int, bytes]) -> None:
        points = [
            Point(task.content_id, task.source.place.tenant_id, task.source.family_key, vectors[task.task_id])
            for task in tasks
        ]
        with self._calling():
            self._store.upsert(collection_name(self._catalog_id, space), points)
        for task in tasks:
            text = StoredText(task.source.place.tenant_id, task.content_id, space)
            self._unsettled[task.task_id] = text

    def _remember(self, tasks: Sequence[Task], vectors: dict[int, bytes]) -> None:
        """Keep embedded vectors in the catalog until the store accepts them."""
        for (tenant_id, space), some in _by_owner(tasks).items():
            by_hash = {task.text_hash: vectors[task.task_id] for task in some if task.task_id in vectors}
            self._catalog.remember(tenant_id, space, by_hash)

    def settled(self, task_ids: Iterable[int], late: Collection[int] = ()) -> None:
        """Forget settled tasks. ``late``: tasks with a lost claim; their points are withdrawn,
        unless another claim of the task wants them."""
        written = {task_id: self._unsettled.pop(task_id, None) for task_id in task_ids}
        texts = [text for task_id, text in written.items() if text is not None and task_id in late]
        if texts:
            self._catalog.outside.withdraw(OutsideStore.VECTOR, texts)

    def clear_removals(self, *, now: datetime | None = None) -> bool:
        """Remove one batch of recorded texts from the store; True when there may be more."""
        found = self._catalog.outside.pending_removals(OutsideStore.VECTOR, AT_ONCE, now=now)
        by_space: dict[str, list[int]] = {}
        for removal in found:
            by_space.setdefault(removal.text.space, []).append(removal.text.content_id)
        try:
            for space, ids in by_space.items():
                with self._calling():
                    self._store.delete(collection_name(self._catalog_id, space), ids)
        except ServiceUnavailable as error:
            log.warning("%s to be removed later: %s", how_many(len(found), "vector"), error.message)
            return False
        self._catalog.outside.forget_removals(OutsideStore.VECTOR, [one.removal_id for one in found])
        return len(found) == AT_ONCE

    def keep(self) -> bool:
        """Copy a batch of missing vectors to the store; return whether there may be more to do."""
        return self._filler.run()

    def _copy_after(self, content_id: int) -> CopiedBatch | None:
        outside = self._catalog.outside
        by_space = outside.vectors_after(content_id, AT_ONCE)
        for space, vectors in by_space.items():
            with self._calling():
                points = [Point(*one) for one in vectors]
                self._store.upsert(collection_name(self._catalog_id, space), points)
            # Vectors of texts removed meanwhile must be removed again.
            texts = [StoredText(one.tenant_id, one.content_id, space) for one in vectors]
            outside.withdraw(OutsideStore.VECTOR, texts)
        copied = [one.content_id for vectors in by_space.values() for one in vectors]
        return CopiedBatch(max(copied), len(copied)) if copied else None

    def _remove_surplus(self) -> None:
        progress = self._catalog.outside.fill_progress(OutsideStore.VECTOR)
        copied = progress.copied if progress is not None else 0
        with self._calling():
            StoreComparison(self._catalog.outside, self._store).remove_surplus(self._catalog_id, copied)

    def _lacks(self, sample: dict[str, set[int]]) -> bool:
        for space, ids in sample.items():
            with self._calling():
                missing = ids - self._store.present(collection_name(self._catalog_id, space), ids)
            # Vectors of texts removed meanwhile may be missing.
            if missing and self._catalog.outside.vectors(space, sorted(missing)):
                return True
        return False

    @contextmanager
    def _calling(self) -> Iterator[None]:
        try:
            with self._guard.calling(SERVICE):
                yield
        except ServiceUnavailable as error:
            wait = self._guard.delay(error)
            raise ServiceUnavailable(SERVICE, error.message, retry_after=wait, remedy=error.remedy) from None

    def close(self) -> None:
        self._store.close()


def _by_owner(tasks: Sequence[Task]) -> dict[tuple[str, str], list[Task]]:
    found: dict[tuple[str, str], list[Task]] = {}
    for task in tasks:
        found.setdefault((task.source.place.tenant_id, task.source.space or ""), []).append(task)
    return found
