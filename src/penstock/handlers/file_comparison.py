"""Comparison of a file found by a walk with the known source: unchanged, failing again, or to be read."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Any

import msgspec

from penstock import items
from penstock.catalog.rules.failures import fails_again
from penstock.catalog.values import Fingerprints
from penstock.catalog.views import KnownSource
from penstock.pipeline.chunk.text import ChunkSizes
from penstock.pipeline.draft import keep_reading, reader_in
from penstock.pipeline.extract import file_types
from penstock.pipeline.pipeline import Pipeline
from penstock.pipeline.walk.ignore import FoundFile


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
        self._retry_failed = bool(metadata.get(items.RETRY_FAILED))
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
