"""Backups of a queue and its catalog, written, rotated, checked and restored; and moves between stores.

A move puts all rows of one store of Penstock into another, of any engine, with counts and checksums.
"""

from __future__ import annotations

import errno
import fcntl
import io
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from datetime import UTC, datetime
from importlib import metadata
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias, get_args

import msgspec
from msgspec.structs import replace

from penstock import clock, config
from penstock.backup.archive import (
    FIRST_LINE,
    ArchiveReader,
    ArchiveWriter,
    Header,
    PartHeader,
    PartRows,
    PartSummary,
    Row,
    RowChecksum,
)
from penstock.catalog.parts import CatalogRows, ImportedRow, PortableTable
from penstock.catalog.protocol import Catalog
from penstock.catalog.rules.publication import RestoredRows
from penstock.config import Settings
from penstock.database.factory import open_catalog, open_queue
from penstock.errors import (
    BackupDamaged,
    DiskFull,
    ImportRefused,
    InvalidRequest,
    PenstockError,
    SchemaMismatch,
    StatementRefused,
    StoreDenied,
    StoreNotEmpty,
    StoreUnavailable,
    WorkersRunning,
)
from penstock.queue.job import Job, JobQuery, Scope
from penstock.queue.limits import Limit, decode_limit, encode_limit, gated
from penstock.queue.protocol import Queue, living_workers
from penstock.queue.schedules import Schedule, decode_schedule, encode_schedule
from penstock.queue.transitions import released, settled
from penstock.store_url import StoreUrl
from penstock.vocabulary import how_many

_RESTORED_NOTE = "restored from a backup"
_RESTORED_STEP = 1_000
"""Added to claim numbers by a restore: more claims than a job gets between a backup and its restore."""
_JOBS = "queue/jobs"
_PAUSES = "queue/pauses"
_SCHEDULES = "queue/schedules"
_LIMITS = "queue/limits"
_CATALOG = "catalog/"
_ROWS_AT_ONCE, _BYTES_AT_ONCE = 8_000, 16 << 20
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
    _JOBS: set(_JOB_COLUMNS),
    _PAUSES: {"tenant_id", "collection"},
    _SCHEDULES: {"schedule"},
    _LIMITS: {"limit"},
}
_REQUIRED = (_JOBS, f"{_CATALOG}sources")
_NUMBERS = ("row", "change")
_MOST = 2**63
_SCALARS = {str, bytes, float, int, bool, type(None)}
_SUFFIX = ".backup"
_PARTIAL = ".partial"
_OWN_NAME = re.compile(r"penstock-\d{8}-\d{6}-\d{6}\.backup")
_RESTORED = "restore"
"""Kind of the record in a restored catalog: its source is a backup's id or a store's address."""
_CHECK_SHARE = 0.15
"""Share of a restore that the check of the file takes."""
_BEFORE = "imported before"
OnProgress: TypeAlias = Callable[[str, int, float], None]
"""Called with the name of a part, its rows so far, and the share of the whole that is done."""
OnJobs: TypeAlias = Callable[[list[Job], str | None], None]
"""Called with the jobs of a batch, and the reason why they were not inserted, if they were not."""


class BackupReport(msgspec.Struct, frozen=True, kw_only=True):
    """Report on a backup written, checked or restored."""

    path: str
    id: str
    created_at: str
    version: str
    queue: str
    catalog: str
    size: int
    jobs: int
    documents: int
    parts: tuple[PartSummary, ...]
    removed: tuple[str, ...] = ()
    """Older backups that were removed."""


class RestoreOptions(msgspec.Struct, frozen=True):
    """``replace``: delete the contents of the stores first. ``check``: read the backup, and write nothing."""

    replace: bool = False
    check: bool = False


_TO_EMPTY = RestoreOptions()


def _silent(_part: str, _rows: int, _share: float) -> None:
    """Show no progress."""


class Backups:
    """Backups of the stores of some settings, and restores into them."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    # Write.

    def write(
        self, destination: Path, *, keep: int | None = None, on_progress: OnProgress = _silent
    ) -> BackupReport:
        """Write a backup to a file, or to a new file in a directory. Workers may go on.

        ``keep``: of the backups in the directory, the newest ones that stay, this one included.
        """
        self._refuse_memory()
        if keep is not None and not os.path.isdir(destination):  # noqa: PTH112 - it never raises
            raise InvalidRequest(
                f"{destination} is not a directory", remedy="Create the directory, or leave out --keep."
            )
        if os.path.isdir(destination):  # noqa: PTH112 - it never raises
            now = clock.now()
            path = destination / f"penstock-{now:%Y%m%d-%H%M%S-%f}{_SUFFIX}"
        else:
            path = destination
            _refuse_other_file(path)
        report = self._write(path, on_progress)
        if path.parent == destination:
            for abandoned in _abandoned_files(destination):
                abandoned.unlink(missing_ok=True)
        removed = tuple(_rotate(report, path.parent, keep)) if keep is not None else ()
        return msgspec.structs.replace(report, removed=removed)

    def _refuse_memory(self) -> None:
        if self._settings.store.engine == "memory":
            raise InvalidRequest("memory:// ends with this process", remedy="Choose another --url.")

    def _write(self, path: Path, on_progress: OnProgress) -> BackupReport:
        with ExitStack() as opened:
            queue = opened.enter_context(closing(open_queue(self._settings)))
            catalog = opened.enter_context(closing(open_catalog(self._settings)))
            file = opened.enter_context(_new_file(path))
            contents = opened.enter_context(_reading(queue, catalog))
            header = Header(
                version=metadata.version("penstock"),
                created_at=clock.format_time(clock.now()),
                id=clock.new_task_id(),
                queue=self._settings.store.masked,
                catalog=self._settings.catalog_store.masked,
                numbers=contents.catalog.numbers,
            )
            with _file_errors(path):
                parts = _archive(ArchiveWriter(file, header), contents, on_progress)
        return _report(path, header, parts)

    # Read.

    def check(self, path: Path, *, on_progress: OnProgress = _silent) -> BackupReport:
        """Read a whole backup and compare all checksums. Writes nothing."""
        with _opened(path) as file:
            return self._checked(path, file, on_progress)[0]

    def _checked(
        self, path: Path, file: BinaryIO, on_progress: OnProgress, of_all: float = 1.0
    ) -> tuple[BackupReport, list[PartHeader]]:
        """Check a whole backup, which is this share of all that is to be done."""
        reader = ArchiveReader(file, str(path))
        check = _ContentsCheck(str(path), reader.header)
        rows = 0
        for part in reader.rows():
            # A part begins with an empty batch.
            rows = rows + len(part.rows) if part.rows else 0
            check.add(part)
            on_progress(f"checking {part.header.part}", rows, of_all * reader.position / reader.size)
        check.end()
        return _report(path, reader.header, reader.parts), check.headers

    def restore(
        self, path: Path, options: RestoreOptions = _TO_EMPTY, *, on_progress: OnProgress = _silent
    ) -> BackupReport:
        """Put a backup into the stores of the settings. Nothing is written before the whole file is checked.

        Raises ``StoreNotEmpty`` and ``WorkersRunning``. After a killed restore the stores cannot be opened; a
        second restore starts from the beginning.
        """
        self._refuse_memory()
        with _opened(path) as file:
            of_all = 1.0 if options.check else _CHECK_SHARE
            report, headers = self._checked(path, file, on_progress, of_all)
            if options.check:
                return report
            with ExitStack() as opened:
                queue = opened.enter_context(closing(open_queue(self._settings, restoring=True)))
                catalog = opened.enter_context(closing(open_catalog(self._settings, restoring=True)))
                for header in headers:
                    _refuse_unknown(catalog, header)
                _refuse_workers(queue, self._settings)
                catalog_done = _refuse_full(
                    queue, catalog, self._settings, report.id, replace=options.replace
                )
                file.seek(0)
                reader = ArchiveReader(file, str(path))
                target = StoreTarget(queue, None if catalog_done else catalog, queue.now(), _foreign_rows)
                _put(reader, target, on_progress)
                if not catalog_done:
                    _record_restore(catalog, report.id)
                target.end_catalog(reader.header.numbers)
                target.end_queue()
        return report


def _archive(writer: ArchiveWriter, contents: _Contents, on_progress: OnProgress) -> list[PartSummary]:
    begun: PartHeader | None = None
    rows = done = 0
    # Only a person who watches wants to know how much there is.
    total = contents.rows() if on_progress is not _silent else 0
    for part in contents.parts():
        if part.header != begun:
            if begun is not None:
                writer.end()
            writer.begin(part.header)
            begun, rows = part.header, 0
        if part.rows:
            writer.add(part.rows)
            rows += len(part.rows)
            done += len(part.rows)
            on_progress(part.header.part, rows, min(done / total, 1.0) if total else 0.0)
    writer.end()
    writer.finish()
    return writer.parts


def _put(reader: ArchiveReader, target: StoreTarget, on_progress: OnProgress) -> None:
    target.begin()
    part, rows = "", 0
    for batch in reader.rows():
        target.take(batch)
        rows = rows + len(batch.rows) if batch.header.part == part else len(batch.rows)
        part = batch.header.part
        on_progress(part, rows, _CHECK_SHARE + (1 - _CHECK_SHARE) * reader.position / reader.size)
    target.write_collected()


def _report(path: Path, header: Header, parts: list[PartSummary]) -> BackupReport:
    rows = {part.part: part.rows for part in parts}
    return BackupReport(
        path=str(path),
        id=header.id,
        created_at=header.created_at,
        version=header.version,
        queue=header.queue,
        catalog=header.catalog,
        size=path.stat().st_size if path.exists() else 0,
        jobs=rows.get(_JOBS, 0),
        documents=rows.get(f"{_CATALOG}sources", 0),
        parts=tuple(parts),
    )


def _refuse_full(
    queue: Queue, catalog: Catalog, settings: Settings, origin: str, *, replace: bool = False
) -> bool:
    """Refuse stores with rows. True: an interrupted restore of the same origin has filled the catalog."""
    unfinished = queue.restore_unfinished()
    jobs = 0 if unfinished else sum(queue.count(JobQuery(), cap=1).values())
    documents = not catalog.transfer.restore_unfinished() and not catalog.transfer.is_empty()
    if unfinished and documents and _was_restored(catalog, origin):
        return True
    if (jobs or documents) and not replace:
        what = settings.store.masked if jobs else settings.catalog_store.masked
        raise StoreNotEmpty(f"{what} holds {'jobs' if jobs else 'documents'} already")
    return False


def _refuse_workers(queue: Queue, settings: Settings) -> None:
    """Raise ``WorkersRunning`` while workers serve a queue."""
    alive = living_workers(queue, settings.heartbeat_s)
    if alive:
        raise WorkersRunning(
            f"{how_many(len(alive), 'worker')} of {settings.store.masked} reported just now, such as "
            f"{alive[0].worker_id} on {alive[0].host}"
        )


def _record_restore(catalog: Catalog, origin: str) -> None:
    """Record in a catalog the backup or store that the rows came from."""
    catalog.imports.record_imports(_RESTORED, origin, [ImportedRow("", "", "restored", None)])


def _was_restored(catalog: Catalog, origin: str) -> bool:
    """Check whether a catalog was filled from this backup or store."""
    return bool(catalog.imports.imported(_RESTORED, origin, "", [""]))


def restored(job: Job, now: datetime) -> Job:
    """The row of a job in a store restored from a backup: claims of the backed up store are released.

    Claim numbers grow, so that a worker with a claim made after the backup cannot settle here.
    """
    if job.ended:
        return job
    job = replace(job, claim_number=job.claim_number + _RESTORED_STEP)
    if job.lease_until is None:
        return job
    changes = settled(job, released(job, _RESTORED_NOTE), now)
    changes |= {"turn": changes.get("turn") or 0}
    return replace(job, **(changes if job.limit_key is None else gated(job, changes)))


class _Contents(msgspec.Struct, frozen=True):
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
        limits = PartHeader(_LIMITS, ("limit",))
        # Before the jobs: a limit that is set later would hold them again.
        yield PartRows(limits, [])
        yield PartRows(limits, [(_limit_text(limit),) for limit in self.limits])
        jobs = PartHeader(_JOBS, _JOB_COLUMNS)
        yield PartRows(jobs, [])
        for page in self.queue:
            yield PartRows(jobs, [_job_row(job) for job in page])
        pauses = PartHeader(_PAUSES, ("tenant_id", "collection"))
        yield PartRows(pauses, [])
        yield PartRows(pauses, [(scope.tenant_id, scope.collection) for scope in self.pauses])
        schedules = PartHeader(_SCHEDULES, ("schedule",))
        yield PartRows(schedules, [])
        yield PartRows(schedules, [(encode_schedule(schedule).decode(),) for schedule in self.schedules])
        for table in self.catalog.tables():
            header = PartHeader(_CATALOG + table.name, table.columns)
            yield PartRows(header, [])
            for rows in self.catalog.rows(table):
                yield PartRows(header, list(rows))


@contextmanager
def _reading(queue: Queue, catalog: Catalog) -> Iterator[_Contents]:
    """Read both stores: the queue at one moment, the catalog at the next one.

    So a job that has ended in the backup has its documents in the backup. A job that went on between the two
    moments runs again after a restore, and finds its work done.
    """
    pauses = sorted(queue.paused(), key=lambda scope: (scope.tenant_id, scope.collection))
    with queue.dump() as jobs, catalog.transfer.reading() as rows:
        number = sum(queue.tally().counts.values())
        yield _Contents(jobs, pauses, queue.schedules(), queue.limits(), rows, number)


def _job_row(job: Job) -> Row:
    row = list(msgspec.structs.astuple(job))
    for at in _TIMES:
        if row[at] is not None:
            row[at] = row[at].isoformat()
    return row


def _job_of(header: PartHeader, row: Row) -> Job:
    """The job of a row; unknown columns were refused before."""
    try:
        return msgspec.convert(dict(zip(header.columns, row, strict=True)), Job)
    except msgspec.ValidationError as error:
        raise BackupDamaged(f"a row of part {header.part} is not a job: {error}") from error


def _comparable(part: PartRows) -> list[Row]:
    """Rows in a form equal in every store: without the values changed by a restore."""
    header = part.header
    if header.part == _JOBS:
        jobs = [restored(_job_of(header, row), _EPOCH) for row in part.rows]
        return [_job_row(msgspec.structs.replace(job, **_VOLATILE)) for job in jobs]
    if not header.part.startswith(_CATALOG):
        return part.rows
    rows = RestoredRows(_table_of(header).name, header.columns).apply(part.rows)
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
        return decode_schedule(body)
    except (msgspec.MsgspecError, TypeError) as error:
        raise BackupDamaged(f"a row of part {_SCHEDULES} is not a schedule: {error}") from error


def _limit_text(limit: Limit) -> str:
    return encode_limit(msgspec.structs.replace(limit, next_at=None)).decode()


def _limit_of(body: Any) -> Limit:
    try:
        return decode_limit(body)
    except (msgspec.MsgspecError, TypeError) as error:
        raise BackupDamaged(f"a row of part {_LIMITS} is not a limit: {error}") from error


def _check_row(header: PartHeader, row: Row) -> None:
    """Raise ``BackupDamaged`` for a malformed row of the queue."""
    name = header.part
    if name == _JOBS:
        _job_of(header, row)
    elif name in (_SCHEDULES, _LIMITS, _PAUSES):
        if set(header.columns) != _QUEUE_PARTS[name]:
            raise BackupDamaged(f"part {name} has other columns than {', '.join(sorted(_QUEUE_PARTS[name]))}")
        if name == _SCHEDULES:
            _schedule_of(row[0])
        elif name == _LIMITS:
            _limit_of(row[0])
        elif not all(isinstance(value, str) for value in row):
            raise BackupDamaged(f"a row of part {_PAUSES} is not a pause")


def _is_compared(header: PartHeader) -> bool:
    """Check whether a part is equal in both stores after a move: not the record of the move itself."""
    return header.part != f"{_CATALOG}catalog_import"


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
        if name.startswith(_CATALOG):
            if self._transfer is not None and part.rows:
                self._collect(part)
            return
        with self._guard(part.header):
            self._take_of_queue(name, part)

    def _take_of_queue(self, name: str, part: PartRows) -> None:
        if name == _JOBS and self._queue is not None:
            jobs = [restored(_job_of(part.header, row), self._now) for row in part.rows]
            self._insert(self._queue, jobs)
        elif name == _PAUSES and self._queue is not None:
            for tenant_id, collection in part.rows:
                self._queue.pause(Scope(tenant_id, collection))
        elif name == _LIMITS and self._queue is not None:
            for (body,) in part.rows:
                self._queue.put_limit(_limit_of(body))
        elif name == _SCHEDULES and self._queue is not None:
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
        if len(self._rows) >= _ROWS_AT_ONCE or self._bytes >= _BYTES_AT_ONCE:
            self.write_collected()

    def write_collected(self) -> None:
        """Write the rows collected so far."""
        if self._part is not None and self._transfer is not None and self._rows:
            with self._guard(self._part):
                self._transfer.restore(_table_of(self._part), self._rows)
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


def _table_of(header: PartHeader) -> PortableTable:
    """The table of a part of the catalog."""
    return PortableTable(header.part.removeprefix(_CATALOG), header.columns)


def _refuse_unknown(catalog: Catalog, header: PartHeader) -> None:
    """Raise an error for a part or a column unknown to this version."""
    known = _QUEUE_PARTS.get(header.part)
    if known is None and header.part.startswith(_CATALOG):
        catalog.transfer.refuse_unknown(_table_of(header))
    elif known is None or set(header.columns) - known:
        raise BackupDamaged(
            f"the backup has an unknown part or column in {header.part}",
            remedy="Upgrade Penstock to the version that made the backup, or a later one.",
        )


class _ContentsCheck:
    """Checks a backup from the header to the last part, before anything is written. Raises ``BackupDamaged``.

    The checksums tell a damaged file. A file that was changed, and has new checksums, is refused here: with
    ``--replace`` the stores would be empty already when its rows turn out to be no rows.
    """

    def __init__(self, name: str, header: Header) -> None:
        self._name = name
        self.headers: list[PartHeader] = []
        """The parts so far."""
        for number in _NUMBERS:
            value = header.numbers.get(number)
            if value is None or not 0 <= value < _MOST:
                raise self._damaged(f"its header has no usable number {number!r}")

    def add(self, part: PartRows) -> None:
        """Check the next rows. The first ones of a part begin it."""
        header, rows = part.header, part.rows
        if not self.headers or self.headers[-1] != header:
            self._begin(header)
        if not _are_scalars(rows):
            raise self._damaged(f"a row of part {header.part} has a value that no column takes")
        if not header.part.startswith(_CATALOG):
            for row in rows:
                _check_row(header, row)

    def _begin(self, header: PartHeader) -> None:
        if any(header.part == known.part for known in self.headers):
            raise self._damaged(f"part {header.part} is in it twice")
        if not header.columns or len(set(header.columns)) != len(header.columns):
            raise self._damaged(f"part {header.part} has no columns, or one of them twice")
        self.headers.append(header)

    def end(self) -> None:
        """Refuse a backup without the required parts."""
        there = {header.part for header in self.headers}
        for part in _REQUIRED:
            if part not in there:
                raise self._damaged(f"it has no part {part}")

    def _damaged(self, what: str) -> BackupDamaged:
        return BackupDamaged(f"{self._name} is damaged: {what}")


def _are_scalars(rows: list[Row]) -> bool:
    """Check all values at once: one by one, they would cost as much as all the rest of the check."""
    kinds = set(map(type, chain.from_iterable(rows)))
    if not kinds <= _SCALARS:
        return False
    numbers = [value for value in chain.from_iterable(rows) if type(value) is int] if int in kinds else [0]
    return min(numbers) >= -_MOST and max(numbers) < _MOST


@contextmanager
def _foreign_rows(header: PartHeader) -> Iterator[None]:
    """Translate the refusal of a foreign row, such as one without a required value."""
    try:
        yield
    except Exception as error:  # each engine refuses wrong values in its own way
        if isinstance(error, PenstockError) and not isinstance(error, StatementRefused):
            raise
        raise BackupDamaged(
            f"a row of part {header.part} cannot be restored: {error}",
            remedy="The stores hold a part of this backup only. Restore another one into them.",
        ) from error


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    with _file_errors(path):
        file = path.open("rb")
    with file:
        yield file


@contextmanager
def _new_file(path: Path) -> Iterator[BinaryIO]:
    """A private file, renamed to the final path once complete. After an error nothing is left."""
    partial = path.with_name(f".{path.name}{_PARTIAL}")
    with _file_errors(path):
        descriptor = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with io.BufferedRandom(io.FileIO(descriptor, "r+"), 1 << 20) as file:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreUnavailable(
                f"another backup is being written to {path}", remedy="Wait until that backup has ended."
            ) from None
        try:
            os.ftruncate(descriptor, 0)
            os.fchmod(descriptor, 0o600)
            yield file
            with _file_errors(path):
                partial.replace(path)
                _sync_directory(path.parent)
        except BaseException:
            partial.unlink(missing_ok=True)
            # Closed without a flush: writing the rest would fail again.
            file.raw.close()
            raise


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _refuse_other_file(path: Path) -> None:
    """Refuse to replace a file other than a backup."""
    with _file_errors(path):
        if not path.parent.is_dir():
            raise FileNotFoundError(errno.ENOENT, "there is no such directory", str(path.parent))
        if path.exists() and not _may_replace(path):
            raise InvalidRequest(
                f"{path} exists and is not a backup", remedy="Choose another file, or a directory."
            )


def _may_replace(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(FIRST_LINE)) in (b"", FIRST_LINE)


def _rotate(made: BackupReport, directory: Path, keep: int) -> Iterator[str]:
    """Remove all but the newest backups of the same stores from a directory."""
    named = sorted(path for path in directory.iterdir() if _OWN_NAME.fullmatch(path.name))
    found = [path for path in named if _stores_of(path) == (made.queue, made.catalog)]
    for path in found[: max(0, len(found) - keep)]:
        path.unlink(missing_ok=True)
        yield str(path)


def _stores_of(path: Path) -> tuple[str, str] | None:
    """The stores in a backup's header; None for an unreadable file, which is kept."""
    try:
        with path.open("rb") as file:
            header = ArchiveReader(file, str(path)).header
    except (OSError, BackupDamaged, SchemaMismatch):
        return None
    return header.queue, header.catalog


def _abandoned_files(directory: Path) -> Iterator[Path]:
    """Partial files of a directory without a writing process."""
    for path in directory.glob(f".*{_SUFFIX}{_PARTIAL}"):
        try:
            with path.open("rb") as file:
                fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            continue
        yield path


@contextmanager
def _file_errors(path: Path) -> Iterator[None]:
    """Translate errors of the file of a backup."""
    try:
        yield
    except OSError as error:
        message = f"{path}: {error.strerror or error}"
        match error.errno:
            case errno.ENOSPC | errno.EDQUOT | errno.EFBIG:
                raise DiskFull(message, remedy="Free some space, or choose another disk.") from error
            case errno.EACCES | errno.EPERM | errno.EROFS:
                raise StoreDenied(message, remedy="Choose a file that this user may use.") from error
            case errno.ENOENT:
                raise BackupDamaged(message, remedy="Check the path.") from error
            case _:
                raise StoreUnavailable(message, remedy="Choose another file.") from error


class MoveResult(msgspec.Struct, frozen=True):
    """Parts of the source, and the names of those that differ in the target; None: not compared."""

    parts: list[PartSummary]
    differing: list[str] | None


class OpenStores(msgspec.Struct, frozen=True):
    """The stores of some settings."""

    settings: Settings
    queue: Queue
    catalog: Catalog


def source_settings(address: str, catalog: str | None, target: Settings) -> Settings:
    """The settings of a source: the address of a queue, and of a catalog in another store."""
    url = StoreUrl(address)
    if not url.scheme:
        path = Path(address).expanduser().absolute()
        url = StoreUrl(f"jsonl://{path}" if os.path.isdir(path) else f"sqlite:///{path}")  # noqa: PTH112 - it never raises
    if url.engine not in ("sqlite", "postgres", "jsonl", "redis"):
        remedy = "Give a file, or a URL of an engine that outlives a process."
        raise ImportRefused(f"{url.masked[:200]} is not a store of Penstock", remedy=remedy)
    if url.engine in ("jsonl", "redis") and catalog is None:
        raise ImportRefused(
            f"the documents of {url.masked[:200]} are in another store",
            remedy="Name it: --source-catalog sqlite:////PATH/OF/THE/STATE/penstock.db",
        )
    made = config.load({}, url=url.text, catalog_url=catalog, state_dir=target.state_dir)
    own = {target.store.resolved, target.catalog_store.resolved}
    if own & {made.store.resolved, made.catalog_store.resolved}:
        raise ImportRefused("source and target are the same store", remedy="Name another --url or source.")
    for store in (made.store, made.catalog_store):
        if store.is_file and not os.path.exists(store.path):  # noqa: PTH110 - it never raises
            raise ImportRefused(f"{store.path} does not exist", remedy="Check the path.")
    return made


@contextmanager
def opened(settings: Settings, *, restoring: bool = False) -> Iterator[OpenStores]:
    """Open both stores of some settings."""
    with ExitStack() as stack:
        queue = stack.enter_context(closing(open_queue(settings, restoring=restoring)))
        catalog = stack.enter_context(closing(open_catalog(settings, restoring=restoring)))
        yield OpenStores(settings, queue, catalog)


def count_rows(source: OpenStores, on_jobs: OnJobs) -> MoveResult:
    """Read all rows of a source, and write nothing."""
    return MoveResult(_summaries(source, on_jobs), None)


def move(source: OpenStores, target: OpenStores, on_jobs: OnJobs) -> MoveResult:
    """Put all rows of a source into an empty target, and compare them. A second move changes nothing."""
    _refuse_workers(source.queue, source.settings)
    _refuse_workers(target.queue, target.settings)
    name = source.settings.store.masked
    if _was_restored(target.catalog, name) and not target.queue.restore_unfinished():
        parts = _summaries(source, lambda jobs, _: on_jobs(jobs, _BEFORE))
        return MoveResult(parts, None)
    done = _refuse_full(target.queue, target.catalog, target.settings, name)
    put_in = StoreTarget(target.queue, None if done else target.catalog, target.queue.now())
    put_in.begin()
    with _reading(source.queue, source.catalog) as contents:
        parts = _checked(contents.parts(), on_jobs, put_in)
        if not done:
            _record_restore(target.catalog, name)
        put_in.end_catalog(contents.catalog.numbers)
        put_in.end_queue()
    return MoveResult(parts, _differing(parts, _summaries(target)))


def compare(source: OpenStores, target: OpenStores) -> MoveResult:
    """Compare all rows of both, part by part."""
    parts = _summaries(source)
    return MoveResult(parts, _differing(parts, _summaries(target)))


def empty(source: OpenStores) -> None:
    """Delete all rows of a source."""
    for store in (source.catalog.transfer, source.queue):
        store.begin_restore()
    source.catalog.transfer.end_restore({"row": 0, "change": 0})
    source.queue.end_restore()


def _summaries(store: OpenStores, on_jobs: OnJobs = lambda _jobs, _reason: None) -> list[PartSummary]:
    with _reading(store.queue, store.catalog) as contents:
        return _checked(contents.parts(), on_jobs)


def _checked(
    parts: Iterator[PartRows], on_jobs: OnJobs, target: StoreTarget | None = None
) -> list[PartSummary]:
    """Put parts into a target, if there is one, and sum them up."""
    sums: dict[str, RowChecksum] = {}
    for part in parts:
        name = part.header.part
        if target is not None:
            target.take(part)
        if _is_compared(part.header):
            sums.setdefault(name, RowChecksum()).add(_comparable(part))
        if name == _JOBS:
            on_jobs([_job_of(part.header, row) for row in part.rows], None)
    if target is not None:
        target.write_collected()
    return [checksum.summary(name) for name, checksum in sums.items()]


def _differing(source: list[PartSummary], target: list[PartSummary]) -> list[str]:
    there = {part.part: part for part in target}
    return [part.part for part in source if there.get(part.part) != part]
