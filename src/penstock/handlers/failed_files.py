"""Failed files of a batch: recorded as failed documents, and explained in the ledger."""

from __future__ import annotations

import os
import stat
from typing import Any

from penstock import clock, retry
from penstock.catalog.protocol import Catalog
from penstock.catalog.rules.failures import (
    MAX_MESSAGE,
    FailedReading,
    ReadFile,
    becomes_document,
    failed_generation,
    remedy_for,
)
from penstock.catalog.values import LedgerEntry, LedgerKind, NewGeneration
from penstock.catalog.views import Source
from penstock.errors import PenstockError, PermanentFailure
from penstock.handlers.container_paths import container_of
from penstock.handlers.context import Context
from penstock.handlers.file_request import FileRequest
from penstock.payloads import normal_path
from penstock.pipeline.extract import file_types
from penstock.vocabulary import split_remedy

FAILED_BEFORE = "failed before"
"""Outcome of a file that failed in an earlier run and is unchanged since."""


class FailedFiles:
    """Collects the failures of one call, and writes them in two transactions."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._generations: list[NewGeneration] = []
        self._ledger_entries: list[LedgerEntry] = []

    def add(
        self,
        context: Context,
        request: FileRequest | Exception,
        error: Exception,
        *,
        known: Source | None,
        read: ReadFile | None,
        stored: bool,
    ) -> None:
        """Add a final failure; others are ignored. ``stored``: the catalog already has the generation."""
        classified = retry.classify(error)
        if classified.kind != "permanent" and context.claim.retry_count < context.claim.max_retries:
            return
        if classified.kind == "cancelled":
            return
        entry = LedgerEntry(
            place=context.place,
            path=normal_path(context.payload["file_path"]),
            kind=LedgerKind.FAILED,
            rule=classified.code,
            cause=str(error)[:MAX_MESSAGE] or type(error).__name__,
            remedy=error.remedy if isinstance(error, PenstockError) else "",
            job_id=context.job_id,
        )
        self._ledger_entries.append(entry)
        if stored or isinstance(request, Exception):
            return
        file = read or _file_at(request)
        if file is not None and becomes_document(entry.rule, known=known is not None):
            self._generations.append(_failed_generation(context, request, entry, file))

    def write(self) -> None:
        if self._generations:
            self._catalog.store(self._generations)
        if self._ledger_entries:
            self._catalog.note(self._ledger_entries)


def _failed_generation(
    context: Context, request: FileRequest, entry: LedgerEntry, file: ReadFile
) -> NewGeneration:
    return failed_generation(
        FailedReading(
            place=request.place,
            path=request.path,
            code=entry.rule,
            message=entry.cause,
            file=file,
            asked_at=context.asked_at,
            read_at=clock.now(),
            job_id=context.job_id,
            fingerprints=request.fingerprints,
            file_type=file_types.suffix_of(request.name),
        )
    )


def _file_at(request: FileRequest) -> ReadFile | None:
    """State of a file refused before reading; None: there is no file."""
    container = container_of(request.read_from, any_name=True)
    if container is not None:
        return ReadFile(0, container.mtime_ns, request.read_with)
    try:
        found = os.lstat(request.read_from)
    except OSError:
        return None
    if not stat.S_ISREG(found.st_mode):
        return None
    return ReadFile(found.st_size, found.st_mtime_ns, request.read_with)


def failed_before(context: Context, known: Source) -> Any:
    """The result of a job for an unchanged file with an earlier failure; nothing is read.

    A job for this file alone fails as it did before. The child of a folder is done: its failure is counted
    and shown with the folder, and is not a new one.
    """
    failure = known.failure
    code, _, message = (failure.error or "ERR_UNREADABLE: the file cannot be read").partition(": ")
    message, remedy = split_remedy(message)
    since = f"{failure.at:%Y-%m-%d %H:%M}" if failure.at is not None else "the last run"
    if context.claim.parent_id is not None:
        return {"outcome": FAILED_BEFORE, "code": code, "error": message, "since": since}
    return PermanentFailure(
        f"{message} (unchanged since {since}, not read again)",
        code=code,
        remedy=remedy or remedy_for(code),
    )
