"""Files of a library or pages of a site, compared with the catalog: one child job per difference."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock import clock, items
from penstock.catalog.protocol import BATCH, Catalog
from penstock.catalog.values import LedgerEntry, LedgerKind, Touch
from penstock.catalog.views import KnownSource
from penstock.errors import NothingToIndex
from penstock.handlers.child_jobs import file_job
from penstock.handlers.context import Context, ProgressReport
from penstock.handlers.file_comparison import FileComparison
from penstock.handlers.registry import Wait
from penstock.handlers.walk_counts import TypeCounts, WalkCounts
from penstock.items import ContentOrigin
from penstock.job import NewJob
from penstock.named_tuple import NamedTuple
from penstock.payloads import Crawled, FilePayload
from penstock.pipeline.pipeline import Pipeline, chunk_sizes
from penstock.pipeline.walk.ignore import FoundFile, Rule

AT_ONCE = 50
"""Files whose children are sent together: indexing begins while a crawl is still going on."""
MOST_NOTED = 1_000
"""Skipped paths that are recorded for each rule; the others are only counted."""


class OriginFile(NamedTuple):
    """A file or page with the document's path, and the size and time of the content."""

    path: str
    origin: ContentOrigin
    size: int
    mtime_ns: int


class OriginFiles:
    """The files of one job. ``root``: path above all of their documents."""

    def __init__(
        self, catalog: Catalog, pipeline: Pipeline, context: Context, payload: Crawled, root: str
    ) -> None:
        self._catalog = catalog
        self._context = context
        self._payload = payload
        self._root = root
        sizes = chunk_sizes(payload.chunk_size, payload.chunk_overlap)
        self._comparison = FileComparison(
            pipeline, sizes, context.metadata, graph=payload.graph, ocr=payload.ocr
        )
        self._waiting: list[OriginFile] = []
        self._children: list[NewJob] = []
        self._ledger: list[LedgerEntry] = []
        self.counts = WalkCounts()
        self._types = TypeCounts()
        self._had_any = bool(self.known_at_and_below(root, limit=1))

    def known_at_and_below(self, path: str, *, after: str = "", limit: int = BATCH) -> list[KnownSource]:
        """Documents at and below a path, by path."""
        with self._catalog.snapshot() as snapshot:
            return snapshot.known(self._context.place, path, after=after, limit=limit)

    def add(self, file: OriginFile) -> None:
        """Queue a file for comparison with the document; a difference sends a child job."""
        self.counts.seen += 1
        self._waiting.append(file)
        if len(self._waiting) >= AT_ONCE:
            self.send(file.path)

    def add_missing(self, path: str, origin: ContentOrigin) -> None:
        """Send a child job for a page that failed to download: the job tries again."""
        self.counts.seen += 1
        self.counts.changed += 1
        self._send_file(OriginFile(path, origin, 0, 0))

    def remove(self, path: str) -> None:
        """Send a child job to remove a document."""
        self.counts.vanished += 1
        payload = FilePayload(file_path=path)
        self._children.append(
            file_job(self._context, clock.new_id(), "delete", payload, priority=self._priority)
        )

    def skip(self, path: str, rule: Rule, detail: str = "", *, recorded: bool = True) -> None:
        """Count a path left out by a rule, and record the path up to a limit per rule."""
        self.counts.skip(rule)
        if not recorded or self.counts.skipped_by[rule] > MOST_NOTED:
            return
        cause = f"{rule.meaning} ({detail})" if detail else rule.meaning
        self._ledger.append(
            LedgerEntry(
                place=self._context.place,
                path=path,
                kind=LedgerKind.SKIPPED,
                rule=str(rule),
                cause=cause,
                job_id=self._context.job_id,
            )
        )

    def send(self, current: str | None = None) -> None:
        """Compare the files collected so far, and send child jobs for changed ones."""
        waiting, self._waiting = self._waiting, []
        touched: list[Touch] = []
        for file in waiting:
            known = next(iter(self.known_at_and_below(file.path, limit=1)), None)
            if known is None or known.path != file.path:
                self.counts.added += 1
                self._send_file(file)
                continue
            found = FoundFile(file.path, file.size, file.mtime_ns)
            if self._comparison.fails_again(found, known):
                self.counts.failed_before += 1
                self.counts.without_job += 1
            elif self._comparison.unchanged(found, known):
                self.counts.unchanged += 1
                self.counts.without_job += 1
                self._types.add(file.origin.name, "unchanged")
                touched.append(Touch(known.source_id, file.size, file.mtime_ns, self._context.asked_at))
            else:
                self.counts.changed += 1
                self._send_file(file)
        if touched:
            self._catalog.touch(touched)
        self._flush(current)

    def _send_file(self, file: OriginFile) -> None:
        payload = FilePayload(
            file_path=file.path,
            size_bytes=file.size or None,
            chunk_size=self._payload.chunk_size,
            chunk_overlap=self._payload.chunk_overlap,
            graph=self._payload.graph,
            gate=self._payload.gate,
            ocr=self._payload.ocr,
        )
        self._types.add(file.origin.name, "read")
        self.counts.bytes += file.size
        metadata = self._context.metadata | {items.ASKED_AT: self._context.asked_at.isoformat()}
        metadata[items.ORIGIN] = msgspec.to_builtins(file.origin)
        encoded = msgspec.json.encode(metadata).decode()
        self._children.append(
            file_job(
                self._context, clock.new_id(), "ingest", payload, priority=self._priority, metadata=encoded
            )
        )

    @property
    def _priority(self) -> int:
        return items.child_priority(self._context.claim.priority)

    def _flush(self, current: str | None) -> None:
        for start in range(0, len(self._ledger), BATCH):
            self._catalog.note(self._ledger[start : start + BATCH])
        self._ledger = []
        children, self._children = self._children, []
        self.counts.sent += len(children)
        progress = self.progress(current)
        for start in range(0, len(children), BATCH):
            self._context.expand(children[start : start + BATCH], progress=progress)
        self._context.report(progress)

    def progress(self, current: str | None, *, stage: str = "walking") -> ProgressReport:
        """The progress of the job, at a path."""
        counts = self.counts.as_dict(waiting=len(self._children) + len(self._waiting))
        total = None if stage == "walking" else counts["total"]
        return ProgressReport(self.counts.without_job, total, stage, current, counts)

    def finish(self) -> dict[str, Any]:
        """Send the rest; returns the result of the job. Raises ``NothingToIndex`` without any file."""
        self.send()
        if not self.counts.seen and not self._had_any and not self._context.metadata.get("allow_empty"):
            skipped = f" ({self.counts.skipped:,} skipped)" if self.counts.skipped else ""
            raise NothingToIndex(f"{self._root}: there is nothing to index{skipped}")
        outcome = "indexed" if self.counts.sent else "unchanged"
        counts = self.counts.as_dict() | {"types": self._types.as_dict()}
        return {"outcome": outcome, "include_code": self._payload.include_code} | counts

    def ended(self, result: dict[str, Any]) -> Any:
        """The answer of the handler: the result, after all child jobs."""
        if not self.counts.sent:
            return result
        self._context.report(self.progress(None, stage="indexing"))
        return Wait(
            progress_json=self._context.last_progress, result_json=msgspec.json.encode(result).decode()
        )
