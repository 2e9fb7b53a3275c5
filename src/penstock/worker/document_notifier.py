"""The document notifier: settles jobs waiting for a document when the document has ended.

The catalog's outbox only names jobs to look at. The notifier reads the row of the job, checks that it waits
for this document, and settles under the claim number just read. A second notification finds nothing to do.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec

from penstock import clock, lifecycle
from penstock.catalog.protocol import Catalog
from penstock.catalog.rules.publication import CONTENT_CODES, MAX_MESSAGE, remedy_for
from penstock.catalog.values import (
    ChunkOrigins,
    Document,
    GenerationState,
    LedgerEntry,
    LedgerKind,
    MissingPart,
    OutboxEntryKind,
)
from penstock.errors import NoText, TokenLimitReached
from penstock.handlers.generations import EMBEDDED, RESTART_NOTES
from penstock.job import Job, JobQuery, Settlement, Status
from penstock.pipeline.chunk.text import CHARS_PER_TOKEN
from penstock.queue.protocol import Queue
from penstock.vocabulary import how_many, none_read, split_remedy, with_remedy
from penstock.worker.orphans import JobPages, document_of

FAILURE_CODES = {
    "ERR_OUTAGE": "Parts of the document failed during an outage; its former version stays.",
}

RECHECK_AFTER = timedelta(seconds=60)
"""A waiting job without an update for this long is checked, whether or not the outbox names it."""
MISSING_NAMED = 3
AT_ONCE = 100


class DocumentNotifier:
    """Reads the outbox, and in rounds all waiting jobs in case an entry was lost."""

    def __init__(self, queue: Queue, catalog: Catalog) -> None:
        self._queue = queue
        self._catalog = catalog
        self._after = 0
        self._pages = JobPages(queue, JobQuery(statuses=frozenset({Status.IN_PROGRESS}), waiting=True))

    def process_outbox(self) -> bool:
        """Settle the jobs named by the outbox; True when there may be more."""
        entries = self._catalog.outbox(OutboxEntryKind.JOB, after=self._after, limit=AT_ONCE)
        done = []
        for entry in entries:
            job = self._queue.get(entry.job_id) if entry.job_id else None
            if job is not None and _running(job):
                # The document ended before its job was settled as waiting. The entry is read again.
                continue
            if job is not None:
                self._settle(job)
            done.append(entry.entry_id)
        if done:
            # Cleared last: after a crash in between, another worker finds the entries.
            self._catalog.clear(done)
        more = len(entries) == AT_ONCE
        self._after = entries[-1].entry_id if more else 0
        return more

    def check_waiting(self) -> bool:
        """Settle waiting jobs that were cancelled, or had no update for long."""
        page, more = self._pages.next_page()
        now = clock.now()
        for job in page:
            if document_of(job) is not None and (
                job.cancel_requested or now - job.updated_at > RECHECK_AFTER
            ):
                self._settle(job)
        return more

    def _settle(self, job: Job) -> None:
        document_id = document_of(job)
        if document_id is None:
            return
        if job.cancel_requested:
            self._catalog.drop(document_id, "cancelled")
            self._queue.settle([lifecycle.cancelled_by_flag(job)])
            return
        with self._catalog.snapshot() as snapshot:
            document = snapshot.document(document_id)
            missing = snapshot.missing(document_id, limit=MISSING_NAMED) if document else []
            settlement = settlement_for(job, document, missing, lambda: snapshot.made(document_id))
        if settlement is None:
            return
        if settlement.status is Status.FAILED and document is not None:
            # Before the settlement: after a crash in between, both are redone.
            self._catalog.note([_ledger_entry(job, document, settlement)])
        self._queue.settle([settlement])


def settlement_for(
    job: Job, document: Document | None, missing: list[MissingPart], made: Callable[[], ChunkOrigins]
) -> Settlement | None:
    """Decide how the job ends, given the document; None: not yet."""
    if document is None:
        return lifecycle.released(job, "its document is gone; the file is read again")
    if document.state is GenerationState.DROPPED:
        if document.note in RESTART_NOTES:
            return lifecycle.released(job, document.note)
        return lifecycle.done(job, result_json=_json({"outcome": document.note or "superseded"}))
    if document.state is GenerationState.PUBLISHED and document.settled:
        result_json = _json(_result(job, document, missing, made()))
        if job.children_failed:
            # Files inside it failed while its pages were read: the job ends as its children did.
            return lifecycle.waits(job, result_json=result_json)
        return lifecycle.done(job, result_json=result_json)
    if not document.settled:
        return None
    code = _outage_code(missing) if document.outage else _content_code(missing)
    return lifecycle.failed(job, code, _failures(document, missing))


def _content_code(missing: list[MissingPart]) -> str:
    """The code of the first failed part."""
    code = _code(missing)
    embedded = bool(missing) and missing[0].chunk_index is not None
    return code if embedded or code in CONTENT_CODES else NoText.code


def _outage_code(missing: list[MissingPart]) -> str:
    """The code for parts that failed for reasons outside the document; a token limit has a separate code."""
    return TokenLimitReached.code if _code(missing) == TokenLimitReached.code else "ERR_OUTAGE"


def _code(missing: list[MissingPart]) -> str:
    return missing[0].error.partition(":")[0] if missing else ""


def _ledger_entry(job: Job, document: Document, settlement: Settlement) -> LedgerEntry:
    code = settlement.error_code or ""
    cause, remedy = split_remedy(settlement.error_message or "")
    return LedgerEntry(
        place=document.place,
        path=document.path,
        kind=LedgerKind.FAILED,
        rule=code,
        cause=cause[:MAX_MESSAGE],
        remedy=remedy or remedy_for(code) or FAILURE_CODES.get(code, ""),
        job_id=job.queue_id,
    )


def _result(job: Job, document: Document, missing: list[MissingPart], made: ChunkOrigins) -> dict[str, Any]:
    result: dict[str, Any] = {
        "outcome": "indexed",
        "pages": document.page_count,
        "chunks": document.chunk_count,
        "embedded": made.embedded + (job.progress or {}).get(EMBEDDED, 0),
        "tokens": -(-made.characters // CHARS_PER_TOKEN),
    }
    if document.partial:
        result |= {
            "partial": True,
            "failed": document.failed_count,
            "missing": [_part_text(one) for one in missing],
        }
    return result


def _failures(document: Document, missing: list[MissingPart]) -> str:
    """The failed parts in words, with the remedy of the first one, if any."""
    remedy = split_remedy(missing[0].error)[1] if missing else ""
    return with_remedy(_failed_parts(document, missing), remedy)


def _failed_parts(document: Document, missing: list[MissingPart]) -> str:
    named = "; ".join(split_remedy(_part_text(one))[0] for one in missing)
    more = document.failed_count - len(missing)
    kept = " The former version stays." if document.outage else ""
    read = not missing or missing[0].chunk_index is not None
    if not read and not document.outage and document.failed_count == document.page_count:
        # Mostly a scan: all pages have the same error.
        error, _ = split_remedy(missing[0].error)
        cause = error.partition(": ")[2] or error
        return f"{none_read(document.page_count)}: {cause}"
    failed = how_many(document.failed_count, "part")
    return f"{failed} failed: {named}{f' and {more:,} more' if more > 0 else ''}.{kept}"


def _part_text(missing: MissingPart) -> str:
    part = "" if missing.chunk_index is None else f", chunk {missing.chunk_index}"
    return f"page {missing.page_number}{part}: {missing.error}"


def _running(job: Job) -> bool:
    return job.status is Status.IN_PROGRESS and not job.waiting


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
