"""The JSONL engine: the memory engine with a journal of changes, shared by several processes.

Each call takes the file lock, applies the lines of other processes, runs, and appends one line.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

import msgspec

from penstock import clock
from penstock.errors import RestoreUnfinished, StoreError, StoreVanished
from penstock.queue.file_watch import FileWatch
from penstock.queue.job import WorkerReport
from penstock.queue.jsonl import journal
from penstock.queue.jsonl.journal import Journal, JournalState, Record, RecordedTable, Tail, damaged
from penstock.queue.memory.queue import FREEING, MemoryQueue
from penstock.queue.memory.table import Table
from penstock.queue.rules.rows import Pause, PauseState
from penstock.queue.schedules import Key, Schedule, key_of
from penstock.vocabulary import how_many

COMPACT_AFTER = 100
"""Records before the journal is compacted, or the number of rows if larger: a snapshot writes all rows."""

COMPACT_AFTER_BYTES = 64 * 1024 * 1024
"""Bytes before the journal is compacted, or twice the size of the last snapshot if larger."""

MADE_FOR = 100_000


class JsonlQueue(MemoryQueue):
    _table: RecordedTable

    def __init__(
        self, directory: Path, *, audit: bool = True, restoring: bool = False, busy_timeout_s: float = 60
    ) -> None:
        """``restoring``: open a directory even if the last restore was not finished."""
        super().__init__()
        self._restoring = restoring
        self._journal = Journal(directory / "jobs", busy_timeout_s)
        self._journal.create()
        self._audit = _Audit(self._journal.directory / "index_queue.log") if audit else None
        self._watch = FileWatch(self._journal.directory, self._has_changes)
        self._adopt(journal.empty_state())
        self._newest = 0
        """The last record known. A new store at the same place has fewer."""
        self._retry_compaction_at = 0

    @contextmanager
    def _writing(self, what: str) -> Iterator[Table]:
        with self._changed:
            try:
                self._journal.lock(exclusive=True)
                if self._catch_up():
                    self._journal.cut_torn()
                try:
                    yield self._table
                    self._commit(what)
                except BaseException:
                    if self._unwritten():
                        self._journal.rewind()
                    raise
                self._compact_when_due()
            finally:
                self._journal.unlock()

    @contextmanager
    def _reading(self) -> Iterator[Table]:
        with self._changed:
            try:
                self._journal.lock(exclusive=False)
                self._catch_up()
            finally:
                self._journal.unlock()
            yield self._table

    def _catch_up(self) -> bool:
        """Apply new lines of the files. Returns whether the journal ends in a partial line."""
        try:
            if self._journal.needs_snapshot(self._n):
                self._adopt(journal.parse_snapshot(self._journal.snapshot, self._journal.read_snapshot()))
            tail = self._journal.tail()
            if tail.data:
                self._replay(tail)
            if self._journal.replaced and self._n < self._newest:
                known = how_many(self._newest, "record")
                raise StoreVanished(
                    f"{self._journal.directory} was replaced: it had {known}, and has {self._n}"
                )
        except BaseException:
            self._journal.rewind()
            raise
        self._newest = self._n
        return tail.torn

    def _adopt(self, state: JournalState) -> None:
        self._n, self._table = state.n, state.table
        self._workers, self._schedules = state.workers, state.schedules
        self._version = self._n
        self._mark_written()

    def _mark_written(self) -> None:
        """Mark the state as written: memory and files are equal."""
        self._table.forget()
        self._reported: WorkerReport | None = None
        self._forgotten: list[str] = []
        self._scheduled: dict[Key, Schedule | None] = {}

    def _replay(self, tail: Tail) -> None:
        # After a crash the journal may begin with records of the snapshot.
        skipping = tail.first == 1
        for number, line in enumerate(tail.data[:-1].split(b"\n"), tail.first):
            try:
                record = journal.decode_record(line)
                if skipping and record.n <= self._n:
                    continue
                skipping = False
                if record.n != self._n + 1:
                    raise ValueError(f"record {record.n} cannot follow record {self._n}")
                self._table.replay(record)
            except (msgspec.MsgspecError, ValueError) as error:
                raise damaged(self._journal.path, number, error) from error
            if record.paused is not None:
                self._table.adopt_pauses(record.paused)
            if record.worker is not None:
                self._workers[record.worker.worker_id] = record.worker
            for worker_id in record.forgotten:
                self._workers.pop(worker_id, None)
            self._schedules |= {key_of(schedule): schedule for schedule in record.schedules}
            for key in record.dropped:
                self._schedules.pop(key, None)
            self._count_record(record)
        self._table.limit_keys.clear()

    def _count_record(self, record: Record) -> None:
        self._n = record.n
        if record.do in FREEING:
            self._version = record.n

    def _unwritten(self) -> bool:
        table = self._table
        touched = bool(table.changed or table.new or table.gone or table.changed_limits)
        others_changed = self._reported is not None or bool(self._forgotten) or bool(self._scheduled)
        return touched or others_changed or table.changed_pauses() is not None

    def _commit(self, what: str) -> None:
        if not self._unwritten():
            return
        record = self._new_record(what)
        self._journal.append(journal.encode_line(record))
        self._count_record(record)
        self._newest = self._n
        self._mark_written()
        if self._audit is not None:
            self._audit.record(record)

    def _new_record(self, what: str) -> Record:
        """The record of this transaction. Few have more than changed rows."""
        table = self._table
        record = Record(n=self._n + 1, at=clock.now(), do=what)
        record.changed, record.gone, record.paused = table.changed, table.gone, table.changed_pauses()
        if table.new:
            record.new = journal.as_written(table.new)
        if self._reported is not None or self._forgotten:
            record.worker, record.forgotten = self._reported, self._forgotten
        if self._scheduled:
            record.schedules = [schedule for schedule in self._scheduled.values() if schedule is not None]
            record.dropped = [key for key, schedule in self._scheduled.items() if schedule is None]
        if table.changed_limits:
            record.limits = [limit for limit in table.changed_limits.values() if limit is not None]
            record.lifted = [key for key, limit in table.changed_limits.items() if limit is None]
        return record

    def _compact_when_due(self) -> None:
        patience = max(COMPACT_AFTER, len(self._table.rows))
        due = self._n - self._journal.base >= patience or self._journal.is_too_long(COMPACT_AFTER_BYTES)
        if due and self._n >= self._retry_compaction_at:
            self._retry_compaction_at = self._n + COMPACT_AFTER
            # The transaction is durable already; a long journal is no reason to fail it.
            with suppress(StoreError):
                self._compact()
                self._retry_compaction_at = 0

    def _compact(self) -> None:
        state = JournalState(self._n, self._table, self._workers, self._schedules)
        self._journal.compact(self._n, state.snapshot())

    def scrub(self) -> None:
        with self._writing("scrub"):
            self._compact()

    def report(self, worker: WorkerReport, *, now: datetime | None = None) -> None:
        seen = msgspec.structs.replace(worker, seen_at=now or clock.now())
        with self._writing("report"):
            self._workers[worker.worker_id] = self._reported = seen

    def forget_workers(self, reports: Sequence[WorkerReport]) -> int:
        with self._writing("forget_workers"):
            self._forgotten = gone = self._still_stored(reports)
            for worker_id in gone:
                del self._workers[worker_id]
        return len(gone)

    def _set_schedule(self, key: Key, schedule: Schedule | None) -> None:
        super()._set_schedule(key, schedule)
        self._scheduled[key] = schedule

    def wait(self, timeout: float) -> bool:
        return self._has_unfinished_work() or self._watch.wait(timeout)

    def _has_changes(self) -> bool:
        with self._reading():
            news = self._version != self._seen.version
            self._seen.version = self._version
            return news

    def check(self) -> list[str]:
        with self._reading() as table:
            if not self._journal.writable:
                raise self._journal.read_only()
            live = len(table.rows) - sum(job.ended for job in table.values())
            records_kept, patience = self._n - self._journal.base, max(COMPACT_AFTER, len(table.rows))
        warnings = []
        if live > MADE_FOR:
            warnings.append(f"{live:,} live jobs: more than {MADE_FOR:,} are better kept in sqlite:///")
        if records_kept > 2 * patience:
            warnings.append(
                f"{self._journal.path} has {how_many(records_kept, 'record')} that could not be compacted"
            )
        return warnings

    def begin_restore(self) -> None:
        with self._writing("restore"):
            self._journal.mark_restoring()
            # The number of records goes on, so that other processes read the new snapshot.
            self._adopt(journal.empty_state(self._n + 1))
            self._compact()

    def end_restore(self) -> None:
        with self._writing("restore"):
            self._journal.unmark_restoring()

    def restore_unfinished(self) -> bool:
        return self._journal.restoring.exists()

    def migrate(self) -> None:
        if self.restore_unfinished() and not self._restoring:
            raise RestoreUnfinished(
                f"{self._journal.directory} was being restored, and the restore did not finish"
            )
        with self._reading():
            if not self._journal.writable and self._journal.snapshot.exists():
                return
        with self._writing("migrate"):
            if not self._journal.snapshot.exists():
                self._compact()

    def close(self) -> None:
        with self._changed:
            self._watch.close()
            self._journal.close()
            self._newest = 0
            if self._audit is not None:
                self._audit.close()

    def after_fork(self) -> None:
        super().after_fork()
        self._journal.close()
        if self._audit is not None:
            self._audit.close()


ROTATE_AT = 10 * 1024 * 1024
CHECK_EVERY = 64
"""Lines between two checks of the file: rotation may be due, or another process has rotated it."""


class _Audit:
    """The log file for people: one line per transaction, never read back.

    Written under the journal's lock, so lines are in order and rotation has one writer.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = -1
        self._lines = 0

    def record(self, record: Record) -> None:
        try:
            if self._lines % CHECK_EVERY == 0:
                self._open()
            self._lines += 1
            os.write(self._fd, _describe(record).encode(errors="replace"))
        except OSError:
            # The transaction is durable already: after an error the caller would repeat it.
            return

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1
        self._lines = 0

    def _open(self) -> None:
        self.close()
        with suppress(FileNotFoundError):
            if self._path.stat().st_size >= ROTATE_AT:
                self._path.rename(self._path.with_name(self._path.name + ".1"))
        self._fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _describe(record: Record) -> str:
    """Format a record: ``2026-01-01T12:00:00.000+00:00 claim by w1: 100 in_progress, job_0 … job_99``."""
    line = f"{record.at.isoformat(timespec='milliseconds')} {record.do}"
    worker = _worker(record)
    if worker is not None:
        line += f" by {worker}"
    if record.paused is not None:
        named = [f"{'/'.join(pause.order)}{_phase(pause)}" for pause in record.paused]
        line += f": paused {', '.join(named) or 'nothing'}"
    became, ids = _effects(record)
    if ids:
        counts = ", ".join([f"{number} {what}" for what, number in became.items()])
        line += f": {counts}, {ids[0]}" + (f" … {ids[-1]}" if ids[-1] != ids[0] else "")
    return line + "\n"


def _effects(record: Record) -> tuple[dict[str, int], list[str]]:
    """Count the rows by what became of them, and list the first and the last of each kind."""
    became: dict[str, int] = {}
    ids: list[str] = []
    if record.new:
        became["added"] = len(record.new)
        ids += record.new[0].queue_id, record.new[-1].queue_id
    for group, changes in record.changed:
        status = changes.get("status", "updated")
        became[status] = became.get(status, 0) + len(group)
        ids += group[0], group[-1]
    if record.gone:
        became["removed"] = len(record.gone)
        ids += record.gone[0], record.gone[-1]
    return became, ids


def _phase(pause: Pause) -> str:
    return "" if pause.phase is PauseState.PAUSED else f" ({pause.phase})"


def _worker(record: Record) -> str | None:
    if record.worker is not None:
        return record.worker.worker_id
    for _, changes in record.changed:
        if worker := changes.get("worker_id"):
            return str(worker)
    return None
