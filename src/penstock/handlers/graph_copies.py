"""The copy of the graph in a store outside the catalog: written by tasks, cleared and filled by upkeep.

A task stores what it found in the catalog first, then writes what the catalog made of it to the store, and
settles at the end. So what is done is in the store, and after a crash in between the task comes again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import datetime

import msgspec

from penstock.catalog.entities import Extraction
from penstock.catalog.graph import TextGraph
from penstock.catalog.outside_stores import OutsideStore, StoredText
from penstock.catalog.protocol import Catalog
from penstock.catalog.values import Task, TaskOutcome, TaskStatus
from penstock.errors import ServiceUnavailable
from penstock.graph_stores.protocol import SERVICE, CopiedText, GraphCopy
from penstock.handlers.store_fill import CopiedBatch, StoreFiller
from penstock.handlers.task_failures import postponed
from penstock.pipeline.endpoint import ServiceGuard
from penstock.vocabulary import how_many

TEXTS_AT_ONCE = 200


class GraphCopies:
    """The copy of one catalog's graph. Every method raises ServiceUnavailable while the store is down."""

    def __init__(self, catalog: Catalog, store: GraphCopy, guard: ServiceGuard | None = None) -> None:
        self._catalog = catalog
        self._store = store
        self._guard = guard
        self._catalog_id: str | None = None
        self._filler = StoreFiller(
            catalog.outside,
            OutsideStore.GRAPH,
            store.address,
            self._copy_after,
            self._lacks,
            self._remove_surplus,
        )

    def attach(self) -> str:
        """Prepare the store once, and attach the store to the catalog; return the id of the catalog."""
        if self._catalog_id is None:
            with self._called():
                self._store.prepare()
            self._catalog_id = self._catalog.outside.attach(
                OutsideStore.GRAPH, self._store.address
            ).catalog_id
        return self._catalog_id

    def check(self) -> None:
        """Ask the store for an answer."""
        self.attach()
        with self._called():
            self._store.ping()

    def close(self) -> None:
        self._store.close()

    # Tasks.

    def written(self, tasks: Sequence[Task], ended: Sequence[TaskOutcome]) -> list[TaskOutcome]:
        """Write the results of tasks to the store. While the store is down, tasks wait and spend no retry."""
        by_id = {task.task_id: task for task in tasks}
        found: dict[str, dict[int, Extraction]] = {}
        for outcome in ended:
            if outcome.status is TaskStatus.COMPLETED and outcome.graph is not None:
                task = by_id[outcome.task_id]
                found.setdefault(task.source.place.tenant_id, {})[task.content_id] = outcome.graph
        down: dict[str, ServiceUnavailable] = {}
        for tenant_id, extractions in found.items():
            try:
                self._write(self._catalog.graph_texts.store(tenant_id, extractions))
            except ServiceUnavailable as error:
                down[tenant_id] = error
        address = self._store.address
        return [_after_writing(by_id[outcome.task_id], outcome, down, address) for outcome in ended]

    def _write(self, texts: Sequence[TextGraph]) -> None:
        catalog_id = self.attach()
        with self._called():
            self._store.write(catalog_id, texts)

    @contextmanager
    def _called(self) -> Iterator[None]:
        """Guard a call to the store by the circuit breaker: refused while open, counted otherwise."""
        guard = self._guard
        try:
            with guard.calling(SERVICE) if guard is not None else nullcontext():
                yield
        except ServiceUnavailable as error:
            wait = guard.delay(error) if guard is not None else error.retry_after
            raise ServiceUnavailable(SERVICE, error.message, retry_after=wait, remedy=error.remedy) from None

    # Upkeep.

    def keep(self) -> bool:
        """Copy a batch of missing texts to the store, and remove a batch of deleted texts; return whether
        there may be more to do."""
        self.attach()
        more = self._filler.run()
        return self.clear_removals() or more

    def clear_removals(self, limit: int = TEXTS_AT_ONCE, *, now: datetime | None = None) -> bool:
        """Remove texts deleted from the catalog; return whether there may be more."""
        outside = self._catalog.outside
        pending = outside.pending_removals(OutsideStore.GRAPH, limit, now=now)
        if pending:
            catalog_id = self.attach()
            gone = {one.text.content_id for one in pending}
            with self._called():
                self._store.remove(catalog_id, gone)
            outside.forget_removals(OutsideStore.GRAPH, [one.removal_id for one in pending])
        return len(pending) == limit

    @property
    def filled(self) -> bool:
        """True if the store has every text of the catalog."""
        catalog_id = self.attach()
        attached = self._catalog.outside.attached(OutsideStore.GRAPH)
        return attached is not None and attached.filled and attached.catalog_id == catalog_id

    def _copy_after(self, content_id: int) -> CopiedBatch | None:
        texts = self._catalog.graph_texts.after(content_id, TEXTS_AT_ONCE)
        self._copy([(text.tenant_id, text.content_id) for text in texts])
        # Texts removed meanwhile must be removed again.
        gone = [StoredText(text.tenant_id, text.content_id) for text in texts]
        self._catalog.outside.withdraw(OutsideStore.GRAPH, gone)
        return CopiedBatch(texts[-1].content_id, len(texts)) if texts else None

    def _remove_surplus(self) -> None:
        """Remove texts missing from the catalog: deleted while another store was in use."""
        catalog_id, after = self.attach(), -1
        while True:
            with self._called():
                there = self._store.text_ids(catalog_id, after, TEXTS_AT_ONCE)
            if not there:
                return
            after = there[-1]
            gone = set(there) - self._catalog.graph_texts.there(there)
            if gone:
                with self._called():
                    self._store.remove(catalog_id, gone)

    def _lacks(self, sample: dict[str, set[int]]) -> bool:
        catalog_id, ids = self.attach(), set[int]().union(*sample.values())
        with self._called():
            missing = ids - self._store.present(catalog_id, ids)
        return bool(missing and self._catalog.graph_texts.there(sorted(missing)))

    def _copy(self, texts: Collection[tuple[str, int]]) -> None:
        by_tenant: dict[str, list[int]] = {}
        for tenant_id, content_id in texts:
            by_tenant.setdefault(tenant_id, []).append(content_id)
        for tenant_id, content_ids in by_tenant.items():
            self._write(self._catalog.graph_texts.copies(tenant_id, content_ids))

    def _batches(self) -> Iterator[list[TextGraph]]:
        after = -1
        while texts := self._catalog.graph_texts.after(after, TEXTS_AT_ONCE):
            yield texts
            after = texts[-1].content_id

    # Comparison.

    def differences(self) -> list[str]:
        """Differences between store and catalog, one line each, or the reason why the store is unusable."""
        try:
            other, stray = self._compared()
            idle = self._store.idle_entities(self.attach())
        except ServiceUnavailable as error:
            return [error.message]
        return [
            what
            for count, what in (
                (len(other), f"the graph store lacks the entities of {how_many(len(other), 'text')}"),
                (len(stray), f"the graph store has {how_many(len(stray), 'text')} that the catalog has not"),
                (idle, f"the graph store has {how_many(idle, 'entity', 'entities')} that no text mentions"),
            )
            if count
        ]

    def repair(self) -> int:
        """Make the store equal to the catalog; return the number of texts and entities put right."""
        other, stray = self._compared()
        catalog_id = self.attach()
        # Their version may be later than any of this catalog, if the catalog was restored.
        self._store.remove(catalog_id, {*stray, *(content_id for _, content_id in other)})
        self._copy(other)
        idle = self._store.idle_entities(catalog_id)
        if idle:
            self._store.drop_idle(catalog_id)
        self._catalog.outside.set_filled(OutsideStore.GRAPH, self._store.address, filled=True)
        return len(other) + len(stray) + idle

    def _compared(self) -> tuple[list[tuple[str, int]], list[int]]:
        """Texts missing or different in the store, and texts only in the store."""
        catalog_id = self.attach()
        there = self._store.texts(catalog_id)
        copied: CopiedText | None = next(there, None)
        other: list[tuple[str, int]] = []
        stray: list[int] = []
        for text in (text for batch in self._batches() for text in batch):
            while copied is not None and copied.content_id < text.content_id:
                stray.append(copied.content_id)
                copied = next(there, None)
            if copied is None or copied.content_id > text.content_id or not _equal(text, copied):
                other.append((text.tenant_id, text.content_id))
            if copied is not None and copied.content_id == text.content_id:
                copied = next(there, None)
        stray += [copied.content_id] if copied is not None else []
        stray += [one.content_id for one in there]
        return self._settled(other), self._gone(stray)

    def _settled(self, texts: list[tuple[str, int]]) -> list[tuple[str, int]]:
        """Return the texts still in the catalog; others were removed during the comparison."""
        kept = self._catalog.graph_texts.there([content_id for _, content_id in texts])
        return [text for text in texts if text[1] in kept]

    def _gone(self, content_ids: list[int]) -> list[int]:
        """Texts to remove from the store: deleted from the catalog, and not already pending removal."""
        kept = self._catalog.graph_texts.there(content_ids)
        pending = self._catalog.outside.pending_removals(OutsideStore.GRAPH, 1_000_000)
        kept |= {one.text.content_id for one in pending}
        return [number for number in content_ids if number not in kept]


def _after_writing(
    task: Task, outcome: TaskOutcome, down: dict[str, ServiceUnavailable], address: str
) -> TaskOutcome:
    if outcome.status is not TaskStatus.COMPLETED or outcome.graph is None:
        return outcome
    error = down.get(task.source.place.tenant_id)
    return postponed(task, error) if error is not None else msgspec.structs.replace(outcome, stored=address)


def _equal(text: TextGraph, copied: CopiedText) -> bool:
    return frozenset(text.entities) == copied.entities and frozenset(text.relations) == copied.relations
