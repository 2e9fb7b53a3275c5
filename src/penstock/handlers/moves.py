"""Jobs of item types ``rename``, ``delete_document`` and ``delete_tenant``. Nothing is embedded again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

from penstock import clock
from penstock.catalog.protocol import Catalog
from penstock.catalog.values import LedgerEntry, LedgerKind, OutboxEntryKind, Place, Removal, Rename, Source
from penstock.errors import UnknownDocument
from penstock.handlers.context import Context, Wait
from penstock.handlers.folders import other_branch
from penstock.handlers.reindex import MOVED_AWAY, child_job
from penstock.handlers.removal import OpenQueue, Purged, purge_jobs, removed_in_batches, single_path_rules
from penstock.handlers.source_files import NO_FILES, UnusedFiles
from penstock.pipeline.vectors.protocol import VectorCopies
from penstock.pipeline.walk.ignore import BINDING, Skipped
from penstock.queue import payloads
from penstock.queue.job import NewJob
from penstock.queue.payloads import DeleteDocumentPayload, DeleteTenantPayload, RenamePayload
from penstock.vocabulary import how_many


class Moves:
    def __init__(
        self,
        catalog: Catalog,
        vector_copies: VectorCopies | None = None,
        open_queue: OpenQueue | None = None,
        files: UnusedFiles = NO_FILES,
    ) -> None:
        self._catalog = catalog
        self._files = files
        self._vector_copies = vector_copies
        self._open_queue = open_queue

    def rename(self, context: Context) -> Any:
        """Bring the index to the state of the disk at both paths, in any order of events."""
        if (elsewhere := other_branch(context)) is not None:
            return elsewhere
        payload, place = msgspec.convert(context.payload, RenamePayload), context.place
        old_exists, new_exists = _exists(payload.old_path), _exists(payload.new_path)
        if payload.is_folder and old_exists and new_exists and not _holds_anything(payload.old_path):
            # Created again after the move, and empty: a walk would take it for an unmounted disk.
            old_exists = False
        if payload.is_folder and not old_exists and not new_exists:
            # A walk would take this for an unmounted disk, but the folder was moved twice.
            removal = _path_removal(context, payload.old_path, folder=True)
            return {"outcome": "removed", "removed": self._remove(removal, context)}
        skipped = self._skip_rule(context, payload) if new_exists else None
        if skipped is not None:
            return self._remove_skipped(context, payload, skipped, old_exists=old_exists)
        if not new_exists:
            # Moved on, or deleted: check the old path.
            return Wait((_ingest_job(context, payload.old_path, folder=payload.is_folder),))
        if old_exists:
            # Copied, or created again: check both.
            return Wait(
                (
                    _ingest_job(context, payload.old_path, folder=payload.is_folder),
                    _ingest_job(context, payload.new_path, folder=payload.is_folder),
                )
            )
        renamed = self._rename_all(
            Rename(
                place=place,
                old=payload.old_path,
                new=payload.new_path,
                asked_at=context.asked_at,
                folder=payload.is_folder or self._holds_members(place, payload.old_path),
            ),
            context,
        )
        context.progress(renamed, renamed, "renamed", renamed=renamed)
        # The file may have been edited as well; checking an unchanged file is cheap.
        child = _ingest_job(context, payload.new_path, folder=payload.is_folder)
        return Wait((child,), progress_json=context.last_progress)

    def _skip_rule(self, context: Context, payload: RenamePayload) -> Skipped | None:
        """The rule by which the next walk would skip the new path.

        A source that no walk found at its old path was requested by name: only binding rules apply.
        """
        decisions = self._walk_decisions(context.place, payload.new_path, folder=payload.is_folder)
        if not decisions or None in decisions:
            return None
        before = self._walk_decisions(context.place, payload.old_path, folder=payload.is_folder)
        return next(
            (
                decision
                for decision in decisions
                if decision is not None and (None in before or decision.rule in BINDING)
            ),
            None,
        )

    def _walk_decisions(self, place: Place, path: str, *, folder: bool) -> list[Skipped | None]:
        """Decision of each walk over the path, existing or not; None: indexed."""
        with self._catalog.snapshot() as snapshot:
            walks = snapshot.walks(place, path)
        return [
            single_path_rules(walk).skipped(path[len(walk.root.rstrip("/")) + 1 :], folder=folder)
            if walk.root != path
            else None
            for walk in walks
        ]

    def _remove_skipped(
        self, context: Context, payload: RenamePayload, rule: Skipped, *, old_exists: bool
    ) -> Any:
        cause = f"{rule.rule.meaning} ({rule.detail})" if rule.detail else rule.rule.meaning
        note = LedgerEntry(
            place=context.place,
            path=payload.new_path,
            kind=LedgerKind.SKIPPED,
            rule=str(rule.rule),
            cause=cause,
            job_id=context.job_id,
        )
        self._catalog.note([note])
        if old_exists:
            return Wait((_ingest_job(context, payload.old_path, folder=payload.is_folder),))
        folder = payload.is_folder or self._holds_members(context.place, payload.old_path)
        removed = self._remove(_path_removal(context, payload.old_path, folder=folder), context)
        return {"outcome": "removed", "removed": removed, "note": f"{payload.new_path}: {cause}"}

    def _holds_members(self, place: Place, path: str) -> bool:
        """Check whether documents below the path come from inside a file, not from a folder."""
        if os.path.isdir(path):  # noqa: PTH112 - it never raises
            return False
        with self._catalog.snapshot() as snapshot:
            return bool(snapshot.known(place, path, after=path, limit=1))

    def _rename_all(self, rename: Rename, context: Context) -> int:
        total = 0
        while True:
            renamed = self._catalog.rename(rename)
            total += renamed.sources
            if not renamed.more:
                return total
            context.progress(total, None, "renaming", renamed=total)

    def delete_document(self, context: Context) -> dict[str, Any]:
        """Delete a document by id or path. Points of other documents are reported and kept."""
        payload, place = msgspec.convert(context.payload, DeleteDocumentPayload), context.place
        with self._catalog.snapshot() as snapshot:
            source = snapshot.get(payload.identifier) or snapshot.find(place, payload.identifier)
            source = source or snapshot.identified(payload.identifier)
            if source is None or not source.live or source.place.tenant_id != place.tenant_id:
                raise UnknownDocument(f"no document {payload.identifier} of tenant {place.tenant_id}")
            own = snapshot.locate(source.source_id, payload.point_ids)
        foreign = [point for point in payload.point_ids if point not in own]
        removed = self._remove(_source_removal(source, context), context)
        if self._holds_members(source.place, source.path):
            removed += self._remove(_member_removal(source, context), context)
        return {"outcome": "removed", "removed": removed} | ({"not_its_own": foreign} if foreign else {})

    def delete_tenant(self, context: Context) -> dict[str, Any]:
        """Delete everything of a tenant. The job is done only when nothing is left."""
        payload = msgspec.convert(context.payload, DeleteTenantPayload)
        removal = Removal(
            tenant_id=payload.tenant_id_to_delete, asked_at=context.asked_at, reason=payload.reason
        )
        removed = self._remove(removal, context)
        purged = self._purge(removal.tenant_id, context)
        # Also remove documents that running jobs wrote meanwhile, unless they may come from newer jobs.
        until = context.asked_at if purged.kept else None
        removed += self._remove(removal, context)
        while not self._catalog.forget(removal.tenant_id, asked_before=until):
            context.checkpoint()
        self._catalog.scrub()
        if self._vector_copies is not None:
            with self._catalog.snapshot() as snapshot:
                sequence = snapshot.changes(removal.tenant_id).sequence
            self._vector_copies.remove_tenant(removal.tenant_id, sequence)
        deleted = (how_many(removed, "document"), how_many(purged.jobs, "job"))
        context.log.info("tenant %s deleted: %s, %s", removal.tenant_id, *deleted)
        return {"outcome": "removed", "removed": removed, "jobs": purged.jobs}

    def _purge(self, tenant_id: str, context: Context) -> Purged:
        if self._open_queue is None:
            return Purged(0, True)
        with self._open_queue() as queue:
            purged = purge_jobs(queue, tenant_id, context)
            queue.scrub()
        return purged

    def _remove(self, removal: Removal, context: Context) -> int:
        """Hide and then clear documents, batch by batch, to keep transactions small."""
        total = 0
        for removed in removed_in_batches(self._catalog, removal):
            if total:
                context.progress(total, None, "removing", removed=total)
            total += removed
            self._clear(removal.tenant_id)
        return total

    def _clear(self, tenant_id: str) -> None:
        after = 0
        while entries := self._catalog.outbox(OutboxEntryKind.LEFTOVER, after=after):
            own = [entry for entry in entries if entry.place.tenant_id == tenant_id]
            if own:
                with self._catalog.snapshot() as snapshot:
                    self._files.remove_unused(snapshot, {entry.source_id for entry in own})
            while own and not self._catalog.clear([entry.entry_id for entry in own]):
                continue
            after = entries[-1].entry_id


def _exists(path: str) -> bool:
    """Check whether a path exists; raises OSError if this cannot be determined."""
    try:
        Path(path).lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _holds_anything(path: str) -> bool:
    try:
        with os.scandir(path) as entries:
            return any(True for _ in entries)
    except NotADirectoryError:
        return True


def _path_removal(context: Context, path: str, *, folder: bool) -> Removal:
    place = context.place
    return Removal(
        tenant_id=place.tenant_id,
        collection=place.collection,
        branch=place.branch,
        path=path,
        below=folder,
        asked_at=context.asked_at,
    )


def _source_removal(source: Source, context: Context) -> Removal:
    return Removal(tenant_id=source.place.tenant_id, source_id=source.source_id, asked_at=context.asked_at)


def _member_removal(source: Source, context: Context) -> Removal:
    """Removal of the documents below a container file."""
    place = source.place
    return Removal(
        tenant_id=place.tenant_id,
        collection=place.collection,
        branch=place.branch,
        path=source.path,
        asked_at=context.asked_at,
    )


def _ingest_job(context: Context, path: str, *, folder: bool) -> NewJob:
    """A child job to bring the index to the state of the disk at one path."""
    body = {"folder_path" if folder else "file_path": path}
    # A missing or empty folder is not a failure of the rename.
    metadata = context.metadata | {"allow_empty": True, MOVED_AWAY: True}
    # Requested now: older requests come too late for the old path, but this job must not.
    metadata.pop(payloads.ASKED_AT, None)
    return child_job(
        context,
        clock.new_id(),
        "folder" if folder else "file",
        "ingest",
        body,
        metadata=msgspec.json.encode(metadata).decode(),
    )
