"""Members: files inside files, read from their container whenever they are needed.

Containers are mails, archives and PDFs. A member may be a container itself.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, cast

import msgspec

from penstock import errors
from penstock.errors import (
    DocumentDamaged,
    DocumentTooLarge,
    PermanentFailure,
    UnreadableDocument,
    UnsupportedType,
)
from penstock.pipeline.extract import file_types
from penstock.pipeline.extract.charset import SNIFFED
from penstock.pipeline.extract.member_names import MemberNames
from penstock.pipeline.extract.protocol import Attachment, Content, ExtractLimits
from penstock.pipeline.walk.no_links import BehindLink, open_file
from penstock.queue.payloads import is_off_disk

if TYPE_CHECKING:
    from penstock.catalog.protocol import CatalogSnapshot
    from penstock.catalog.values import Place, PublishedPath
    from penstock.pipeline.pipeline import Pipeline


MAX_DEPTH = 4
"""Containers around a file: an archive in a mail in an archive has two."""

NOT_READ = "ERR_NOT_READ"
FAILURE_CODES = {NOT_READ: "Wait for the job; if it was cancelled, run `penstock index` again."}


class ContainerFile(msgspec.Struct, frozen=True):
    """The file on the disk above a path: a file inside ``/inbox/mail.eml`` has a path below it.

    No folder can lie below a file. So the disk alone says whether a path is one of a file or of a member.
    """

    path: str
    size: int
    mtime_ns: int


_CONTAINERS = frozenset(["mail", "mailbox", "outlook", "archive", "pdf"])


def may_hold_members(name: str) -> bool:
    """Check whether a file of this name may be a container: a mail, an archive or a PDF."""
    if file_types.is_compressed_name(name):
        name = file_types.uncompressed_name(name)
    file_type = file_types.by_name(name)
    return file_type is not None and file_type.extractor in _CONTAINERS


def container_of(path: str, *, any_name: bool = False) -> ContainerFile | None:
    """The file which contains the member with this path; None if no container is above the path.

    A file that took the place of a folder is no container, unless its name is one of a container.
    ``any_name``: for a delivered file, which has another name where it is read.
    """
    if is_off_disk(path):
        return None
    try:
        os.lstat(path)
    except NotADirectoryError:
        found = _first_above(path)
        return found if found is not None and (any_name or may_hold_members(found.path)) else None
    except OSError:
        return None
    return None


def _first_above(path: str) -> ContainerFile | None:
    above = path.rpartition("/")[0]
    while above:
        try:
            found = os.lstat(above)
        except NotADirectoryError:
            above = above.rpartition("/")[0]
            continue
        except OSError:
            return None
        regular = stat.S_ISREG(found.st_mode)
        return ContainerFile(above, found.st_size, found.st_mtime_ns) if regular else None
    return None


def published_members(
    snapshot: CatalogSnapshot, place: Place, path: str, since: datetime
) -> list[PublishedPath]:
    """Members at or below a path published at this time or later."""
    found = snapshot.published_below_dots(place, path, since)
    return [one for one in found if container_of(one.path) is not None]


def on_disk(path: str) -> bool:
    """Check whether a file, or the container of a member, exists."""
    return os.path.lexists(path) or container_of(path) is not None


_HASHED_AT_ONCE = 1 << 20


class FileContent(msgspec.Struct, frozen=True):
    """A file's bytes, of a large text only the first, with size and modification time at opening.

    A member has the time of its container.
    """

    data: bytes
    size: int
    mtime_ns: int
    depth: int = 0
    """Number of containers around the file."""


def read_file(
    path: str,
    limits: ExtractLimits,
    skip: Callable[[os.stat_result], bool],
    *,
    delivered: bool = False,
    name: str | None = None,
) -> FileContent | None:
    """Read a file; None if ``skip`` returns True for the status of the open file.

    Neither the file nor a folder above it may be a link by now: a walk follows none, and the paths of
    documents have none. ``delivered``: a link is refused as one out of the folders that a sender may use.
    ``name``: the name that decides the type, if it is not the path. Raises DocumentTooLarge for a file that
    is larger than the limit and cannot be read in part.
    """
    try:
        fd = open_file(path)
    except BehindLink:
        if delivered:
            raise PermanentFailure(f"{path} has become a link", code="ERR_OUTSIDE_RAG") from None
        raise behind_link(path) from None
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise UnsupportedType(f"{path} is not a regular file")
        if skip(status):
            return None
        # The file may be growing: bytes beyond this size belong to the next change.
        wanted = _bytes_to_read(fd, status.st_size, name or path, limits)
        return FileContent(_bytes(fd, wanted), status.st_size, status.st_mtime_ns)
    finally:
        os.close(fd)


def behind_link(path: str) -> UnsupportedType:
    """The refusal of a path that is a link by now, or below one."""
    return UnsupportedType(f"{path} is a link, or behind one", remedy="Index the target of the link.")


def _bytes(fd: int, size: int) -> bytes:
    """Read without a file object, which would double the cost for small files."""
    data = os.read(fd, size)
    if len(data) == size:
        return data
    parts = [data]
    while parts[-1]:
        size -= len(parts[-1])
        parts.append(os.read(fd, size))
    return b"".join(parts)


def _bytes_to_read(fd: int, size: int, path: str, limits: ExtractLimits) -> int:
    """Number of bytes to read of an open file. The content decides over the name, as in the parser."""
    if size <= min(limits.file_bytes, limits.text_bytes):
        return size
    try:
        extractor = file_types.detect(path, os.pread(fd, SNIFFED, 0)).extractor
        in_part = extractor in file_types.READ_IN_PART
    except UnsupportedType:
        if file_types.may_be_read_in_part(path):
            # Not text. These bytes are enough to refuse it, with a reason, when it is parsed.
            return SNIFFED
        in_part = False
    if not in_part and size > limits.file_bytes:
        raise DocumentTooLarge(f"{path} has {size:,} bytes; the limit is {limits.file_bytes:,}")
    return min(size, limits.text_bytes) if in_part else size


def hash_of(path: str, limits: ExtractLimits) -> str:
    """Content hash of a file of any size, over the bytes that are read; as stored with documents."""
    with os.fdopen(open_file(path), "rb", buffering=0) as file:
        left = os.fstat(file.fileno()).st_size
        with suppress(DocumentTooLarge):
            left = _bytes_to_read(file.fileno(), left, path, limits)
        digest = hashlib.sha256()
        while left > 0 and (read := file.read(min(left, _HASHED_AT_ONCE))):
            digest.update(read)
            left -= len(read)
        return digest.hexdigest()


_ALL = 1 << 30


class MemberState(msgspec.Struct, frozen=True):
    """Size of a member and time of the container, named as in a file's status."""

    st_size: int
    st_mtime_ns: int


class MemberReader:
    """Reads files and members. The last container stays open: requests for members mostly come in a row."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._used = False
        self._open: list[tuple[tuple[object, ...], Container]] = []
        """The container file, then the containers inside it on the way to the last member."""

    def read(
        self,
        path: str,
        skip: Callable[[os.stat_result], bool] = lambda _: False,
        *,
        known_as: str | None = None,
        delivered: bool = False,
        name: str | None = None,
    ) -> FileContent | None:
        """Read a file or a member; None if ``skip`` returns True for size and time.

        ``known_as``: the path whose names count, where a delivered file is read at another. Raises
        FileNotFoundError or NotADirectoryError if there is neither.
        """
        try:
            return read_file(path, self._pipeline.limits, skip, delivered=delivered, name=name)
        except NotADirectoryError:
            container = container_of(path, any_name=True)
            if container is None:
                raise
        self._used = True
        inside = path[len(container.path) :]
        outer_name = (known_as or path).removesuffix(inside)
        key = (container, outer_name)
        if not self._open or self._open[0][0] != key:
            outer = read_file(
                container.path, self._pipeline.limits, lambda _: False, delivered=delivered, name=outer_name
            )
            assert outer is not None
            self._open = [(key, Container(self._pipeline, Content(outer_name, outer.data)))]
        member, depth = self._find(self._open[0][1], inside[1:])
        data = _data(member, path)
        if skip(cast("os.stat_result", MemberState(len(data), container.mtime_ns))):
            return None
        if len(data) > self._pipeline.limits.file_bytes:
            limit = self._pipeline.limits.file_bytes
            raise DocumentTooLarge(f"{path} has {len(data):,} bytes; the limit is {limit:,}")
        # Of a large text only the first bytes are indexed, as of a file.
        read = data[: self._pipeline.limits.text_bytes] if file_types.may_be_read_in_part(path) else data
        return FileContent(read, len(data), container.mtime_ns, depth)

    def close_unused(self) -> None:
        """Free the memory of the last container, unless a member was read since the last call."""
        if not self._used:
            self._open = []
        self._used = False

    def _find(self, container: Container, rest: str) -> tuple[Attachment, int]:
        """The member at a path below a container, and the number of enclosing containers."""
        for depth in range(1, MAX_DEPTH + 1):
            member = container.find(rest)
            if member is None:
                raise FileNotFoundError(rest)
            if member.name == rest:
                return member, depth
            key = (self._open[depth - 1][0], member.name)
            if len(self._open) <= depth or self._open[depth][0] != key:
                del self._open[depth:]
                inner = Container(self._pipeline, Content(member.name, _data(member, member.name)))
                self._open.append((key, inner))
            container, rest = self._open[depth][1], rest[len(member.name) + 1 :]
        raise UnsupportedType(
            f"the file lies inside more than {MAX_DEPTH} others",
            remedy="Unpack the outer files, and index the folder with the inner ones.",
        )


class Container:
    """The members of one container, read in batches."""

    def __init__(self, pipeline: Pipeline, content: Content) -> None:
        self._pipeline = pipeline
        self._content = content
        self._batch: dict[str, Attachment] = {}
        self._numbers: dict[str, int] = {}
        """Number of each member seen so far."""
        self._archive = file_types.is_archive_name(content.name)

    def each(self) -> Iterator[Attachment]:
        """All members in order, a batch in memory."""
        while batch := self._read(len(self._numbers) + 1):
            yield from batch

    def find(self, path: str) -> Attachment | None:
        """The member with this path, or the member above the path."""
        parts = path.split("/")
        names = ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]
        for name in names:
            if name in self._numbers:
                if name not in self._batch:
                    self._read(self._numbers[name])
                return self._batch.get(name)
        while self._read(len(self._numbers) + 1):
            found = next((self._batch[name] for name in names if name in self._batch), None)
            if found is not None:
                return found
        return None

    def _read(self, first: int) -> tuple[Attachment, ...]:
        """Read the batch from this number on; empty after the last."""
        if not self._archive and first > 1:
            return ()
        # Imported here: service.why loads this module for the paths of members.
        from penstock.pipeline.chunk.text import ChunkSizes

        pages = range(first, _ALL) if self._archive else range(1, 2)
        batch = safely_named(self._pipeline.draft(self._content, ChunkSizes(), pages=pages).attachments)
        self._batch = {member.name: member for member in batch}
        self._numbers.update({member.name: number for number, member in enumerate(batch, first)})
        return batch


def safely_named(members: Iterable[Attachment]) -> tuple[Attachment, ...]:
    """Members with safe names, whichever parser gave them. Safe and unique names stay."""
    names = MemberNames()
    return tuple(msgspec.structs.replace(member, name=names.add(member.name)) for member in members)


def _data(member: Attachment, path: str) -> bytes:
    if not member.error:
        return member.data
    error = getattr(errors, member.error, None)
    if isinstance(error, type) and issubclass(error, UnreadableDocument):
        raise error(member.message)
    raise DocumentDamaged(f"{path}: {member.message}")
