"""Copies of the catalog in vector and graph stores outside of it: filled, written by tasks, and compared."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from penstock import clock
from penstock.catalog.graph import Extraction, TextGraph
from penstock.catalog.parts import FillProgress, OutsideStore, OutsideStores, StoredText, StoreFill
from penstock.catalog.protocol import Catalog
from penstock.catalog.values import Task, TaskOutcome, TaskStatus
from penstock.config import NO_STORE, Settings
from penstock.errors import ServiceUnavailable
from penstock.handlers.context import postponed
from penstock.store_url import StoreUrl
from penstock.vector_stores.protocol import AT_ONCE, Point, VectorStore, collection_name, prefix_of
from penstock.vector_stores.protocol import (
    SERVICE as VECTOR_STORE,
)
from penstock.vocabulary import how_many

if TYPE_CHECKING:
    from penstock.graph_stores.protocol import CopiedText, GraphCopy
    from penstock.pipeline.endpoint import ServiceGuard

LEASE = timedelta(seconds=60)
"""Time without a batch after which another worker goes on. Both writing the same batch does no harm."""
_CHECK_S = 60.0
"""Time between two looks at a sample of a filled store."""
_OTHERS_S = 5.0
"""Time between two attempts to fill a store that another worker is filling."""
_SAMPLE = 50
"""Texts at either end of the catalog that are looked for: a store from a backup lacks the newest."""

log = logging.getLogger("penstock.upkeep")


class CopiedBatch(msgspec.Struct, frozen=True):
    """The number of the last copied text, and how many vectors or texts were copied."""

    last: int
    size: int


class StoreFiller:
    """Fills one store, and looks for lost texts. ``copy`` copies those after a number; None: there are none.

    One worker fills a store at a time. The catalog knows the last copied text, so the next worker goes on
    there after a crash. New texts are written by their tasks meanwhile, and searches read the catalog until
    the end.
    ``lacks`` looks for some texts, by space, in the store, and returns whether it has lost one. ``finish``
    removes what the store has and the catalog has not, at the end of a fill.
    """

    def __init__(
        self,
        outside: OutsideStores,
        store: OutsideStore,
        address: str,
        copy: Callable[[int], CopiedBatch | None],
        lacks: Callable[[dict[str, set[int]]], bool],
        finish: Callable[[], None],
    ) -> None:
        self._outside = outside
        self._store = store
        self._address = address
        self._copy = copy
        self._lacks = lacks
        self._finish = finish
        self._check_at = 0.0
        self._ask_at = 0.0

    def run(self) -> bool:
        """Copy one batch, if the store lacks some; return whether there may be more.

        Raises ``ServiceUnavailable`` while the store cannot be used.
        """
        attached = self._outside.attached(self._store)
        if attached is None or attached.address != self._address:
            return False
        if attached.filled and not self._has_lost_some():
            return False
        if clock.elapsed_s() < self._ask_at:
            return False
        fill = self._outside.begin_fill(self._store, self._address, LEASE)
        if fill is None:
            self._ask_at = clock.elapsed_s() + _OTHERS_S
            return False
        try:
            return self._copy_some(fill)
        except ServiceUnavailable:
            self._outside.leave_fill(self._store, fill)
            raise

    def _copy_some(self, fill: StoreFill) -> bool:
        name = f"the {self._store} store {self._address}"
        if fill.copied_to == 0:
            log.info("filling %s from the catalog", name)
        batch = self._copy(fill.copied_to)
        if batch is not None:
            self._outside.advance_fill(self._store, fill, batch.last, batch.size)
            return True
        self._finish()
        if not self._outside.end_fill(self._store, fill):
            return True
        log.info("%s is filled", name)
        return False

    def _has_lost_some(self) -> bool:
        """Check a sample from time to time. A store with a missing sample is filled from the beginning."""
        if clock.elapsed_s() < self._check_at:
            return False
        if self._lacks(self._outside.outer_texts(self._store, _SAMPLE)):
            log.warning("the %s store %s has lost data, and is filled again", self._store, self._address)
            self._outside.set_filled(self._store, self._address, filled=False)
            return True
        self._check_at = clock.elapsed_s() + _CHECK_S
        return False


TEXTS_AT_ONCE = 200


class GraphCopies:
    """The copy of one catalog's graph: written by tasks, cleared and filled by upkeep.

    A task stores what it found in the catalog first, then writes what the catalog made of it to the store,
    and settles at the end. So what is done is in the store, and after a crash in between the task comes
    again. Every method raises ServiceUnavailable while the store is down.
    """

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
        from penstock.graph_stores.protocol import SERVICE

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


MOST_PENDING = 1_000_000
LATER = timedelta(days=1)
"""Removals due within this time are left to a worker."""


class StoreProgress(msgspec.Struct, frozen=True, kw_only=True):
    """Share of the catalog in an outside store. ``copied``: vectors or texts of the last fill."""

    kind: str
    address: str
    filled: bool
    copied: int
    percent: int

    def unfilled(self) -> str:
        """Describe an unfilled store in one line."""
        what = how_many(self.copied, "vector" if self.kind == OutsideStore.VECTOR else "text")
        done = f"{what} copied by workers so far, about {self.percent} %"
        return f"the {self.kind} store {self.address} is not filled yet, so the catalog is read: {done}"


def store_progress(outside: OutsideStores, settings: Settings) -> list[StoreProgress]:
    """The stores in use with their fill progress; a store new in the settings has nothing yet."""
    named = {OutsideStore.VECTOR: settings.vector_store, OutsideStore.GRAPH: settings.graph_store}
    found = {kind: outside.fill_progress(kind) for kind in OutsideStore}
    for kind, url in named.items():
        if url != NO_STORE and found[kind] is None:
            found[kind] = FillProgress(StoreUrl(url).masked, filled=False, copied=0, percent=0)
    return [
        StoreProgress(kind=kind, **msgspec.structs.asdict(one))
        for kind, one in found.items()
        if one is not None
    ]


def unfilled_stores(outside: OutsideStores, settings: Settings) -> list[str]:
    """One line for each unfilled store."""
    return [one.unfilled() for one in store_progress(outside, settings) if not one.filled]


class _SpaceDifference(msgspec.Struct, frozen=True):
    """Texts without a point in a collection, and points without a text."""

    space: str
    collection: str
    missing: set[int]
    surplus: set[int]


class StoreComparison:
    """A vector store beside the vectors of the catalog. Lists all points of the store."""

    def __init__(self, outside: OutsideStores, store: VectorStore) -> None:
        self._outside = outside
        self._store = store

    def differences(self) -> Iterator[str]:
        """Describe each difference in one line."""
        name = f"the vector store {self._store.address}"
        attached = self._outside.attached(OutsideStore.VECTOR)
        if attached is None or attached.address != self._store.address:
            vectors = sum(len(self._outside.vector_ids(space)) for space in self._outside.spaces())
            if vectors:
                yield f"{name} is new and lacks {how_many(vectors, 'vector')}"
            return
        try:
            for found in self._compare(attached.catalog_id):
                if found.missing:
                    yield f"{name} lacks {how_many(len(found.missing), 'vector')} of {found.space}"
                if found.surplus:
                    yield f"{name} has {how_many(len(found.surplus), 'vector')} of {found.space} too many"
            for collection in self._unused(attached.catalog_id):
                yield f"{name} has the collection {collection}, which is of no use any more"
        except ServiceUnavailable as error:
            yield error.message

    def remove_surplus(self, catalog_id: str, copied: int) -> None:
        """Delete points of texts missing from the catalog: deleted while another store was in use.

        ``copied``: points just copied. A store with as many has no others.
        """
        spaces = self._outside.spaces()
        for collection in self._unused(catalog_id):
            self._store.drop(collection)
        there = sum(self._store.count(collection_name(catalog_id, space)) for space in spaces)
        for found in self._compare(catalog_id) if there != copied else ():
            for batch in _batches(found.surplus):
                self._store.delete(found.collection, batch)

    def fix(self) -> int:
        """Copy missing vectors from the catalog and delete surplus points; return their number."""
        address = self._store.address
        attached = self._outside.attach(OutsideStore.VECTOR, address)
        repaired = 0
        for found in self._compare(attached.catalog_id):
            if found.missing and attached.filled:
                # Until it is filled, searches read the catalog.
                self._outside.set_filled(OutsideStore.VECTOR, address, filled=False)
            repaired += self._copy(found) + len(found.surplus)
            for batch in _batches(found.surplus):
                self._store.delete(found.collection, batch)
        for collection in self._unused(attached.catalog_id):
            self._store.drop(collection)
            repaired += 1
        self._outside.set_filled(OutsideStore.VECTOR, address, filled=True)
        return repaired

    def _compare(self, catalog_id: str) -> Iterator[_SpaceDifference]:
        for space in self._outside.spaces():
            collection = collection_name(catalog_id, space)
            # In this order: what comes between the two counts as missing, and is only copied once more.
            there = self._store.ids(collection)
            known = self._outside.vector_ids(space)
            surplus = there - known - self._leaving(space)
            for batch in _batches(surplus):
                # A task has written its points and is to settle.
                surplus -= self._outside.wanted(space, batch)
            yield _SpaceDifference(space, collection, known - there, surplus)

    def _leaving(self, space: str) -> set[int]:
        """Texts with a pending removal from the store."""
        found = self._outside.pending_removals(OutsideStore.VECTOR, MOST_PENDING, now=clock.now() + LATER)
        return {one.text.content_id for one in found if one.text.space == space}

    def _unused(self, catalog_id: str) -> list[str]:
        """Collections of spaces no longer in the catalog."""
        there = self._store.collections(prefix_of(catalog_id))
        used = {collection_name(catalog_id, space) for space in self._outside.spaces()}
        return [collection for collection in there if collection not in used]

    def _copy(self, found: _SpaceDifference) -> int:
        copied = 0
        for batch in _batches(found.missing):
            vectors = self._outside.vectors(found.space, batch)
            self._store.upsert(found.collection, [Point(*msgspec.structs.astuple(one)) for one in vectors])
            # Vectors of texts removed meanwhile must be removed again.
            texts = [StoredText(one.tenant_id, one.content_id, found.space) for one in vectors]
            self._outside.withdraw(OutsideStore.VECTOR, texts)
            copied += len(vectors)
        return copied


def _batches(ids: Collection[int]) -> Iterator[list[int]]:
    ordered = sorted(ids)
    for start in range(0, len(ordered), AT_ONCE):
        yield ordered[start : start + AT_ONCE]


POINTS_A_CALL = 64
"""Tasks that are embedded together at least, so that a call to the store is worth its way."""

_worker_log = logging.getLogger("penstock.worker")


class OutsideVectors:
    """A vector store beside a catalog, for tasks and upkeep: points written, withdrawn and removed.

    Points are written before their tasks are settled. What no document wants any more is recorded by the
    catalog, and removed here. ``guard`` refuses calls while the store is known to be down.
    """

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
            _worker_log.warning("%s to be removed later: %s", how_many(len(found), "vector"), error.message)
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
                points = [Point(*msgspec.structs.astuple(one)) for one in vectors]
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
            with self._guard.calling(VECTOR_STORE):
                yield
        except ServiceUnavailable as error:
            wait = self._guard.delay(error)
            raise ServiceUnavailable(
                VECTOR_STORE, error.message, retry_after=wait, remedy=error.remedy
            ) from None

    def close(self) -> None:
        self._store.close()


def _by_owner(tasks: Sequence[Task]) -> dict[tuple[str, str], list[Task]]:
    found: dict[tuple[str, str], list[Task]] = {}
    for task in tasks:
        found.setdefault((task.source.place.tenant_id, task.source.space or ""), []).append(task)
    return found
