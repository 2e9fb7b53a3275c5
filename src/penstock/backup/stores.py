"""The rows of a queue and its catalog as parts of an archive, and parts put into a queue and a catalog.

The queue is read first. So a job that has ended in the backup has its documents in the backup. A job that
went on between the two moments runs again after a restore, and finds its work done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime
from typing import Any, get_args

import msgspec

from penstock.backup.archive import PartHeader, PartRows, Row
from penstock.catalog.parts import CatalogRows, PortableTable
from penstock.catalog.protocol import Catalog
from penstock.catalog.rules.publication import RestoredRows
from penstock.errors import BackupDamaged
from penstock.named_tuple import NamedTuple
from penstock.queue.job import Job, Scope
from penstock.queue.limits import Limit
from penstock.queue.limits import decode as decode_limit
from penstock.queue.limits import encode as encode_limit
from penstock.queue.protocol import Queue
from penstock.queue.schedules import Schedule, decode, encode
from penstock.restoration import restored

JOBS = "queue/jobs"
PAUSES = "queue/pauses"
SCHEDULES = "queue/schedules"
LIMITS = "queue/limits"
CATALOG = "catalog/"
ROWS_AT_ONCE, BYTES_AT_ONCE = 8_000, 16 << 20
"""Rows of a catalog, or bytes of their texts and vectors, in one transaction of a restore."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_VOLATILE: dict[str, Any] = dict.fromkeys(("history_json", "finished_at", "last_error_at")) | {
    "claim_number": 0,
    "turn": 0,
    "updated_at": _EPOCH,
}
"""Columns of a job that a restore may change."""
_JOB_COLUMNS = tuple(field.encode_name for field in msgspec.structs.fields(Job))
_TIMES = [
    at
    for at, field in enumerate(msgspec.structs.fields(Job))
    if datetime in (field.type, *get_args(field.type))
]
"""Places of the columns with a time."""
_QUEUE_PARTS = {
    JOBS: set(_JOB_COLUMNS),
    PAUSES: {"tenant_id", "collection"},
    SCHEDULES: {"schedule"},
    LIMITS: {"limit"},
}


class Contents(NamedTuple):
    """The rows of a queue and a catalog at one moment."""

    queue: Iterator[list[Job]]
    pauses: Sequence[Scope]
    schedules: Sequence[Schedule]
    limits: Sequence[Limit]
    catalog: CatalogRows
    jobs: int
    """Number of jobs, which may change while they are read from Redis."""

    def rows(self) -> int:
        """Number of all rows."""
        return self.jobs + sum(self.catalog.count(table) for table in self.catalog.tables())

    def parts(self) -> Iterator[PartRows]:
        """All rows, part by part. A part begins with an empty batch."""
        limits = PartHeader(LIMITS, ("limit",))
        # Before the jobs: a limit that is set later would hold them again.
        yield PartRows(limits, [])
        yield PartRows(limits, [(_limit_text(limit),) for limit in self.limits])
        jobs = PartHeader(JOBS, _JOB_COLUMNS)
        yield PartRows(jobs, [])
        for page in self.queue:
            yield PartRows(jobs, [_job_row(job) for job in page])
        pauses = PartHeader(PAUSES, ("tenant_id", "collection"))
        yield PartRows(pauses, [])
        yield PartRows(pauses, [(scope.tenant_id, scope.collection) for scope in self.pauses])
        schedules = PartHeader(SCHEDULES, ("schedule",))
        yield PartRows(schedules, [])
        yield PartRows(schedules, [(encode(schedule).decode(),) for schedule in self.schedules])
        for table in self.catalog.tables():
            header = PartHeader(CATALOG + table.name, table.columns)
            yield PartRows(header, [])
            for rows in self.catalog.rows(table):
                yield PartRows(header, list(rows))


@contextmanager
def reading(queue: Queue, catalog: Catalog) -> Iterator[Contents]:
    """Read both stores: the queue at one moment, the catalog at the next one."""
    pauses = sorted(queue.paused(), key=lambda scope: (scope.tenant_id, scope.collection))
    with queue.dump() as jobs, catalog.transfer.reading() as rows:
        number = sum(queue.tally()[0].values())
        yield Contents(jobs, pauses, queue.schedules(), queue.limits(), rows, number)


def _job_row(job: Job) -> Row:
    row = list(msgspec.structs.astuple(job))
    for at in _TIMES:
        if row[at] is not None:
            row[at] = row[at].isoformat()
    return row


def job_of(header: PartHeader, row: Row) -> Job:
    """The job of a row; unknown columns were refused before."""
    try:
        return msgspec.convert(dict(zip(header.columns, row, strict=True)), Job)
    except msgspec.ValidationError as error:
        raise BackupDamaged(f"a row of part {header.part} is not a job: {error}") from error


def comparable(part: PartRows) -> list[Row]:
    """Rows in a form equal in every store: without the values changed by a restore."""
    header = part.header
    if header.part == JOBS:
        jobs = [restored(job_of(header, row), _EPOCH) for row in part.rows]
        return [_job_row(msgspec.structs.replace(job, **_VOLATILE)) for job in jobs]
    if not header.part.startswith(CATALOG):
        return part.rows
    rows = RestoredRows(table_of(header).name, header.columns).apply(part.rows)
    counted = [
        number
        for number, name in enumerate(header.columns)
        if name.endswith("claim_number") or name == "fill_number"
    ]
    for row in rows:
        for number in counted:
            row[number] = 0
    return list(rows)


def _schedule_of(body: Any) -> Schedule:
    try:
        return decode(body)
    except (msgspec.MsgspecError, TypeError) as error:
        raise BackupDamaged(f"a row of part {SCHEDULES} is not a schedule: {error}") from error


def _limit_text(limit: Limit) -> str:
    return encode_limit(msgspec.structs.replace(limit, next_at=None)).decode()


def _limit_of(body: Any) -> Limit:
    try:
        return decode_limit(body)
    except (msgspec.MsgspecError, TypeError) as error:
        raise BackupDamaged(f"a row of part {LIMITS} is not a limit: {error}") from error


def check_row(header: PartHeader, row: Row) -> None:
    """Raise ``BackupDamaged`` for a malformed row of the queue."""
    name = header.part
    if name == JOBS:
        job_of(header, row)
    elif name in (SCHEDULES, LIMITS, PAUSES):
        if set(header.columns) != _QUEUE_PARTS[name]:
            raise BackupDamaged(f"part {name} has other columns than {', '.join(sorted(_QUEUE_PARTS[name]))}")
        if name == SCHEDULES:
            _schedule_of(row[0])
        elif name == LIMITS:
            _limit_of(row[0])
        elif not all(isinstance(value, str) for value in row):
            raise BackupDamaged(f"a row of part {PAUSES} is not a pause")


def is_compared(header: PartHeader) -> bool:
    """Check whether a part is equal in both stores after a move: not the record of the move itself."""
    return header.part != f"{CATALOG}catalog_import"


class StoreTarget:
    """Puts parts into a queue and a catalog under restore."""

    def __init__(
        self,
        queue: Queue | None,
        catalog: Catalog | None,
        now: datetime,
        guard: Callable[[PartHeader], AbstractContextManager[None]] = lambda _: nullcontext(),
    ) -> None:
        """None: this store is complete already. ``guard`` is around each write, for rows of a part."""
        self._guard = guard
        self._queue = queue
        self._transfer = None if catalog is None else catalog.transfer
        self._now = now
        self._part: PartHeader | None = None
        self._rows: list[Row] = []
        """Rows of one table, for one transaction."""
        self._bytes = 0

    def begin(self) -> None:
        """Empty the stores and mark them as unfinished."""
        if self._queue is not None:
            self._queue.begin_restore()
            for schedule in self._queue.schedules():
                self._queue.drop_schedule(schedule.tenant_id, schedule.name)
        if self._transfer is not None:
            self._transfer.begin_restore()

    def take(self, part: PartRows) -> None:
        name = part.header.part
        if name.startswith(CATALOG):
            if self._transfer is not None and part.rows:
                self._collect(part)
            return
        with self._guard(part.header):
            self._take_of_queue(name, part)

    def _take_of_queue(self, name: str, part: PartRows) -> None:
        if name == JOBS and self._queue is not None:
            jobs = [restored(job_of(part.header, row), self._now) for row in part.rows]
            self._insert(self._queue, jobs)
        elif name == PAUSES and self._queue is not None:
            for tenant_id, collection in part.rows:
                self._queue.pause(Scope(tenant_id, collection))
        elif name == LIMITS and self._queue is not None:
            for (body,) in part.rows:
                self._queue.put_limit(_limit_of(body))
        elif name == SCHEDULES and self._queue is not None:
            for (body,) in part.rows:
                self._queue.put_schedule(_schedule_of(body))

    def _collect(self, part: PartRows) -> None:
        """Collect rows for a large transaction: each commit adds a part to the index of words."""
        if part.header != self._part:
            self.write_collected()
            self._part = part.header
        self._rows += part.rows
        # Rows of another store come without their size.
        self._bytes += part.size or _size_of(part.rows)
        if len(self._rows) >= ROWS_AT_ONCE or self._bytes >= BYTES_AT_ONCE:
            self.write_collected()

    def write_collected(self) -> None:
        """Write the rows collected so far."""
        if self._part is not None and self._transfer is not None and self._rows:
            with self._guard(self._part):
                self._transfer.restore(table_of(self._part), self._rows)
        self._rows, self._bytes = [], 0

    def _insert(self, queue: Queue, jobs: list[Job]) -> None:
        """Insert jobs. A row in the way of another one came later, while the backup was read from Redis."""
        obstacles = queue.restore(jobs) if jobs else []
        in_the_way = [job for job, obstacle in zip(jobs, obstacles, strict=True) if obstacle]
        unlocked = [msgspec.structs.replace(job, lock_held=False) for job in in_the_way if job.lock_held]
        if unlocked:
            queue.restore(unlocked)

    def end_catalog(self, numbers: Mapping[str, int]) -> None:
        if self._transfer is not None:
            self._transfer.end_restore(numbers)

    def end_queue(self) -> None:
        if self._queue is not None:
            # Children that ended while a backup was read from Redis are counted again.
            while self._queue.reconcile():
                pass
            self._queue.end_restore()


def _size_of(rows: Sequence[Row]) -> int:
    return sum(len(value) for row in rows for value in row if isinstance(value, str | bytes))


def table_of(header: PartHeader) -> PortableTable:
    """The table of a part of the catalog."""
    return PortableTable(header.part.removeprefix(CATALOG), header.columns)


def refuse_unknown(catalog: Catalog, header: PartHeader) -> None:
    """Raise an error for a part or a column unknown to this version."""
    known = _QUEUE_PARTS.get(header.part)
    if known is None and header.part.startswith(CATALOG):
        catalog.transfer.refuse_unknown(table_of(header))
    elif known is None or set(header.columns) - known:
        raise BackupDamaged(
            f"the backup has an unknown part or column in {header.part}",
            remedy="Upgrade Penstock to the version that made the backup, or a later one.",
        )
