"""File requests: the contents of a job for one file, compared with the known source."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from enum import Enum, auto
from pathlib import Path
from typing import Any

import msgspec

from penstock.catalog.rules.phases import EXTRACTING
from penstock.catalog.rules.publication import fails_again, same_content_fails_again
from penstock.catalog.values import Fingerprints, Gate, KnownSource, Place, Source
from penstock.errors import PermanentFailure, UnsupportedType
from penstock.handlers.context import Context
from penstock.handlers.members import FileContent, MemberReader, container_of
from penstock.handlers.missing_files import unchanged_at
from penstock.handlers.reindex import OUTDATED
from penstock.pipeline.chunk.text import ChunkSizes
from penstock.pipeline.draft import keep_reading, outdated, reader_in
from penstock.pipeline.extract import file_types
from penstock.pipeline.pipeline import Pipeline, chunk_sizes
from penstock.pipeline.walk.ignore import FoundFile
from penstock.pipeline.walk.repository import find_repository, normalised_remote, remote_of
from penstock.queue import payloads
from penstock.queue.payloads import (
    ContentOrigin,
    DeliveredFile,
    FilePayload,
    ProjectPayload,
    Walked,
    delivered_file_of,
    is_off_disk,
)


class _Fit(Enum):
    """Fingerprints of a source, compared with those that the file would get now."""

    SAME = auto()
    OTHER_EXTRACTOR = auto()
    """The same, but for entities of an extractor that costs money."""
    NONE = auto()


class FileComparison:
    """The comparison of one walk. ``metadata``: of the job, with requests to read all files."""

    def __init__(
        self,
        pipeline: Pipeline,
        sizes: ChunkSizes,
        metadata: Mapping[str, Any],
        *,
        graph: bool | None = None,
        ocr: bool | None = None,
    ) -> None:
        self._pipeline = pipeline
        self._sizes = sizes
        self._graph = graph
        self._ocr = ocr
        self._rebuild = bool(metadata.get("rebuild"))
        self._checksum = bool(metadata.get("checksum"))
        self._retry_failed = bool(metadata.get(payloads.RETRY_FAILED))
        self._fingerprints: dict[str, Fingerprints] = {}
        self._fits: dict[tuple[str, Fingerprints], _Fit] = {}
        self.other_extractor = 0
        """Unchanged files whose entities are of another extractor, and would be paid for again."""

    @property
    def reads_all(self) -> bool:
        """True if every file is read, also with unchanged size and time."""
        return self._rebuild or self._checksum

    def unchanged(self, found: FoundFile, known: KnownSource, *, moved: bool = False) -> bool:
        """Check whether a file needs no job. ``moved``: the content was just compared."""
        if self._rebuild or (self._checksum and not moved):
            return False
        same = moved or (known.size == found.size and known.mtime_ns == found.mtime_ns)
        if not same or known.published_id is None:
            return False
        fit = self._fit(found, known.fingerprints)
        if fit is _Fit.NONE:
            return False
        self.other_extractor += fit is _Fit.OTHER_EXTRACTOR
        if known.failed_with is None:
            return not known.partial
        # Parts of it failed for good; or newer content did, and this is the former content again.
        return known.building_id is None and self._remembered(found, known)

    def fails_again(self, found: FoundFile, known: KnownSource) -> bool:
        """Check whether the whole file failed before and would fail again."""
        if known.failed_with is None or known.building_id is None or self._checksum:
            return False
        return self._remembered(found, known)

    def member_outdated(self, known: KnownSource, mtime_ns: int) -> bool:
        """Check whether a member must be read although the container is unchanged.

        ``mtime_ns``: the time of the container.
        """
        found = FoundFile(known.path, known.size, mtime_ns)
        failed = msgspec.structs.replace(found, size=known.failed_size or 0)
        return not self.unchanged(found, known) and not self.fails_again(failed, known)

    def _remembered(self, found: FoundFile, known: KnownSource) -> bool:
        if self._rebuild or self._retry_failed:
            return False
        wanted = self._wanted(found.path, reader_in(known.failed_with))
        ways = (wanted, keep_reading(wanted, known.fingerprints))
        return any(
            fails_again(known.failure, found.size, found.mtime_ns, self._pipeline.failure_fingerprint(each))
            for each in ways
        )

    def _fit(self, found: FoundFile, made: Fingerprints) -> _Fit:
        """Compare the fingerprints of a source with those for the file, once per type of file."""
        if found.size > self._pipeline.limits.text_bytes:
            return self._compare(found, made)
        key = file_types.type_key(found.path.rpartition("/")[2]), made
        fit = self._fits.get(key)
        if fit is None:
            fit = self._fits[key] = self._compare(found, made)
        return fit

    def _compare(self, found: FoundFile, made: Fingerprints) -> _Fit:
        wanted = self._wanted(found.path, reader_in(made.ocr))
        wanted = self._pipeline.of_size(wanted, found.path, found.size)
        if self._graph is None:
            wanted = self._pipeline.keep_graph(wanted, made, found.path)
        wanted = current = keep_reading(wanted, made)
        if self._graph is None:
            wanted = self._pipeline.keep_paid_graph(wanted, made)
        if made != wanted:
            return _Fit.NONE
        return _Fit.SAME if wanted is current else _Fit.OTHER_EXTRACTOR

    def _wanted(self, path: str, reader: str | None) -> Fingerprints:
        """Fingerprints for a path, computed once per type. ``reader``: the extractor of a misnamed file."""
        if reader is not None:
            return self._pipeline.fingerprints(path, self._sizes, reader, graph=self._graph, ocr=self._ocr)
        key = file_types.type_key(path.rpartition("/")[2])
        found = self._fingerprints.get(key)
        if found is None:
            found = self._fingerprints[key] = self._pipeline.fingerprints(
                path, self._sizes, graph=self._graph, ocr=self._ocr
            )
        return found


_DECLARED = frozenset(["file_type", "file_hash", "size_bytes"])
_CODE, _NOT_CODE = "code", ("document", "config")
_MARKS = {
    "rust": ("Cargo.toml",),
    "python": ("pyproject.toml", "setup.py", "setup.cfg", "requirements.txt"),
}
_MIXED = "mixed"


def file_mismatches(context: Context, size: int, content_hash: str | None) -> list[str]:
    """Log and return declared facts not true of the file.

    A difference does not stop the job: the index follows the disk, and of two requests for one path that
    became one job only the first one's facts are known.
    ``content_hash`` is SHA-256 in hex; None if only the beginning of the file was read.
    """
    if context.claim.parent_id is not None or _DECLARED.isdisjoint(context.payload):
        # The size that a walk gives its children is an estimate for the display of progress.
        return []
    payload = msgspec.convert(context.payload, FilePayload)
    found = list(_of_file(payload, size, content_hash))
    for mismatch in found:
        context.log.warning("%s is not as declared: %s", payload.file_path, mismatch)
    return found


def _of_file(payload: FilePayload, size: int, content_hash: str | None) -> Iterator[str]:
    if payload.size_bytes not in (None, size):
        yield f"size_bytes: declared {payload.size_bytes:,}, found {size:,}"
    if content_hash is not None and payload.file_hash not in (None, f"sha256:{content_hash}"):
        yield f"file_hash: declared {payload.file_hash}, found sha256:{content_hash}"
    is_code = file_types.is_code_name(payload.file_path)
    if (payload.file_type == _CODE and not is_code) or (payload.file_type in _NOT_CODE and is_code):
        yield f"file_type: declared {payload.file_type}, found {_CODE if is_code else 'no code'}"


def warn_of_mismatches(context: Context, payload: Walked) -> None:
    """Log wrong declared facts of a project."""
    if isinstance(payload, ProjectPayload):
        for mismatch in project_mismatches(payload):
            context.log.warning("%s is not as declared: %s", payload.project_root, mismatch)


def project_mismatches(payload: ProjectPayload) -> Iterator[str]:
    """Declared facts not true of the project's directory."""
    if payload.git_remote is not None:
        repository = find_repository(payload.identifier)
        remote = remote_of(repository) if repository is not None else None
        if remote is None or normalised_remote(remote) != normalised_remote(payload.git_remote):
            yield f"git_remote: declared {payload.git_remote}, found {remote or 'none'}"
    if payload.project_type is not None:
        languages = _languages(payload.identifier)
        actual = languages[0] if len(languages) == 1 else _MIXED
        if languages and payload.project_type != actual:
            yield f"project_type: declared {payload.project_type}, found {actual}"


def _languages(root: str) -> list[str]:
    """Languages with build files in the root."""
    return [name for name, marks in _MARKS.items() if any(Path(root, mark).is_file() for mark in marks)]


_payload = msgspec.json.Decoder(FilePayload).decode


_NOT_OPENED = "ERR_ARCHIVE"
FAILURE_CODES = {_NOT_OPENED: "Index the archive with `penstock index --archives`, or set PENSTOCK_ARCHIVES."}


class FailedBefore(Exception):
    """The file failed before and is unchanged, so the job does not read the file."""


class FileRequest(msgspec.Struct, frozen=True, kw_only=True):
    place: Place
    path: str
    name: str
    """Name that decides the type: the path, unless another type was announced or the origin has a name."""
    sizes: ChunkSizes
    gate: Gate
    graph: bool | None
    """True to extract entities; None: by the setting, and the entities of the known source stay."""
    ocr: bool | None
    """True to read the text of pictures; None: by the setting."""
    fingerprints: Fingerprints
    rebuild: bool
    checksum: bool
    delivered: DeliveredFile | None
    read_with: str
    """Fingerprint of the parser and its limits; a failure with the same one is final."""
    retry_failed: bool
    job_id: str
    keeps_paid: bool
    """Entities that a paid model would be asked for again are kept: nothing in the request is about them."""
    archives: bool
    """Archives, also those inside the file, are opened as folders."""
    origin: ContentOrigin | None = None
    """Where the content of a web page or of a library's file is."""

    @classmethod
    def from_job(
        cls, context: Context, pipeline: Pipeline, origin: ContentOrigin | None = None
    ) -> FileRequest:
        payload = _payload(context.claim.payload_json)
        metadata = context.metadata
        sizes = chunk_sizes(payload.chunk_size, payload.chunk_overlap)
        path, delivered = payload.identifier, delivered_file_of(metadata)
        source_type = delivered.source_type if delivered is not None else None
        name = file_types.named_as(path, source_type) if source_type is not None else path
        fingerprints = pipeline.fingerprints(name, sizes, graph=payload.graph, ocr=payload.ocr)
        name = origin.name if origin is not None else name
        return cls(
            place=context.place,
            path=path,
            name=name,
            sizes=sizes,
            gate=Gate(payload.gate),
            graph=payload.graph,
            ocr=payload.ocr,
            fingerprints=fingerprints,
            rebuild=bool(metadata.get("rebuild")),
            checksum=bool(metadata.get("checksum")),
            delivered=delivered,
            read_with=pipeline.failure_fingerprint(fingerprints),
            # A person retried the job.
            retry_failed=bool(metadata.get(payloads.RETRY_FAILED)) or context.claim.run > 1,
            job_id=context.job_id,
            keeps_paid=payload.graph is None and not metadata.get("rebuild") and not metadata.get(OUTDATED),
            archives=payload.archives,
            origin=origin,
        )

    def as_known(self, known: Source, pipeline: Pipeline) -> FileRequest:
        """The request with the fingerprints of the extractors of the known source, not of the file name."""
        made, failed = known.fingerprints, known.failure.read_with
        if reader_in(made.ocr) is None and reader_in(failed) is None:
            return self.of_size(known.size, pipeline).as_good_as(known, pipeline)
        wanted = self._fingerprints_of(reader_in(made.ocr), pipeline)
        read_with = pipeline.failure_fingerprint(self._fingerprints_of(reader_in(failed), pipeline))
        request = msgspec.structs.replace(self, fingerprints=wanted, read_with=read_with)
        return request.of_size(known.size, pipeline).as_good_as(known, pipeline)

    def _fingerprints_of(self, reader: str | None, pipeline: Pipeline) -> Fingerprints:
        # By the path, as a later comparison knows no other name; a reader that it does not name is recorded.
        name = self.path if self.origin is not None else self.name
        return pipeline.fingerprints(name, self.sizes, reader, graph=self.graph, ocr=self.ocr)

    def as_good_as(self, known: Source, pipeline: Pipeline) -> FileRequest:
        """The request, to be compared with a known source that need not be read again for OCR or entities."""
        kept = keep_reading(self.fingerprints, known.fingerprints)
        if self.keeps_paid:
            kept = pipeline.keep_paid_graph(kept, known.fingerprints)
        if kept is self.fingerprints:
            return self
        # Parts of it may have failed when it was read in the other way.
        same = known.failure.read_with == pipeline.failure_fingerprint(kept)
        read_with = known.failure.read_with if same else None
        return msgspec.structs.replace(self, fingerprints=kept, read_with=read_with or self.read_with)

    def checked_before(self, known: Source | None, pipeline: Pipeline) -> FileRequest:
        """The request with entity extraction as for the known source, unless the request states a choice.

        Refuses an archive as ``refuse_archive`` does.
        """
        self.refuse_archive(known)
        if known is None or self.graph is not None or not getattr(known.fingerprints, EXTRACTING):
            return self
        request = msgspec.structs.replace(self, graph=True)
        return msgspec.structs.replace(request, fingerprints=request._fingerprints_of(None, pipeline))

    def checked(self, read: FileContent, pipeline: Pipeline) -> FileRequest:
        """The request with the fingerprints of the extractor for this content.

        Raises ``UnsupportedType`` if another type was announced.
        """
        if self.delivered is not None and self.delivered.source_type is not None:
            file_types.refuse_other_than(self.delivered.source_type, self.read_from, read.data)
        try:
            reader = file_types.detect(self.name, read.data).extractor
        except UnsupportedType:
            return self
        fingerprints = self._fingerprints_of(reader, pipeline)
        if fingerprints is self.fingerprints:
            # The reader that the name stands for: nothing else is known now.
            return self.of_size(read.size, pipeline)
        read_with = pipeline.failure_fingerprint(fingerprints)
        request = msgspec.structs.replace(self, fingerprints=fingerprints, read_with=read_with)
        return request.of_size(read.size, pipeline)

    @property
    def read_from(self) -> str:
        place = self.origin or self.delivered
        return place.read_from if place is not None else self.path

    def mismatches(self, context: Context, known: Source, *, whole: bool) -> list[str]:
        """Declared facts contradicted by an unchanged file. Not ``whole``: the hash covers only a part."""
        return file_mismatches(context, known.size, known.content_hash if whole else None)

    def of_size(self, size: int, pipeline: Pipeline) -> FileRequest:
        """The request with the fingerprints for a file of this size. An unchanged file has the known size."""
        wanted = pipeline.of_size(self.fingerprints, self.name, size)
        return self if wanted is self.fingerprints else msgspec.structs.replace(self, fingerprints=wanted)

    def read(self, known: Source | None, reader: MemberReader) -> FileContent | None:
        """Read the file or member; None if size and time are unchanged and no closer check was requested.

        Raises ``FailedBefore`` for an unchanged file that failed.
        """

        def unchanged(status: os.stat_result) -> bool:
            if known is None or self.rebuild or self.checksum:
                return False
            size, mtime_ns = status.st_size, status.st_mtime_ns
            if self._trusts(known) and fails_again(known.failure, size, mtime_ns, self.read_with):
                raise FailedBefore
            times = (known.size, known.mtime_ns) == (size, mtime_ns)
            return times and self.is_up_to_date(known, known.content_hash)

        if is_off_disk(self.read_from):
            raise FileNotFoundError(self.path)
        if self.delivered is None:
            return reader.read(self.read_from, unchanged, name=self.name)
        # The sender was allowed this path as it was then, not the target of a link put there later.
        try:
            return reader.read(self.read_from, unchanged, known_as=self.path, delivered=True, name=self.name)
        except (FileNotFoundError, NotADirectoryError):
            if known is None or not self._moved_since(known):
                raise
        return reader.read(self.path, unchanged, delivered=True, name=self.name)

    def _moved_since(self, known: Source) -> bool:
        """Check whether another message, processed first, moved the file to the final path."""
        sent_at = self.delivered.sent_at if self.delivered is not None else None
        container = container_of(self.path)
        try:
            found = os.lstat(self.path if container is None else container.path)
        except OSError:
            return False
        same = unchanged_at(self.path, known.size, known.mtime_ns)
        return same and sent_at is not None and sent_at.timestamp() <= found.st_ctime

    def refuse_archive(self, known: Source | None) -> None:
        """Refuse an archive unless the request opens archives. The refusal is not stored as a failure."""
        if self.archives or not file_types.is_archive_name(self.name):
            return
        if known is None or known.published_id is None:
            raise PermanentFailure(
                f"{self.path} is an archive, and archives are not opened by default",
                code=_NOT_OPENED,
                remedy=FAILURE_CODES[_NOT_OPENED],
            )

    def _trusts(self, known: Source) -> bool:
        """Check whether a recorded failure of the whole file answers this request.

        Not one of this very job: its process died before the job had ended.
        """
        asked_again = self.rebuild or self.retry_failed or self.delivered is not None
        return known.failed and not asked_again and known.failure.job_id != self.job_id

    def failed_before(self, known: Source, content_hash: str) -> bool:
        """Check whether this content failed before. The file's time does not count."""
        return self._trusts(known) and same_content_fails_again(known.failure, content_hash, self.read_with)

    def is_up_to_date(self, known: Source, content_hash: str) -> bool:
        """Check whether the known source was made from this content, in the requested way."""
        parts_fail_again = known.failure.read_with == self.read_with and not self.retry_failed
        # With newer content that failed, the published content is not the newest.
        published = known.published_id is not None and not known.failed
        published = published and (not known.partial or parts_fail_again)
        # A rename may have changed the suffix to another one with the same extractor. A wrong suffix says
        # nothing, and the type known is that of the content.
        misnamed = reader_in(known.fingerprints.ocr) is not None
        same_pipeline = misnamed or known.file_type == file_types.suffix_of(self.name)
        same_pipeline = same_pipeline and outdated(known.fingerprints, self.fingerprints) != "reading"
        if not published or known.content_hash != content_hash or not same_pipeline:
            return False
        if self.delivered is None:
            return True
        tags, about = self.tags_and_metadata(known)
        return tags == known.tags and msgspec.json.decode(about) == msgspec.json.decode(known.metadata)

    def tags_and_metadata(self, known: Source | None) -> tuple[tuple[str, ...], str]:
        """Tags and metadata of the new version: the old ones, merged with or replaced by the new ones."""
        tags, about = (known.tags, known.metadata) if known is not None else ((), "{}")
        if self.origin is not None:
            about = msgspec.json.encode({"source": self.origin.source}).decode()
        if self.delivered is None:
            return tags, about
        old_tags, old = (tags, msgspec.json.decode(about)) if self.delivered.keep else ((), {})
        merged = msgspec.json.encode(old | self.delivered.about).decode()
        return tuple(dict.fromkeys((*old_tags, *self.delivered.tags))), merged
