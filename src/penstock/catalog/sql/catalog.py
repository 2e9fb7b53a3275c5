"""The catalog over named statements, common to SQLite and PostgreSQL."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from penstock import clock
from penstock.catalog.protocol import BATCH, SWEPT
from penstock.catalog.rules.publication import Portions
from penstock.catalog.sql.snapshot import SqlSnapshot
from penstock.catalog.sql.statements import Statements
from penstock.catalog.values import (
    Adoption,
    HeldTask,
    LedgerEntry,
    Move,
    NewGeneration,
    OutboxEntry,
    OutboxEntryKind,
    Phase,
    Place,
    Removal,
    RemovalResult,
    Rename,
    RenameResult,
    StoreResult,
    Task,
    TaskOutcome,
    TaskRequest,
    TaskStatus,
    TokenUse,
    Touch,
    Walk,
)
from penstock.clock import format_time


class _LazyModule:
    """A module of this package, imported at the first use. Threads may share one."""

    def __init__(self, name: str) -> None:
        self._name = f"{__package__}.{name}"

    def __getattr__(self, attribute: str) -> Any:
        return getattr(import_module(self._name), attribute)


if TYPE_CHECKING:
    from penstock.catalog.sql import (
        chunks,
        generations,
        graph,
        ledger,
        outside_stores,
        removals,
        store,
        tasks,
    )
    from penstock.catalog.sql.graph import CatalogGraph, CatalogGraphTexts
    from penstock.catalog.sql.ledger import CatalogImports, CatalogProjects
    from penstock.catalog.sql.outside_stores import CatalogOutsideStores
    from penstock.catalog.sql.store import Part, Written
else:
    # All that writes. A search or a status only reads.
    chunks = _LazyModule("chunks")
    generations = _LazyModule("generations")
    graph = _LazyModule("graph")
    ledger = _LazyModule("ledger")
    outside_stores = _LazyModule("outside_stores")
    removals = _LazyModule("removals")
    store = _LazyModule("store")
    tasks = _LazyModule("tasks")

T = TypeVar("T")


class SqlCatalog(ABC):
    portions = Portions()
    pause_s = 0.0
    """At least, between two of many transactions that follow each other. 0: all can write at a time."""

    @abstractmethod
    def _write(
        self, work: Callable[[Statements, datetime], T], now: datetime | None = None, *, synced: bool = True
    ) -> T:
        """Run ``work`` with the rows and the time in one transaction. ``synced=False``: a power cut
        may undo the transaction, with nothing lost by that."""

    @abstractmethod
    def _now(self) -> datetime: ...

    @property
    def graph(self) -> CatalogGraph:
        return graph.CatalogGraph(self)

    @property
    def graph_texts(self) -> CatalogGraphTexts:
        return graph.CatalogGraphTexts(self)

    @property
    def outside(self) -> CatalogOutsideStores:
        return outside_stores.CatalogOutsideStores(self)

    @property
    def imports(self) -> CatalogImports:
        return ledger.CatalogImports(self)

    @property
    def projects(self) -> CatalogProjects:
        return ledger.CatalogProjects(self)

    def now(self) -> datetime:
        """The time of the store's clock."""
        return self._now()

    def write(self, work: Callable[[Statements], T]) -> T:
        """One transaction of other rows than those of documents."""
        return self._write(lambda rows, _: work(rows))

    @abstractmethod
    def snapshot(self) -> AbstractContextManager[SqlSnapshot]: ...

    def store(
        self, generations: Sequence[NewGeneration], *, now: datetime | None = None
    ) -> list[StoreResult]:
        answers: list[StoreResult] = []
        for group in self.portions.groups(generations):
            if self.portions.large(group[0]):
                answers.append(self._store_large(group[0], now))
            else:
                answers += self._store_group(group, now)
        return answers

    def _store_group(self, group: Sequence[NewGeneration], now: datetime | None) -> list[StoreResult]:
        return self._write(lambda rows, at: store.store(rows, group, at), now)

    def _store_large(self, new: NewGeneration, now: datetime | None) -> StoreResult:
        parts = store.parts(new, self.portions)
        part, written = next(parts), None
        # Each part is made before the transaction of the one before it: outside of any.
        for following in parts:
            began = clock.elapsed_s()
            # A power cut in between drops the generation as a kill does.
            written = self._write_part(new, part, written, now, synced=False)
            if written.stored is not None:
                return written.stored
            self._let_others_write(began)
            part = following
        stored = self._write_part(new, part, written, now).stored
        assert stored is not None
        return stored

    def _let_others_write(self, began: float) -> None:
        """Pause after a transaction to let waiting writers in: half as long as the transaction took,
        since on a busy machine they need longer to notice that they can write."""
        if self.pause_s:
            time.sleep(max(self.pause_s, (clock.elapsed_s() - began) / 2))

    def _write_part(
        self,
        new: NewGeneration,
        part: Part,
        so_far: Written | None,
        now: datetime | None,
        *,
        synced: bool = True,
    ) -> Written:
        return self._write(lambda rows, at: store.write_part(rows, new, part, so_far, at), now, synced=synced)

    def unfinished(self, *, silent: timedelta, now: datetime | None = None, limit: int = 100) -> list[int]:
        before = format_time((now or self._now()) - silent)
        with self.snapshot() as snapshot:
            return snapshot.unfinished(before, limit)

    def adopt(self, adoption: Adoption, *, now: datetime | None = None) -> bool:
        def work(rows: Statements, moment: datetime) -> bool:
            at = format_time(moment)
            if not generations.adopt(rows, adoption, at):
                return False
            restarted = tasks.restart(rows, adoption.document_id, at)
            return restarted > 0 or generations.building(rows, adoption.document_id)

        return self._write(work, now)

    def drop(self, document_id: int, note: str, *, now: datetime | None = None) -> bool:
        return self._write(
            lambda rows, at: generations.drop(rows, document_id, note, format_time(at), inform=True), now
        )

    def claim(self, request: TaskRequest, *, now: datetime | None = None) -> list[Task]:
        # A power cut ends the worker as well, and an unknown claim is a free task.
        return self._write(lambda rows, at: tasks.claim(rows, request, at), now, synced=False)

    def settle(
        self, outcomes: Sequence[TaskOutcome], *, now: datetime | None = None
    ) -> list[TaskStatus | None]:
        return self._write(lambda rows, at: tasks.settle(rows, outcomes, at), now)

    def renew(self, claims: Sequence[HeldTask | Task], *, now: datetime | None = None) -> list[bool]:
        return self._write(lambda rows, at: self._renewed(rows, claims, format_time(at)), now)

    def _renewed(self, rows: Statements, claims: Sequence[HeldTask | Task], at: str) -> list[bool]:
        return [rows.run(f"renew_{c.lane}", at, c.task_id, c.claim_number) == 1 for c in claims]

    def expired(self, *, lease: timedelta, now: datetime | None = None, limit: int = 100) -> list[HeldTask]:
        before = format_time((now or self._now()) - lease)
        with self.snapshot() as snapshot:
            return snapshot.claims("expired", before, limit)[:limit]

    def held(self, worker_id: str) -> list[HeldTask]:
        with self.snapshot() as snapshot:
            return snapshot.claims("held", worker_id)

    def retry(self, document_id: int, *, now: datetime | None = None) -> int:
        return self._write(lambda rows, at: tasks.restart(rows, document_id, format_time(at)), now)

    def touch(self, touches: Sequence[Touch]) -> list[bool]:
        return self._write(lambda rows, _: ledger.touch(rows, touches))

    def expect(self, arrivals: Sequence[tuple[Place, str, str]], *, now: datetime | None = None) -> None:
        self._write(lambda rows, at: ledger.expect(rows, arrivals, format_time(at)), now)

    def announce(self, walk: Walk) -> None:
        self._write(lambda rows, _: generations.announce(rows, walk))

    def rename(self, rename: Rename, *, limit: int = BATCH, now: datetime | None = None) -> RenameResult:
        return self._write(lambda rows, at: removals.rename(rows, rename, limit, format_time(at)), now)

    def move(
        self, place: Place, moves: Sequence[Move], asked_at: datetime, *, now: datetime | None = None
    ) -> list[bool]:
        return self._write(lambda rows, at: removals.move(rows, place, moves, asked_at, format_time(at)), now)

    def remove(self, removal: Removal, *, limit: int = BATCH, now: datetime | None = None) -> RemovalResult:
        return self._write(lambda rows, at: removals.remove(rows, removal, limit, format_time(at)), now)

    def outbox(
        self, kind: OutboxEntryKind | None = None, *, after: int = 0, limit: int = 100
    ) -> list[OutboxEntry]:
        with self.snapshot() as snapshot:
            return snapshot.outbox(kind, after, limit)

    def clear(self, entry_ids: Sequence[int], *, limit: int = SWEPT, now: datetime | None = None) -> bool:
        began = clock.elapsed_s()
        over = self._write(lambda rows, at: removals.clear(rows, entry_ids, limit, at), now)
        if not over:
            self._let_others_write(began)
        return over

    def note(self, entries: Sequence[LedgerEntry], *, now: datetime | None = None) -> None:
        self._write(lambda rows, at: ledger.note(rows, entries, format_time(at)), now)

    def remember(
        self, tenant_id: str, space: str, vectors: Mapping[str, bytes], *, now: datetime | None = None
    ) -> None:
        self._write(lambda rows, at: chunks.remember(rows, tenant_id, space, vectors, format_time(at)), now)

    def add_tokens(self, uses: Sequence[TokenUse]) -> None:
        self._write(lambda rows, _: ledger.add_tokens(rows, uses))

    def set_fingerprints(self, fingerprints: Mapping[Phase, str], *, replace: bool = False) -> None:
        self._write(lambda rows, _: ledger.set_fingerprints(rows, fingerprints, replace=replace))

    def sweep(self, before: datetime, *, limit: int = BATCH) -> int:
        return self._write(lambda rows, _: removals.forget_old(rows, format_time(before), limit))

    def forget(self, tenant_id: str, *, asked_before: datetime | None = None, limit: int = BATCH) -> bool:
        def work(rows: Statements, at: datetime) -> bool:
            return removals.forget(rows, tenant_id, format_time(asked_before or at), limit)

        return self._write(work)

    @abstractmethod
    def scrub(self) -> None: ...

    @abstractmethod
    def merge_words(self, stop: Callable[[], bool] = lambda: False) -> None: ...

    def repair(self, *, limit: int = BATCH, now: datetime | None = None) -> int:
        return self._write(lambda rows, at: removals.repair(rows, limit, at), now)

    def audit(self) -> list[str]:
        with self.snapshot() as snapshot:
            return removals.findings(snapshot.rows)
