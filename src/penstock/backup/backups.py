"""The use cases of backups: write one, keep the newest ones, check one, and restore one into any stores."""

from __future__ import annotations

import errno
import fcntl
import io
import os
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from importlib import metadata
from pathlib import Path
from typing import BinaryIO, TypeAlias

import msgspec

from penstock import clock
from penstock.backup import stores
from penstock.backup.archive import (
    FIRST_LINE,
    ArchiveReader,
    ArchiveWriter,
    Header,
    PartHeader,
    PartSummary,
)
from penstock.backup.contents_check import ContentsCheck, foreign_rows
from penstock.backup.stores import StoreTarget
from penstock.catalog.factory import open_catalog
from penstock.catalog.parts import ImportedRow
from penstock.catalog.protocol import Catalog
from penstock.config import Settings
from penstock.errors import (
    BackupDamaged,
    DiskFull,
    InvalidRequest,
    SchemaMismatch,
    StoreDenied,
    StoreNotEmpty,
    StoreUnavailable,
    WorkersRunning,
)
from penstock.named_tuple import NamedTuple
from penstock.queue.factory import open_queue
from penstock.queue.job import JobQuery
from penstock.queue.protocol import Queue
from penstock.service.why import living_workers
from penstock.vocabulary import how_many

SUFFIX = ".backup"
PARTIAL = ".partial"
_OWN_NAME = re.compile(r"penstock-\d{8}-\d{6}-\d{6}\.backup")
_RESTORED = "restore"
"""Kind of the record in a restored catalog: its source is a backup's id or a store's address."""

CHECK_SHARE = 0.15
"""Share of a restore that the check of the file takes."""

OnProgress: TypeAlias = Callable[[str, int, float], None]
"""Called with the name of a part, its rows so far, and the share of the whole that is done."""


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


class RestoreOptions(NamedTuple):
    """``replace``: delete the contents of the stores first. ``check``: read the backup, and write nothing."""

    replace: bool = False
    check: bool = False


TO_EMPTY = RestoreOptions()


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
            path = destination / f"penstock-{now:%Y%m%d-%H%M%S-%f}{SUFFIX}"
        else:
            path = destination
            _refuse_other_file(path)
        report = self._write(path, on_progress)
        if path.parent == destination:
            for abandoned in abandoned_files(destination):
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
            contents = opened.enter_context(stores.reading(queue, catalog))
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
        check = ContentsCheck(str(path), reader.header)
        rows = 0
        for header, batch, _ in reader.rows():
            # A part begins with an empty batch.
            rows = rows + len(batch) if batch else 0
            check.add(header, batch)
            on_progress(f"checking {header.part}", rows, of_all * reader.position / reader.size)
        check.end()
        return _report(path, reader.header, reader.parts), check.headers

    def restore(
        self, path: Path, options: RestoreOptions = TO_EMPTY, *, on_progress: OnProgress = _silent
    ) -> BackupReport:
        """Put a backup into the stores of the settings. Nothing is written before the whole file is checked.

        Raises ``StoreNotEmpty`` and ``WorkersRunning``. After a killed restore the stores cannot be opened; a
        second restore starts from the beginning.
        """
        self._refuse_memory()
        with _opened(path) as file:
            of_all = 1.0 if options.check else CHECK_SHARE
            report, headers = self._checked(path, file, on_progress, of_all)
            if options.check:
                return report
            with ExitStack() as opened:
                queue = opened.enter_context(closing(open_queue(self._settings, restoring=True)))
                catalog = opened.enter_context(closing(open_catalog(self._settings, restoring=True)))
                for header in headers:
                    stores.refuse_unknown(catalog, header)
                refuse_workers(queue, self._settings)
                catalog_done = refuse_full(queue, catalog, self._settings, report.id, replace=options.replace)
                file.seek(0)
                reader = ArchiveReader(file, str(path))
                target = StoreTarget(queue, None if catalog_done else catalog, queue.now(), foreign_rows)
                _put(reader, target, on_progress)
                if not catalog_done:
                    record_restore(catalog, report.id)
                target.end_catalog(reader.header.numbers)
                target.end_queue()
        return report


def refuse_full(
    queue: Queue, catalog: Catalog, settings: Settings, origin: str, *, replace: bool = False
) -> bool:
    """Refuse stores with rows. True: an interrupted restore of the same origin has filled the catalog."""
    unfinished = queue.restore_unfinished()
    jobs = 0 if unfinished else sum(queue.count(JobQuery(), cap=1).values())
    documents = not catalog.transfer.restore_unfinished() and not catalog.transfer.is_empty()
    if unfinished and documents and was_restored(catalog, origin):
        return True
    if (jobs or documents) and not replace:
        what = settings.store.masked if jobs else settings.catalog_store.masked
        raise StoreNotEmpty(f"{what} holds {'jobs' if jobs else 'documents'} already")
    return False


def refuse_workers(queue: Queue, settings: Settings) -> None:
    """Raise ``WorkersRunning`` while workers serve a queue."""
    alive = living_workers(queue, settings.heartbeat_s)
    if alive:
        raise WorkersRunning(
            f"{how_many(len(alive), 'worker')} of {settings.store.masked} reported just now, such as "
            f"{alive[0].worker_id} on {alive[0].host}"
        )


def record_restore(catalog: Catalog, origin: str) -> None:
    """Record in a catalog the backup or store that the rows came from."""
    catalog.imports.record_imports(_RESTORED, origin, [ImportedRow("", "", "restored", None)])


def was_restored(catalog: Catalog, origin: str) -> bool:
    """Check whether a catalog was filled from this backup or store."""
    return bool(catalog.imports.imported(_RESTORED, origin, "", [""]))


def _archive(writer: ArchiveWriter, contents: stores.Contents, on_progress: OnProgress) -> list[PartSummary]:
    begun: PartHeader | None = None
    rows = done = 0
    # Only a person who watches wants to know how much there is.
    total = contents.rows() if on_progress is not _silent else 0
    for header, batch, _ in contents.parts():
        if header != begun:
            if begun is not None:
                writer.end()
            writer.begin(header)
            begun, rows = header, 0
        if batch:
            writer.add(batch)
            rows += len(batch)
            done += len(batch)
            on_progress(header.part, rows, min(done / total, 1.0) if total else 0.0)
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
        on_progress(part, rows, CHECK_SHARE + (1 - CHECK_SHARE) * reader.position / reader.size)
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
        jobs=rows.get(stores.JOBS, 0),
        documents=rows.get(f"{stores.CATALOG}sources", 0),
        parts=tuple(parts),
    )


# Files.


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    with _file_errors(path):
        file = path.open("rb")
    with file:
        yield file


@contextmanager
def _new_file(path: Path) -> Iterator[BinaryIO]:
    """A private file, renamed to the final path once complete. After an error nothing is left."""
    partial = path.with_name(f".{path.name}{PARTIAL}")
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


def abandoned_files(directory: Path) -> Iterator[Path]:
    """Partial files of a directory without a writing process."""
    for path in directory.glob(f".*{SUFFIX}{PARTIAL}"):
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
