"""Members: files inside files, read from their container whenever they are needed.

Containers are mails, archives and PDFs. A member may be a container itself.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import cast

import msgspec

from penstock import errors
from penstock.errors import DocumentDamaged, DocumentTooLarge, UnreadableDocument, UnsupportedType
from penstock.handlers.container_paths import MAX_DEPTH, container_of
from penstock.handlers.file_reader import FileContent, read_file
from penstock.named_tuple import NamedTuple
from penstock.pipeline.chunk.text import ChunkSizes
from penstock.pipeline.extract import file_types
from penstock.pipeline.extract.member_names import MemberNames
from penstock.pipeline.extract.protocol import Attachment, Content
from penstock.pipeline.pipeline import Pipeline

ALL = 1 << 30


class MemberState(NamedTuple):
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
        pages = range(first, ALL) if self._archive else range(1, 2)
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
