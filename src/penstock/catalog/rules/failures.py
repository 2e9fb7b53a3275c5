"""Remembered failures: which failures belong to the content, and when a file is read again. Pure.

A file that failed by its content fails again until the file, the parser or its limits change. Any other
failure (permissions, a lost worker, a full disk) may be gone at the next try, and is not remembered.
"""

from __future__ import annotations

from datetime import datetime

from penstock.catalog.values import Failure, FailureKind, Fingerprints, NewGeneration, Place
from penstock.catalog.views import SourceFailure
from penstock.errors import PathNotFound, PenstockError, UnreadableDocument
from penstock.named_tuple import NamedTuple

MAX_MESSAGE = 1_000
_NO_FILE = frozenset({"ERR_FILE_NOT_FOUND", "ERR_BAD_PATH", "ERR_OUTSIDE_RAG", PathNotFound.code})
"""Codes of failures without a file: there is nothing to show as a document."""


def _remedies(error_class: type[PenstockError]) -> dict[str, str]:
    remedies = {error_class.code: error_class.default_remedy}
    for below in error_class.__subclasses__():
        remedies |= _remedies(below)
    return remedies


_REMEDIES = _remedies(UnreadableDocument)
CONTENT_CODES = frozenset(_REMEDIES)
"""Codes of failures of the content. A part of Penstock that is not installed counts: see ``read_with``."""


def remedy_for(code: str) -> str:
    """The usual remedy for a failure of the content, by code."""
    return _REMEDIES.get(code, "")


class ReadFile(NamedTuple):
    """A file as it was read. ``read_with``: fingerprint of the parser, its limits and its components."""

    size: int
    mtime_ns: int
    read_with: str
    content_hash: str = ""


def fails_again(failure: SourceFailure, size: int, mtime_ns: int, read_with: str) -> bool:
    """Check whether reading the file would fail as before: file, parser and limits are unchanged."""
    return failure.read_with == read_with and (failure.size, failure.mtime_ns) == (size, mtime_ns)


def same_content_fails_again(failure: SourceFailure, content_hash: str, read_with: str) -> bool:
    """Check whether this content failed before with the same parser. The file's time does not count."""
    return failure.read_with == read_with and bool(content_hash) and failure.content_hash == content_hash


def kind_of(code: str) -> FailureKind:
    return FailureKind.CONTENT if code in CONTENT_CODES else FailureKind.OUTAGE


def becomes_document(code: str, *, known: bool) -> bool:
    """Check whether a failed file is stored as a failed generation.

    Every new file is. A failure outside the content says nothing about the content of a known source, and
    leaves its generations alone.
    """
    return code not in _NO_FILE and (kind_of(code) is FailureKind.CONTENT or not known)


class FailedReading(NamedTuple):
    """A permanent failure to read a file. ``fault``: by default the one of the code."""

    place: Place
    path: str
    code: str
    message: str
    file: ReadFile
    asked_at: datetime
    read_at: datetime
    job_id: str | None = None
    fault: FailureKind | None = None
    fingerprints: Fingerprints = Fingerprints()
    file_type: str = ""


def failed_generation(reading: FailedReading) -> NewGeneration:
    """The generation of an unreadable file: without pages, and never published."""
    file = reading.file
    return NewGeneration(
        place=reading.place,
        path=reading.path,
        content_hash=file.content_hash,
        asked_at=reading.asked_at,
        read_at=reading.read_at,
        pages=(),
        fingerprints=reading.fingerprints,
        size=file.size,
        mtime_ns=file.mtime_ns,
        file_type=reading.file_type,
        job_id=reading.job_id,
        failure=Failure(reading.code, reading.message[:MAX_MESSAGE], reading.fault or kind_of(reading.code)),
        read_with=file.read_with,
    )
