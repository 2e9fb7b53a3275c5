"""What one job of item type ``file`` wants, and how that compares with what is known."""

from __future__ import annotations

import os
from typing import NamedTuple

import msgspec

from penstock.catalog.values import Fingerprints, Place
from penstock.catalog.views import Source
from penstock.delivered_file import DeliveredFile, delivered_file_of
from penstock.handlers.context import Context
from penstock.handlers.file_reader import FileContent, read_file
from penstock.payloads import FilePayload
from penstock.pipeline.chunk.protocol import ChunkSizes
from penstock.pipeline.extract import file_types
from penstock.pipeline.fingerprints import outdated
from penstock.pipeline.pipeline import Pipeline, chunk_sizes

HEAD = 4_096
"""Bytes that a file's type is told by."""
_payload = msgspec.json.Decoder(FilePayload).decode


class FileRequest(NamedTuple):
    place: Place
    path: str
    name: str
    """As it is read by type: the path, unless it was said to be of another type than that promises."""
    sizes: ChunkSizes
    fingerprints: Fingerprints
    rebuild: bool
    checksum: bool
    arrival: DeliveredFile | None

    @classmethod
    def by(cls, context: Context, recipe: Pipeline) -> FileRequest:
        payload = _payload(context.claim.payload_json)
        metadata = context.metadata
        sizes = chunk_sizes(payload.chunk_size, payload.chunk_overlap)
        path, arrival = payload.identifier, delivered_file_of(metadata)
        said = arrival.source_type if arrival is not None else None
        name = file_types.named_as(path, said) if said is not None else path
        return cls(
            place=context.place,
            path=path,
            name=name,
            sizes=sizes,
            fingerprints=recipe.fingerprints(name, sizes),
            rebuild=bool(metadata.get("rebuild")),
            checksum=bool(metadata.get("checksum")),
            arrival=arrival,
        )

    @property
    def read_from(self) -> str:
        return self.arrival.read_from if self.arrival is not None else self.path

    def read(self, known: Source | None, most_bytes: int) -> FileContent | None:
        """None: size and time say that nothing changed, and nobody asked for a closer look."""

        def unchanged(status: os.stat_result) -> bool:
            if known is None or self.rebuild or self.checksum:
                return False
            times = (known.size, known.mtime_ns) == (status.st_size, status.st_mtime_ns)
            return times and self.made_of(known, known.content_hash)

        if self.arrival is None:
            return read_file(self.path, most_bytes, unchanged)
        # Whoever brought it was allowed this path as it was then, and not what a link may make of it.
        try:
            return read_file(self.read_from, most_bytes, unchanged, links=False)
        except (FileNotFoundError, NotADirectoryError):
            if known is None or not self._moved_since(known):
                raise
        return read_file(self.path, most_bytes, unchanged, links=False)

    def _moved_since(self, known: Source) -> bool:
        """Another message for the same file was done first. A move is a change of the file's state."""
        sent_at = self.arrival.sent_at if self.arrival is not None else None
        try:
            found = os.lstat(self.path)
        except OSError:
            return False
        same = (found.st_size, found.st_mtime_ns) == (known.size, known.mtime_ns)
        return same and sent_at is not None and sent_at.timestamp() <= found.st_ctime

    def refuse_another_type(self, read: FileContent) -> None:
        if self.arrival is not None and self.arrival.source_type is not None:
            file_types.refuse_other_than(self.arrival.source_type, self.read_from, read.data[:HEAD])

    def made_of(self, known: Source, content_hash: str) -> bool:
        """What is known was made of this content, as it is asked for: nothing has to be read again."""
        published = known.published_id is not None and not known.partial
        # A rename may have given it another suffix that is read the same way.
        made_so = known.file_type == file_types.suffix_of(self.name)
        made_so = made_so and outdated(known.fingerprints, self.fingerprints) != "reading"
        if not published or known.content_hash != content_hash or not made_so:
            return False
        if self.arrival is None:
            return True
        tags, about = self.described(known)
        return tags == known.tags and msgspec.json.decode(about) == msgspec.json.decode(known.metadata)

    def described(self, known: Source | None) -> tuple[tuple[str, ...], str]:
        """Tags and metadata of the new version: those of the one before, unless they are unwanted now."""
        tags, about = (known.tags, known.metadata) if known is not None else ((), "{}")
        if self.arrival is None:
            return tags, about
        old_tags, old = (tags, msgspec.json.decode(about)) if self.arrival.keep else ((), {})
        merged = msgspec.json.encode(old | self.arrival.about).decode()
        return tuple(dict.fromkeys((*old_tags, *self.arrival.tags))), merged
