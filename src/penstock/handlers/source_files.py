"""Files kept for documents besides the catalog: Markdown and pictures of pages, and uploads.

They are removed with their document: the code that clears leftovers calls ``remove_unused``.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from penstock import clock
from penstock.catalog.protocol import CatalogSnapshot
from penstock.catalog.values import GenerationState, NewPage, Place, Source
from penstock.config import Settings
from penstock.errors import UnsupportedType
from penstock.pipeline.extract import file_types
from penstock.pipeline.web import urls
from penstock.pipeline.web.urls import FetchedPage, FetchLimits, PageLinks, Validators
from penstock.queue.payloads import LIBRARIES, is_off_disk
from penstock.state_directory import make_private

if TYPE_CHECKING:
    from penstock.pipeline.web.fetch import Fetcher


SUFFIX = "_nohf.md"
_LONGEST_PATH = 1_000
"""Characters of a path that the catalog keeps."""
_HASH_CHARS = 16


class PageFiles:
    """Files with the Markdown of recognized pages in one directory. Without a directory nothing is written.

    The file of a page is ``SOURCE_ID/CONTENT/NUMBER_nohf.md``, where CONTENT begins the hash of the source's
    bytes: pages of the version in search are not replaced while the next one is read.
    """

    def __init__(self, directory: str | None) -> None:
        self._directory = Path(directory) if directory else None

    def keep(self, source_id: str, content_hash: str, page: NewPage) -> NewPage:
        """Write the text of a recognized page; returns the page with the path of the file.

        A file that cannot be written costs a warning, not the page.
        """
        if self._directory is None or page.text is None or not page.engine:
            return page
        path = self._folder(source_id) / content_hash[:_HASH_CHARS] / f"{page.number:04}{SUFFIX}"
        try:
            if len(str(path)) > _LONGEST_PATH:
                raise OSError(0, f"the path has more than {_LONGEST_PATH:,} characters")
            _write_atomically(path, page.text)
        except OSError as error:
            warning = f"its Markdown could not be written below {self._directory}: {error.strerror}"
            return msgspec.structs.replace(page, warnings=(*page.warnings, warning))
        return msgspec.structs.replace(page, file_path=str(path))

    def remove_unused(self, snapshot: CatalogSnapshot, source_ids: Collection[str]) -> None:
        """Remove the files of versions neither in search nor being read."""
        if self._directory is None:
            return
        import shutil  # takes a while to load

        for source_id in filter(None, source_ids):
            folder = self._folder(source_id)
            if not folder.is_dir():
                continue
            used = {
                document.content_hash[:_HASH_CHARS]
                for document in snapshot.generations(source_id)
                if document.current or document.state is GenerationState.BUILDING
            }
            for version in folder.iterdir():
                if version.name not in used:
                    shutil.rmtree(version, ignore_errors=True)
            with suppress(OSError):  # another version is still there
                folder.rmdir()

    def _folder(self, source_id: str) -> Path:
        assert self._directory is not None
        return self._directory / re.sub(r"[^A-Za-z0-9-]", "_", source_id)


def _write_atomically(path: Path, text: str) -> None:
    """Write a file atomically: a reader, also after a crash, sees the old or the new content."""
    make_private(path.parent)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n") as file:
            file.write(text if text.endswith("\n") else text + "\n")
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise


_BY_MEDIA_TYPE = {
    "text/html": "html",
    "application/xhtml+xml": "html",
    "text/markdown": "md",
    "text/x-markdown": "md",
    "application/pdf": "pdf",
    "application/zip": "zip",
    "application/x-zip-compressed": "zip",
}
_UNSPECIFIC = frozenset(["", "text/plain", "application/octet-stream", "binary/octet-stream"])
_UNICODE = frozenset(["", "utf-8", "utf8", "us-ascii"])
_HOSTS = "hosts"
_WAIT_STEP_S = 0.5
_LONGEST_TURN_S = 300.0


class FetchedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A fetched page or archive, and the path of the content."""

    url: str
    checked_at: datetime
    """Time at which the server was last asked for it."""
    body: str
    """Path of the content."""
    size: int
    mtime_ns: int
    validators: Validators = Validators()
    page: PageLinks = PageLinks()

    @property
    def intact(self) -> bool:
        """True while the stored content is unchanged, by size and time."""
        try:
            found = Path(self.body).stat()
        except OSError:
            return False
        return (found.st_size, found.st_mtime_ns) == (self.size, self.mtime_ns)


class FetchedFiles:
    """The fetched files of one machine: web pages and archives. ``directory`` is created with the first one.

    Each belongs to one document and goes with it. A page is fetched again only if its server says that it has
    changed. Of a missing or damaged file nothing is lost: the page is fetched as if for the first time.
    """

    def __init__(self, directory: str, limits: FetchLimits, *, delay_s: float = 0.0) -> None:
        """``delay_s``: least time between two requests to one host."""
        self._directory = Path(directory)
        self._limits = limits
        self._delay_s = delay_s

    @property
    def directory(self) -> Path:
        """Directory with all contents."""
        return self._directory

    @cached_property
    def fetcher(self) -> Fetcher:
        # Most processes fetch nothing, and need no HTTP client.
        from penstock.pipeline.web.fetch import Fetcher

        return Fetcher(self._limits)

    def find(self, place: Place, path: str) -> FetchedFile | None:
        """The stored content of a document; None if missing or damaged."""
        try:
            # A decoder of the module would evaluate the annotations in each command.
            found = msgspec.json.decode(self._record(place, path).read_bytes(), type=FetchedFile)
        except (OSError, msgspec.MsgspecError):
            return None
        return found if found.intact else None

    def fetch(
        self,
        place: Place,
        path_of: Callable[[str], str],
        url: str,
        before: Callable[[str], None] = lambda _: None,
    ) -> FetchedFile:
        """Fetch a page, unless the server reports the stored one as current.

        ``path_of``: path of the document for an address; a redirect leads to another one. Raises
        UnsupportedType for content that is not read, and the errors of ``Fetcher.get``.
        """

        def validators(address: str) -> Validators:
            known = self.find(place, path_of(address))
            return known.validators if known is not None else Validators()

        answer = self.fetcher.get(url, validators, before=before)
        path = path_of(answer.url)
        if answer.body is None:
            known = self.find(place, path)
            if known is not None:
                return self._note(place, path, msgspec.structs.replace(known, checked_at=clock.now()))
            # Removed meanwhile.
            answer = self.fetcher.get(answer.url, before=before)
        return self._store(place, path, answer)

    def _store(self, place: Place, path: str, answer: FetchedPage) -> FetchedFile:
        # Its parser of HTML is needed for new pages only.
        from penstock.pipeline.web.urls import read_links

        data, suffix = _as_unicode(answer), _suffix(answer)
        page = read_links(answer.url, data) if suffix == "html" else PageLinks()
        if "noindex" in answer.robots or "none" in answer.robots:
            page = msgspec.structs.replace(page, noindex=True)
        record = self._record(place, path)
        body = record.with_suffix(f".{suffix}")
        make_private(record.parent)
        if not _same(body, data):
            _write(body, data)
        status = body.stat()
        found = FetchedFile(
            url=answer.url,
            checked_at=clock.now(),
            body=str(body),
            size=status.st_size,
            mtime_ns=status.st_mtime_ns,
            validators=answer.validators,
            page=page,
        )
        return self._note(place, path, found)

    def _note(self, place: Place, path: str, found: FetchedFile) -> FetchedFile:
        _write(self._record(place, path), msgspec.json.encode(found))
        return found

    def archive_place(self, place: Place, path: str, name: str) -> Path:
        """Path of an uploaded archive of a library, which a job takes with ``take``."""
        suffix = file_types.suffix_of(name)
        if file_types.is_compressed_name(name):
            suffix = ".".join(
                filter(None, (file_types.suffix_of(file_types.uncompressed_name(name)), suffix))
            )
        return self._record(place, path).with_suffix(f".{suffix}")

    def take(self, place: Place, path: str, archive: str) -> None:
        """Record an uploaded archive as the archive of a library; removed with the library's documents."""
        status = Path(archive).stat()
        found = FetchedFile(
            url="", checked_at=clock.now(), body=archive, size=status.st_size, mtime_ns=status.st_mtime_ns
        )
        self._note(place, path, found)

    def remove(self, place: Place, path: str, *, asked_at: datetime | None = None) -> None:
        """Remove the stored content of a document.

        An archive whose job has not taken it yet stays, unless it was uploaded before ``asked_at``.
        """
        record = self._record(place, path)
        taken = self.find(place, path)
        for file in record.parent.glob(f"{record.stem}.*"):
            with suppress(OSError):
                recorded = file == record or (taken is not None and taken.body == str(file))
                if recorded or not _is_waiting(file, asked_at):
                    file.unlink()
        with suppress(OSError):
            record.parent.rmdir()

    def remove_unused(self, snapshot: CatalogSnapshot, source_ids: Collection[str]) -> None:
        """Remove the content of removed documents, and archives without documents."""
        if not self._directory.is_dir():
            return
        for source_id in filter(None, source_ids):
            source = snapshot.get(source_id)
            if source is None or source.live or not is_off_disk(source.path):
                continue
            self.remove(source.place, source.path)
            version = _version_of(source.path)
            if version is not None and not _has_documents(snapshot, source.place, version):
                self.remove(source.place, version)

    def wait_turn(self, host: str, delay_s: float, checkpoint: Callable[[], None] = lambda: None) -> None:
        """Wait until the host may be asked again, after the last request of any process of this machine.

        ``checkpoint`` is called now and then, and may end the wait by an error.
        """
        delay_s = max(delay_s, self._delay_s)
        if not delay_s:
            return
        turn = self._reserve_turn(host, delay_s)
        while (left := turn - clock.now().timestamp()) > 0:
            checkpoint()
            time.sleep(min(left, _WAIT_STEP_S))

    def _reserve_turn(self, host: str, delay_s: float) -> float:
        """The time of the next free turn, which is taken."""
        file = self._directory / _HOSTS / hashlib.sha256(host.encode()).hexdigest()[:32]
        make_private(file.parent)
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            now, text = clock.now().timestamp(), os.pread(descriptor, 40, 0)
            try:
                turn = float(text)
            except ValueError:
                turn = now
            # A turn too far ahead comes from a clock that was set back, or from a process that gave up.
            turn = now if turn > now + _LONGEST_TURN_S else max(turn, now)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{turn + delay_s:.6f}".encode(), 0)
            return turn
        finally:
            os.close(descriptor)

    def _record(self, place: Place, path: str) -> Path:
        digest = hashlib.sha256(
            "\n".join((place.tenant_id, place.collection, place.branch, path)).encode()
        ).hexdigest()
        return self._directory / digest[:2] / f"{digest[2:42]}.json"


def _is_waiting(file: Path, asked_at: datetime | None) -> bool:
    """Tell whether a file is an archive uploaded after the request to remove the library."""
    if not file_types.is_archive_name(file.name):
        return False
    return asked_at is None or file.stat().st_mtime > asked_at.timestamp()


def _version_of(path: str) -> str | None:
    """Path of the library version above a file."""
    if not path.startswith(LIBRARIES):
        return None
    name, _, rest = path[len(LIBRARIES) :].partition("/")
    return f"{LIBRARIES}{name}/{rest.partition('/')[0]}"


def _has_documents(snapshot: CatalogSnapshot, place: Place, root: str) -> bool:
    after = ""
    while page := snapshot.known(place, root, after=after, limit=100):
        if any(one.published_id is not None or one.building_id is not None for one in page):
            return True
        after = page[-1].path
    return False


def _suffix(answer: FetchedPage) -> str:
    """The suffix for this content, by media type and by the name in the address."""
    name = (answer.suggested_name or answer.url.partition("?")[0]).rpartition("/")[2].lower()
    by_type = _BY_MEDIA_TYPE.get(answer.media_type)
    known = file_types.by_name(name)
    suffix = file_types.suffix_of(name)
    if known is not None and file_types.is_compressed_name(name):
        suffix = ".".join(filter(None, (file_types.suffix_of(file_types.uncompressed_name(name)), suffix)))
    if by_type is not None and not (by_type == "zip" and known == file_types.ZIP):
        return by_type
    if file_types.is_binary_name(name) and not file_types.is_archive_name(name):
        raise UnsupportedType(f"{urls.shown(answer.url)} is of type {answer.media_type or 'unknown'}")
    if known is not None and known.extractor != "html":
        return suffix
    if answer.media_type in _UNSPECIFIC or answer.media_type.startswith("text/"):
        return "txt"
    raise UnsupportedType(f"{urls.shown(answer.url)} is of type {answer.media_type}")


def _as_unicode(answer: FetchedPage) -> bytes:
    """The content; text in another declared encoding is converted to UTF-8."""
    data = answer.body or b""
    is_text = answer.media_type.startswith("text/") or "html" in answer.media_type
    if not is_text or answer.charset.lower() in _UNICODE or data.startswith((b"\xef\xbb\xbf", b"\xff\xfe")):
        return data
    try:
        return data.decode(answer.charset).encode()
    except (LookupError, UnicodeError):
        return data


def _same(file: Path, data: bytes) -> bool:
    try:
        return file.stat().st_size == len(data) and file.read_bytes() == data
    except OSError:
        return False


def _write(file: Path, data: bytes) -> None:
    """Write a file atomically: complete or absent after a crash."""
    import tempfile  # takes a while to load

    descriptor, name = tempfile.mkstemp(dir=file.parent, prefix=f"{file.stem}.")
    try:
        with os.fdopen(descriptor, "wb") as made:
            made.write(data)
        Path(name).replace(file)
    except BaseException:
        with suppress(OSError):
            Path(name).unlink()
        raise


IMAGES = "page_images"
"""Folder of the state directory with pictures of pages."""
_UPLOADS = "uploads"
"""Folder of the state directory with uploaded files, unless the settings name another."""
FETCHED = "web"
"""Folder of the state directory with contents of web pages."""
_LOCK = ".lock"


class UnusedFiles(Protocol):
    """Files belonging to documents, and removed with them."""

    def remove_unused(self, snapshot: CatalogSnapshot, source_ids: Collection[str]) -> None:
        """Remove files of versions neither in search nor being read."""


class SourceFiles(msgspec.Struct, frozen=True):
    """Directories with files of documents; None: there are none."""

    pages: str | None = None
    images: str | None = None
    uploads: str | None = None
    fetched: FetchedFiles | None = None

    @classmethod
    def of(cls, settings: Settings) -> SourceFiles:
        """The directories of the settings."""
        return cls(
            settings.pages_dir,
            str(settings.state_dir / IMAGES),
            os.path.realpath(uploads_directory(settings)),
            fetched_files(settings),
        )

    def remove_unused(self, snapshot: CatalogSnapshot, source_ids: Collection[str]) -> None:
        """Remove files of versions neither in search nor being read."""
        PageFiles(self.pages).remove_unused(snapshot, source_ids)
        PageFiles(self.images).remove_unused(snapshot, source_ids)
        if self.fetched is not None:
            self.fetched.remove_unused(snapshot, source_ids)
        if self.uploads is None or not Path(self.uploads).is_dir():
            return
        for source_id in filter(None, source_ids):
            source = snapshot.get(source_id)
            if source is not None and not source.live and source.path.startswith(self.uploads + "/"):
                _remove_upload(Path(self.uploads), source)


NO_FILES = SourceFiles()


def uploads_directory(settings: Settings) -> Path:
    """The directory with uploaded files."""
    return Path(settings.uploads_dir) if settings.uploads_dir else settings.state_dir / _UPLOADS


def fetched_files(settings: Settings) -> FetchedFiles:
    """The files fetched from the web, with the limits of the settings."""
    limits = FetchLimits(
        max_bytes=settings.max_file_mb << 20, timeout_s=settings.web_timeout_s, private=settings.web_private
    )
    return FetchedFiles(str(settings.state_dir / FETCHED), limits, delay_s=settings.web_delay_s)


class UploadsLock:
    """The lock under which uploaded files are put in place or removed, while it is held.

    The file has the name of the server that changed the files last; empty, after a removal by a worker. So a
    server knows when the sizes that it has counted are not those of the files any more.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @property
    def changed_by(self) -> str:
        """Who changed the files last."""
        return os.pread(self._descriptor, 256, 0).decode("ascii", "replace")

    def note_change(self, name: str = "") -> None:
        """Note who changes the files."""
        if name != self.changed_by:
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, name.encode("ascii"), 0)


@contextmanager
def uploads_lock(directory: Path) -> Iterator[UploadsLock]:
    """Hold the lock under which uploaded files are put in place or removed."""
    descriptor = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield UploadsLock(descriptor)
    finally:
        os.close(descriptor)


def _remove_upload(directory: Path, source: Source) -> None:
    """Remove the file of a removed document, unless replaced by a later upload."""
    path = Path(source.path)
    with uploads_lock(directory) as lock, suppress(OSError):
        status = path.stat(follow_symlinks=False)
        known = ((source.size, source.mtime_ns), (source.failure.size, source.failure.mtime_ns))
        if (status.st_size, status.st_mtime_ns) not in known:
            return
        # Before: a crash in between makes servers count again, and never leaves bytes that are not there.
        lock.note_change()
        path.unlink()
        for folder in path.parents:
            if folder == directory:
                break
            folder.rmdir()  # ends at a folder with other files
