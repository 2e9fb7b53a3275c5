"""The catalog in a SQLite file, by default the queue's own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path

from penstock import clock
from penstock.catalog.protocol import BATCH, TASK_LEASE
from penstock.catalog.sql import claiming, generations, noting, removing, settling, storing, sweeping
from penstock.catalog.sql.restarting import restart
from penstock.catalog.sql.snapshot import SqlSnapshot
from penstock.catalog.sql.statements import Rows, load, migrations
from penstock.catalog.values import (
    Adoption,
    Claimed,
    Entry,
    EntryKind,
    LedgerEntry,
    NewGeneration,
    Phase,
    Place,
    Removal,
    Removed,
    Rename,
    Renamed,
    Stored,
    Task,
    TaskOutcome,
    TaskRequest,
    TaskStatus,
    Touch,
)
from penstock.clock import format_time
from penstock.errors import StoreError
from penstock.queue.doorbell import Doorbell
from penstock.queue.sql import schema
from penstock.queue.sql.connections import Connections, translated

SQL = load("sqlite")
SCHEMA = schema.Schema("catalog_migration", migrations("sqlite"))


class SqliteCatalog:
    def __init__(self, path: Path | str, *, synchronous: str = "FULL", busy_timeout_s: float = 60) -> None:
        self.path = Path(path)
        self._connections = Connections(
            self.path, synchronous=synchronous, busy_timeout_s=busy_timeout_s, foreign_keys=True
        )
        self._idle_readers: list[str] = []
        self._readers = count(1)
        self._doorbell: Doorbell | None = None
        self._version_seen = -1
        try:
            self.migrate()
        except StoreError:
            self._connections.close()
            raise

    @contextmanager
    def _writing(self) -> Iterator[Rows]:
        with self._connections.writing() as connection:
            yield Rows(connection.cursor(), SQL)

    @contextmanager
    def snapshot(self) -> Iterator[SqlSnapshot]:
        # A connection each: a search that takes its time holds up nobody else.
        try:
            role = self._idle_readers.pop()
        except IndexError:
            role = f"snapshot {next(self._readers)}"
        with translated(self.path):
            connection = self._connections.get(role)
            connection.execute("BEGIN")
            try:
                yield SqlSnapshot(Rows(connection.cursor(), SQL), connection.cursor)
            finally:
                connection.execute("ROLLBACK")
                self._idle_readers.append(role)

    def store(self, generations: Sequence[NewGeneration], *, now: datetime | None = None) -> list[Stored]:
        with self._writing() as rows:
            return storing.store(rows, generations, now or clock.now())

    def adopt(self, adoption: Adoption, *, now: datetime | None = None) -> bool:
        at = _at(now)
        with self._writing() as rows:
            if not generations.adopt(rows, adoption, at):
                return False
            restarted = restart(rows, adoption.document_id, at)
            return restarted > 0 or generations.building(rows, adoption.document_id)

    def drop(self, document_id: int, note: str, *, now: datetime | None = None) -> bool:
        with self._writing() as rows:
            return generations.drop(rows, document_id, note, _at(now), inform=True)

    def claim(self, request: TaskRequest, *, now: datetime | None = None) -> list[Task]:
        with self._writing() as rows:
            return claiming.claim(rows, request, now or clock.now())

    def settle(
        self, outcomes: Sequence[TaskOutcome], *, now: datetime | None = None
    ) -> list[TaskStatus | None]:
        with self._writing() as rows:
            return settling.settle(rows, outcomes, now or clock.now())

    def renew(self, claims: Sequence[Claimed | Task], *, now: datetime | None = None) -> list[bool]:
        at = _at(now)
        with self._writing() as rows:
            return [rows.run(f"renew_{c.lane}", at, c.task_id, c.claim_number) == 1 for c in claims]

    def expired(
        self, *, lease: timedelta = TASK_LEASE, now: datetime | None = None, limit: int = 100
    ) -> list[Claimed]:
        before = format_time((now or clock.now()) - lease)
        with self.snapshot() as snapshot:
            return snapshot.claims("expired", before, limit)[:limit]

    def held(self, worker_id: str) -> list[Claimed]:
        with self.snapshot() as snapshot:
            return snapshot.claims("held", worker_id)

    def retry(self, document_id: int, *, now: datetime | None = None) -> int:
        with self._writing() as rows:
            return restart(rows, document_id, _at(now))

    def touch(self, touches: Sequence[Touch]) -> None:
        with self._writing() as rows:
            rows.many("touch", [(touch.size, touch.mtime_ns, touch.source_id) for touch in touches])

    def rename(self, rename: Rename, *, limit: int = BATCH, now: datetime | None = None) -> Renamed:
        with self._writing() as rows:
            return removing.rename(rows, rename, limit, _at(now))

    def remove(self, removal: Removal, *, limit: int = BATCH, now: datetime | None = None) -> Removed:
        with self._writing() as rows:
            return removing.remove(rows, removal, limit, _at(now))

    def outbox(self, kind: EntryKind | None = None, *, after: int = 0, limit: int = 100) -> list[Entry]:
        with self.snapshot() as snapshot:
            return snapshot.outbox(kind, after, limit)

    def leftovers(self, entry_id: int, *, limit: int = BATCH) -> list[str]:
        with self.snapshot() as snapshot:
            return snapshot.leftovers(entry_id, limit)

    def clear(self, entry_ids: Sequence[int], *, limit: int = BATCH, now: datetime | None = None) -> bool:
        with self._writing() as rows:
            return sweeping.clear(rows, entry_ids, limit, _at(now))

    def note(self, entries: Sequence[LedgerEntry], *, now: datetime | None = None) -> None:
        with self._writing() as rows:
            noting.note(rows, entries, _at(now))

    def unnote(self, place: Place, paths: Sequence[str]) -> None:
        where = (place.tenant_id, place.collection, place.branch)
        with self._writing() as rows:
            rows.many("unnote", [(*where, path) for path in paths])

    def remember(
        self, tenant_id: str, space: str, vectors: Mapping[str, bytes], *, now: datetime | None = None
    ) -> None:
        with self._writing() as rows:
            noting.remember(rows, tenant_id, space, vectors, _at(now))

    def set_fingerprints(self, fingerprints: Mapping[Phase, str], *, replace: bool = False) -> None:
        with self._writing() as rows:
            noting.set_fingerprints(rows, fingerprints, replace=replace)

    def sweep(self, before: datetime, *, limit: int = BATCH) -> int:
        with self._writing() as rows:
            return sweeping.forget_old(rows, format_time(before), limit)

    def audit(self) -> list[str]:
        with self.snapshot() as snapshot:
            return snapshot.audit()

    def wait(self, timeout: float) -> bool:
        if self._doorbell is None:
            self._doorbell = Doorbell(self.path.parent, self._changed)
        return self._doorbell.wait(timeout)

    def _changed(self) -> bool:
        """Whether anybody committed since last asked. A connection does not see its own commits here."""
        with translated(self.path):
            version: int = self._connections.get("listen").execute("PRAGMA data_version").fetchone()[0]
        changed = version != self._version_seen
        self._version_seen = version
        return changed

    def check(self) -> list[str]:
        with translated(self.path):
            schema.verify(self._connections.get("write"), self.path, SCHEMA)
        return []

    def migrate(self) -> None:
        with translated(self.path):
            schema.migrate(self._connections, self.path, SCHEMA)

    def close(self) -> None:
        if self._doorbell is not None:
            self._doorbell.close()
            self._doorbell = None
        self._connections.close()
        self._idle_readers.clear()


def _at(now: datetime | None) -> str:
    return format_time(now or clock.now())
