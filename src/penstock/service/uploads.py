"""Uploaded files: received beside their place, put there whole, and indexed as sources of their tenant.

A file is ``TENANT/COLLECTION/BRANCH/NAME`` below the directory, and goes with its document. While it is
received it is in ``.incoming/OWNER``, where the next start of the same server finds what a crash left.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

import msgspec

from penstock import clock
from penstock.catalog.values import Place
from penstock.errors import (
    DiskFull,
    InvalidName,
    InvalidRequest,
    PenstockError,
    RequestTooLarge,
    TooManyUploads,
    UploadQuotaReached,
)
from penstock.handlers.source_files import FetchedFiles, UploadsLock, uploads_lock
from penstock.pipeline.extract import file_types
from penstock.queue.payloads import library_path, parse_requirement
from penstock.service.documents import Documents
from penstock.service.job_views import JobRecords, SubmitRecord
from penstock.service.jobs import Jobs
from penstock.service.libraries import version_in_name
from penstock.service.requests import Submission
from penstock.service.shares import NOBODY, Shares, Taker
from penstock.state_directory import make_private, private_opener, write_refusal

INCOMING = ".incoming"
_MOST_OPEN, OPEN_PER_KEY, _OPEN_PER_PEER = 128, 32, 64
"""Files received at the same time. Fifty people who share a key and send small files stay below its part."""
_RECOUNT_S = 60.0
"""Time after which the files of a tenant are counted again: a person may have removed some."""
RESERVED_BYTES = 256 << 20
"""Space on the disk that uploads leave free."""
_LONGEST_NAME = 200
"""Bytes of a file's name; file systems allow 255, and a suffix is added while it is received."""
_TENANTS = ".tenants"
"""Folder with a link to each uploaded archive, by tenant: the names of the archives do not show it."""
log = logging.getLogger("penstock.uploads")


class UploadRecord(SubmitRecord, frozen=True, kw_only=True):
    """The answer to an upload: as to a submission, with the path and size of the file."""

    path: str
    size: int


class Uploads:
    """Uploaded files of one server. ``owner`` tells servers with the same directory apart."""

    def __init__(
        self,
        documents: Documents,
        jobs: Jobs,
        directory: Path,
        *,
        owner: str,
        most_bytes: int,
        quota: UploadQuota,
    ) -> None:
        self._documents = documents
        self._jobs = jobs
        # The paths of documents have no links.
        self.directory = Path(os.path.realpath(directory))
        self._incoming = self.directory / INCOMING / hashlib.sha256(owner.encode()).hexdigest()[:16]
        self.most_bytes = most_bytes
        self._quota = quota
        quota.add(self)
        self._shares = Shares(TooManyUploads, total=_MOST_OPEN, per_key=OPEN_PER_KEY, per_peer=_OPEN_PER_PEER)
        self._stamp = clock.new_ids(1)[0]
        """Names this server in the file of the lock; see ``UploadsLock``."""
        self._counted: dict[str, tuple[int, float]] = {}
        """Bytes of a tenant, and the time of their count."""

    def begin(self, name: str, size: int | None, taker: Taker = NOBODY) -> Upload:
        """Open a file for an upload. ``size``: as the sender states it; ``taker``: whom it is counted for."""
        refuse_name(name)
        if size is not None and size > self.most_bytes:
            raise _too_large(self.most_bytes)
        self._shares.take(taker)
        try:
            make_private(self._incoming)
            free = shutil.disk_usage(self._incoming).free
            if free - (size or 0) < RESERVED_BYTES:
                raise DiskFull(f"{free:,} bytes are free in {self.directory}, too few for this file")
            return Upload(self, name, self._incoming / clock.new_ids(1)[0], taker)
        except OSError as error:
            self.ended(taker)
            raise write_refusal(self.directory, error) from None
        except PenstockError:
            self.ended(taker)
            raise

    def ended(self, taker: Taker) -> None:
        """Count the end of an upload."""
        self._shares.give_back(taker)

    def stored_bytes(self, tenant_id: str) -> int:
        """Bytes of all stored files of a tenant."""
        if not self.directory.is_dir():
            return 0
        with uploads_lock(self.directory) as lock:
            self._adopt(lock)
            return self._count(tenant_id)

    def put(self, received: Path, name: str, size: int, options: Mapping[str, Any]) -> UploadRecord:
        """Move a received file to the final path and queue the job. A refusal changes nothing."""
        target, submission = self._plan(received, name, options)
        marker, former = received.with_suffix(".json"), received.with_suffix(".old")
        tenant_id = self._place(options).tenant_id
        with self._quota.lock, uploads_lock(self.directory) as lock:
            more = size - _size(target)
            self._adopt(lock)
            self._quota.refuse(tenant_id, more, own=self, count=lambda: self._count(tenant_id))
            make_private(target.parent)
            with open(marker, "wb", opener=private_opener) as file:
                file.write(msgspec.json.encode(submission))
            with suppress(FileNotFoundError):
                os.link(target, former, follow_symlinks=False)
            received.replace(target)
            try:
                receipt = self._jobs.submit(exact=True, **submission)
            except BaseException:
                if former.exists():
                    former.replace(target)
                else:
                    target.unlink()
                marker.unlink()
                raise
            self._note(tenant_id, target, more)
            marker.unlink()
            former.unlink(missing_ok=True)
        record = JobRecords(self._jobs).receipt(receipt)
        columns = {each: getattr(record, each) for each in record.__struct_fields__}
        return UploadRecord(**columns, path=self._known_as(target, submission), size=size)

    def _plan(self, received: Path, name: str, options: Mapping[str, Any]) -> tuple[Path, Submission]:
        """The final path of a received file, and the submission of the job. Changes nothing."""
        target = self._folder(self._place(options)) / name
        # The directory of uploads belongs to the server, also inside a work tree.
        submission = self._documents.submission(received, **{**options, "project": False})
        payload: dict[str, Any] = {**submission["payload"], "file_path": str(target)}
        submission["payload"] = payload
        return target, submission

    def _adopt(self, lock: UploadsLock) -> None:
        """Forget what was counted before a worker or another server has changed the files.

        To look at each file for each upload would make it the slower, the more files there are.
        """
        if lock.changed_by != self._stamp:
            self._counted.clear()
            lock.note_change(self._stamp)

    def _count(self, tenant_id: str) -> int:
        """Bytes of all stored files of a tenant, under the lock."""
        known = self._counted.get(tenant_id)
        if known is None or clock.elapsed_s() - known[1] > _RECOUNT_S:
            known = self._counted[tenant_id] = self._read_sizes(tenant_id), clock.elapsed_s()
        return known[0]

    def _read_sizes(self, tenant_id: str) -> int:
        folder = self.directory / _folder_name(tenant_id)
        return sum(_size(Path(path, name)) for path, _, names in os.walk(folder) for name in names)

    def _note(self, tenant_id: str, _target: Path, more: int) -> None:
        """Count a stored file."""
        if tenant_id in self._counted:
            found, counted_at = self._counted[tenant_id]
            self._counted[tenant_id] = found + more, counted_at

    def _known_as(self, target: Path, _submission: Submission) -> str:
        """The path of the document."""
        return str(target)

    def _place(self, options: Mapping[str, Any]) -> Place:
        given = {each: options.get(each) for each in ("tenant_id", "collection", "branch")}
        return self._documents.notes.place_of(**given)

    def recover(self) -> None:
        """Clean up after a crash: remove incomplete files, and queue files already moved to their path."""
        if not self._incoming.is_dir():
            return
        for marker in self._incoming.glob("*.json"):
            # A file that is still here was not put in place.
            if not marker.with_suffix("").exists() and not self._queue_again(marker):
                continue
            marker.unlink()
        for left in self._incoming.iterdir():
            if left.suffix != ".json":
                left.unlink()

    def _queue_again(self, marker: Path) -> bool:
        """Queue the job of a moved file. False: not possible now; the next start tries again."""
        try:
            submission = msgspec.json.decode(marker.read_bytes())
            payload = submission["payload"]
            path = payload["file_path"] if "file_path" in payload else payload["source_path"]
        except (msgspec.DecodeError, KeyError, TypeError):
            return True  # killed while it was written, before the file was put in place
        if not os.path.isfile(path):  # noqa: PTH113 - it never raises
            return True
        try:
            self._jobs.submit(exact=True, **submission)
        except PenstockError as error:
            log.warning("an interrupted upload is not queued yet: %s: %s", path, error.message)
            return False
        log.warning("queued an interrupted upload: %s", path)
        return True

    def _folder(self, place: Place) -> Path:
        return self.directory.joinpath(*map(_folder_name, (place.tenant_id, place.collection, place.branch)))


class Upload:
    """A file being received. ``finish`` or ``discard`` ends the upload."""

    def __init__(self, uploads: Uploads, name: str, path: Path, taker: Taker) -> None:
        self._uploads = uploads
        self._taker = taker
        self.name = name
        self._path = path
        self._file: IO[bytes] | None = os.fdopen(
            os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb"
        )
        self.size = 0

    def write(self, data: bytes) -> None:
        """Add bytes to the file."""
        assert self._file is not None
        self.size += len(data)
        if self.size > self._uploads.most_bytes:
            raise _too_large(self._uploads.most_bytes)
        try:
            self._file.write(data)
        except OSError as error:
            raise DiskFull(f"the file cannot be written ({error.strerror})") from None

    def finish(self, **options: Any) -> UploadRecord:
        """Move the file to the final path, and queue the job with these options."""
        assert self._file is not None
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise DiskFull(f"the file cannot be written ({error.strerror})") from None
        return self._uploads.put(self._path, self.name, self.size, options)

    def discard(self) -> None:
        """Close the file, and remove the file unless already moved."""
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):
                file.close()
            self._path.unlink(missing_ok=True)
            self._uploads.ended(self._taker)


class UploadQuota:
    """The quota of the files of each tenant, of all kinds together; None is no limit.

    ``lock`` is held from the count to the end of the change: two uploads at a time would each find the place
    that is left for one.
    """

    def __init__(self, most_bytes: int | None) -> None:
        self.most_bytes = most_bytes
        self.lock = threading.Lock()
        self._kinds: list[Uploads] = []

    def add(self, kind: Uploads) -> None:
        """Count files of this kind as well."""
        self._kinds.append(kind)

    def refuse(self, tenant_id: str, more: int, *, own: Uploads, count: Callable[[], int]) -> None:
        """Refuse files that would exceed the quota. ``count``: bytes of the files of the caller's own kind.

        What makes the files of a tenant smaller is never refused.
        """
        if self.most_bytes is None or more <= 0:
            return
        others = sum(kind.stored_bytes(tenant_id) for kind in self._kinds if kind is not own)
        wanted = count() + others + more
        if wanted > self.most_bytes:
            raise UploadQuotaReached(
                f"the uploads of tenant {tenant_id[:80]!r} would have {wanted:,} bytes, and the quota is "
                f"{self.most_bytes:,}"
            )


def refuse_name(name: str) -> None:
    """Refuse a name other than a plain file name."""
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        size = 0
    if not 1 <= size <= _LONGEST_NAME or not name.isprintable() or name[0] == "." or {*name} & {*"/\\"}:
        raise InvalidName(
            f"name: expected the name of a file, got {name[:80]!a}",
            remedy=f"Use 1 to {_LONGEST_NAME} printable bytes without slashes; a dot must not be the first.",
        )


def _size(path: Path) -> int:
    """Bytes of a file; 0 without the file."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _too_large(most_bytes: int) -> RequestTooLarge:
    """The error for a file above the size limit of workers."""
    return RequestTooLarge(
        f"the file has more than {most_bytes:,} bytes",
        remedy="Send a smaller file, or raise PENSTOCK_MAX_FILE_MB.",
    )


def _folder_name(name: str) -> str:
    """A folder for a tenant, collection or branch: different names give different folders."""
    safe = quote(name, safe=" ")
    if safe.startswith("."):
        safe = "%2E" + safe[1:]
    if len(safe) > _LONGEST_NAME:
        safe = f"{safe[:100]}-{hashlib.sha256(name.encode()).hexdigest()[:32]}"
    return safe


class LibraryUploads(Uploads):
    """Archives of libraries received by one server: one archive for each version.

    They are kept beside downloaded ones, and removed with their version.
    """

    def __init__(
        self,
        documents: Documents,
        jobs: Jobs,
        files: FetchedFiles,
        *,
        owner: str,
        most_bytes: int,
        quota: UploadQuota,
    ) -> None:
        super().__init__(documents, jobs, files.directory, owner=owner, most_bytes=most_bytes, quota=quota)
        self._files = files

    def _plan(self, received: Path, name: str, options: Mapping[str, Any]) -> tuple[Path, Submission]:
        given = dict(options)
        library, version = parse_requirement(given.pop("requirement"))
        if not file_types.is_archive_name(name):
            raise InvalidRequest(
                f"file: expected an archive of a library, got {name[:80]!a}",
                remedy="Send a wheel, a zip or tar file, or name the file: name=mill-1.2.tar.gz.",
            )
        version = version or version_in_name(name, library)
        submission = self._documents.libraries.submission(
            f"{library}=={version}", source=str(received), **given
        )
        place = self._place(options)
        target = self._files.archive_place(place, library_path(library, version), name)
        submission["payload"] = {
            **submission["payload"],
            "source_path": str(target),
            "source_name": name,
        }
        return target, submission

    def _count(self, tenant_id: str) -> int:
        """Bytes of all stored archives of a tenant. There are few, and workers remove them at any time."""
        size = 0
        with suppress(FileNotFoundError), os.scandir(self._links(tenant_id)) as links:
            for link in links:
                try:
                    size += link.stat().st_size
                except FileNotFoundError:
                    os.unlink(link)  # noqa: PTH108 - the archive was removed with its version
        return size

    def _note(self, tenant_id: str, target: Path, _more: int) -> None:
        folder = self._links(tenant_id)
        make_private(folder)
        with suppress(FileExistsError):
            # Relative: the state directory may be moved.
            (folder / target.name).symlink_to(os.path.relpath(target, folder))

    def _links(self, tenant_id: str) -> Path:
        return self.directory / _TENANTS / _folder_name(tenant_id)

    def _known_as(self, _target: Path, submission: Submission) -> str:
        payload = submission["payload"]
        return library_path(payload["library_name"], payload["library_version"])
