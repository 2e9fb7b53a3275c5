"""Reindexing of sources after a change of settings or model. Valid parts are reused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from penstock import clock
from penstock.catalog.protocol import BATCH, Catalog, CatalogSnapshot, known_below
from penstock.catalog.values import (
    Fingerprints,
    KnownSource,
    LedgerEntry,
    LedgerKind,
    NewGeneration,
    PublishedCount,
    PublishedPath,
    Source,
)
from penstock.handlers.context import MAX_CHILDREN, Context, ProgressReport, Wait
from penstock.pipeline.chunk.text import CHARS_PER_TOKEN, ChunkSizes, estimated_tokens
from penstock.pipeline.draft import keep_reading, outdated, reader_in, sizes_of
from penstock.pipeline.extract.file_types import suffix_of
from penstock.pipeline.pipeline import Pipeline
from penstock.pipeline.walk.ignore import Rule, Skipped, Unreadable
from penstock.queue import payloads
from penstock.queue.job import NewJob
from penstock.queue.payloads import NOTES, FilePayload, Payload, tag_fields
from penstock.strict_json import encode_payload

if TYPE_CHECKING:
    from penstock.handlers.generations import DraftedGeneration


MOVED_AWAY = "moved_away"
"""In a job's metadata: the folder was renamed, so an empty folder is not an unmounted disk."""
_encode = msgspec.json.Encoder().encode


def child_job(
    context: Context,
    queue_id: str,
    item_type: str,
    op: str,
    body: Mapping[str, Any],
    *,
    priority: int | None = None,
    metadata: str | None = None,
) -> NewJob:
    """A child job in the parent's place, by default one priority lower and with the parent's metadata."""
    payload = payloads.parse_payload(item_type, op, body)
    # No second limit: the contents of a child were accepted with its parent or its source.
    encoded = encode_payload(body, max_bytes=None)
    return _child(context, queue_id, (item_type, op), payload, encoded, priority=priority, metadata=metadata)


def file_job(
    context: Context,
    queue_id: str,
    op: str,
    payload: FilePayload,
    *,
    priority: int,
    metadata: str | None = None,
) -> NewJob:
    """A child job for a file found by a walk or known to the catalog; the path is not checked again."""
    encoded = _encode(payload).decode()
    return _child(context, queue_id, ("file", op), payload, encoded, priority=priority, metadata=metadata)


def same_job(context: Context, queue_id: str, branch: str) -> NewJob:
    """A child that does the work of its parent for another branch."""
    claim = context.claim
    payload = payloads.parse_payload(claim.item_type, claim.op, context.payload)
    encoded = encode_payload(context.payload, max_bytes=None)
    kind = (claim.item_type, claim.op)
    return _child(context, queue_id, kind, payload, encoded, priority=claim.priority, branch=branch)


def _child(
    context: Context,
    queue_id: str,
    kind: tuple[str, str],
    payload: Payload,
    payload_json: str,
    *,
    priority: int | None = None,
    metadata: str | None = None,
    branch: str | None = None,
) -> NewJob:
    claim, (item_type, op) = context.claim, kind
    # A parent holds its lock until its children have ended. Did they wait for locks, two parents could
    # wait for each other's, as two crossing renames did. The catalog copes with two readings of a file.
    lock = None
    if claim.lock_key is None:
        place = {
            "tenant_id": claim.tenant_id,
            "branch": branch or claim.branch,
            "collection": claim.collection,
        }
        lock = payloads.lock_key(payload, **place)
    return NewJob(
        queue_id=queue_id,
        item_type=item_type,
        op=op,
        tenant_id=claim.tenant_id,
        collection=claim.collection,
        branch=branch or claim.branch,
        idempotency_key=payloads.idempotency_key(item_type, claim.collection, payload),
        payload_json=payload_json,
        priority=payloads.child_priority(claim.priority) if priority is None else priority,
        metadata=claim.metadata if metadata is None else metadata,
        lock_key=lock,
        max_retries=claim.max_retries,
        timeout_s=claim.timeout_s,
        submitted_by=claim.submitted_by,
    )


class WalkCounts(msgspec.Struct):
    """Counts of a walk: the progress of a folder job, and its part of the result, named as there."""

    seen: int = 0
    unchanged: int = 0
    failed_before: int = 0
    """Failed permanently in an earlier walk and unchanged since: not read again."""
    other_extractor: int = 0
    """Unchanged files whose entities are of another extractor, and would be paid for again."""
    changed: int = 0
    added: int = 0
    moved: int = 0
    vanished: int = 0
    skipped: int = 0
    unreadable: int = 0
    bytes: int = 0
    """Bytes of the files to read, for an estimate of the remaining time."""
    sent: int = 0
    """Files with a child job in the queue."""
    without_job: int = 0
    """Files that need no child job."""
    inside: int = 0
    """Files inside others with a child job of this job, sent although their container is unchanged."""
    resumed: int = 0
    """Files that an earlier run of the job indexed after this request was made."""
    resumed_chunks: int = 0
    skipped_by: dict[str, int] = {}
    """Skipped paths by rule, the most frequent first."""

    def skip(self, rule: Rule) -> None:
        self.skipped += 1
        self.skipped_by[rule] = self.skipped_by.get(rule, 0) + 1

    def resume(self, published: PublishedCount, members: Sequence[PublishedPath]) -> None:
        """Count files published by an earlier run; ``members``: the files inside other files among them."""
        self.resumed = published.sources - len(members)
        self.resumed_chunks = published.chunks - sum(member.chunks for member in members)

    def as_dict(self, *, waiting: int = 0) -> dict[str, Any]:
        """All counts, and the total. ``waiting``: files found, but neither compared nor sent yet."""
        counts = {name: getattr(self, name) for name in self.__struct_fields__}
        ranked = sorted(self.skipped_by.items(), key=lambda entry: (-entry[1], entry[0]))
        total = self.without_job + self.sent + waiting
        return counts | {"skipped_by": {str(rule): count for rule, count in ranked}, "total": total}


MOST_TYPES = 40
"""Types in the result of a job. The others count as one, named ``*``."""


class TypeCounts:
    """Files of a walk by suffix: ``read`` (sent to a child job), ``unchanged`` or ``skipped``."""

    def __init__(self) -> None:
        self._by_suffix: dict[str, dict[str, int]] = {}

    def add(self, path: str, outcome: Literal["read", "unchanged", "skipped"]) -> None:
        counts = self._by_suffix.setdefault(suffix_of(path), {})
        counts[outcome] = counts.get(outcome, 0) + 1

    def as_dict(self) -> dict[str, dict[str, int]]:
        """Counts by suffix, the most frequent first."""
        ranked = sorted(self._by_suffix.items(), key=lambda entry: (-sum(entry[1].values()), entry[0]))
        kept = dict(ranked[:MOST_TYPES])
        for _, counts in ranked[MOST_TYPES:]:
            others = kept.setdefault("*", {})
            for outcome, number in counts.items():
                others[outcome] = others.get(outcome, 0) + number
        return kept


class WalkLedger:
    """Skipped and unreadable paths below one root, since the last write."""

    def __init__(self, catalog: Catalog, context: Context, root: str) -> None:
        self._catalog = catalog
        self._context = context
        self._root = root
        self._entries: list[LedgerEntry] = []

    def path_of(self, report: Skipped | Unreadable) -> str:
        """The absolute path of a report."""
        return f"{self._root}/{report.path}" if report.path not in ("", ".") else self._root

    def record(self, report: Skipped | Unreadable) -> None:
        skipped = isinstance(report, Skipped)
        rule = str(report.rule) if isinstance(report, Skipped) else report.code
        cause = report.rule.meaning if isinstance(report, Skipped) else report.reason
        if isinstance(report, Skipped) and report.detail:
            cause = f"{cause} ({report.detail})"
        self._entries.append(
            LedgerEntry(
                place=self._context.place,
                path=self.path_of(report),
                kind=LedgerKind.SKIPPED if skipped else LedgerKind.FAILED,
                rule=rule,
                cause=cause,
                job_id=self._context.job_id,
            )
        )
        if len(self._entries) >= BATCH:
            self.write()

    def write(self) -> None:
        entries, self._entries = self._entries, []
        if entries:
            self._catalog.note(entries)


OUTDATED = "outdated"
"""Key in a job's metadata: repeat only the outdated work, without comparing files on the disk."""


def from_catalog(
    catalog: Catalog, known: Source, context: Context, wanted: Fingerprints, space: str
) -> DraftedGeneration | None:
    """The published generation again, with the same texts, for another space. None if removed."""
    with catalog.snapshot() as snapshot:
        source = snapshot.get(known.source_id)
        if source is None or source.read_at is None or source.published_id != known.published_id:
            return None
        pages = snapshot.content(source.published_id or 0)
    generation = NewGeneration(
        place=source.place,
        path=source.path,
        content_hash=source.content_hash,
        asked_at=context.asked_at,
        # The time of the original reading, so that a later reading takes precedence.
        read_at=source.read_at,
        pages=pages,
        space=space,
        fingerprints=wanted,
        size=source.size,
        mtime_ns=source.mtime_ns,
        file_type=source.file_type,
        title=source.title,
        tags=source.tags,
        metadata=source.metadata,
        properties=source.properties,
        job_id=context.job_id,
        priority=context.claim.priority,
        max_retries=context.claim.max_retries,
    )
    tokens = sum(estimated_tokens(chunk.text) for page in pages for chunk in page.chunks or ())
    from penstock.handlers.generations import DraftedGeneration

    return DraftedGeneration(generation=generation, tokens=tokens, known_id=source.source_id)


def why_outdated(known: KnownSource, pipeline: Pipeline) -> str | None:
    """The outdated part of a source: ``reading``, ``model`` or ``graph``; None if the source is current.

    The chunk sizes of its request are kept.
    """
    made = known.fingerprints
    name = "note.md" if known.path.startswith(NOTES) else known.path
    wanted = pipeline.fingerprints(name, sizes_of(made) or ChunkSizes(), reader_in(made.ocr))
    wanted = pipeline.keep_graph(pipeline.of_size(wanted, name, known.size), made, name)
    wanted = keep_reading(wanted, made)
    return outdated(made, wanted)


class Reindex:
    """One reindex job: a child for every outdated source below a path."""

    def __init__(self, catalog: Catalog, pipeline: Pipeline, context: Context, path: str) -> None:
        self._catalog = catalog
        self._pipeline = pipeline
        self._context = context
        self._folder = None if path == "/" else path

    def run(self) -> Any:
        sent = examined = 0
        children: list[NewJob] = []
        for known in known_below(self._catalog, self._context.place, self._folder):
            examined += 1
            if known.published_id is None or why_outdated(known, self._pipeline) is None:
                continue
            sent += 1
            children.append(self._child(known))
            if len(children) >= MAX_CHILDREN:
                self._context.expand(children)
                children = []
        if children:
            self._context.expand(children)
        if not sent:
            return {"outcome": "unchanged", "seen": examined}
        counts = WalkCounts(seen=examined, changed=sent, sent=sent, without_job=examined - sent).as_dict()
        self._context.report(ProgressReport(examined - sent, examined, "indexing", None, counts))
        result = msgspec.json.encode({"outcome": "indexed"} | counts).decode()
        return Wait(progress_json=self._context.last_progress, result_json=result)

    def _child(self, known: KnownSource) -> NewJob:
        if known.path.startswith(NOTES):
            with self._catalog.snapshot() as snapshot:
                op, body = _note(snapshot, known)
            item_type = "content"
        else:
            item_type, op, body = "file", "update", {"file_path": known.path}
        priority = self._context.claim.priority
        body |= _sizes(known)
        return child_job(self._context, clock.new_id(), item_type, op, body, priority=priority)


def _note(snapshot: CatalogSnapshot, known: KnownSource) -> tuple[str, dict[str, Any]]:
    """Operation and payload for a note, from the stored text."""
    source, pages = snapshot.get(known.source_id), snapshot.content(known.published_id or 0)
    text = pages[0].text if pages else None
    if text is None:
        text = "\n\n".join(chunk.text for page in pages for chunk in page.chunks or ())
    body: dict[str, Any] = {"content": text, "document_id": known.source_id}
    if source is not None and "source_type" in (metadata := msgspec.json.decode(source.metadata)):
        body["source_type"] = metadata["source_type"]
    if source is not None and source.tags:
        body |= tag_fields(source.tags)
    return "update", body


def _sizes(known: KnownSource) -> dict[str, int]:
    sizes, usual = sizes_of(known.fingerprints), ChunkSizes()
    if sizes is None or sizes == usual:
        return {}
    return {"chunk_size": sizes.size // CHARS_PER_TOKEN, "chunk_overlap": sizes.overlap // CHARS_PER_TOKEN}
