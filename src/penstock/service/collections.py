"""Use cases about collections: list, show, clear, and the removal of what a later request replaces."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta

import msgspec

from penstock.catalog.protocol import BATCH, Catalog, known_below
from penstock.catalog.values import Place, Removal, TenantCount, Touch
from penstock.errors import CollectionNotFound
from penstock.handlers.removal import remove_all
from penstock.queue.job import Job, JobQuery, Status
from penstock.queue.payloads import normal_path, note_path, validate_name
from penstock.service.jobs import Jobs
from penstock.service.requests import Receipt, Submission
from penstock.service.why import path_of

_MOST_COUNTED = 10_000
"""``open_jobs`` of a record counts up to this number."""
_MOMENT = timedelta(microseconds=1)
"""The resolution of times: a removal also takes what was asked for at its own time."""


class BranchCount(msgspec.Struct, frozen=True, kw_only=True):
    """Searchable documents, pages and chunks of one branch; the fields are those of ``TenantCount``."""

    branch: str
    documents: int
    partial: int
    failed: int
    pages: int
    chunks: int


class CollectionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A collection of one tenant. ``failed``: documents that cannot be read, or only in a former version.

    ``open_jobs``: pending and running jobs for its documents, up to 10,000; None in a list.
    """

    tenant_id: str
    collection: str
    documents: int
    partial: int
    failed: int
    pages: int
    chunks: int
    branches: tuple[BranchCount, ...]
    open_jobs: int | None = None


class Collections:
    """The collections of one catalog.

    app.collections.clear("handbook", tenant_id="acme")
    """

    def __init__(self, catalog: Catalog, jobs: Jobs) -> None:
        self._catalog = catalog
        self._jobs = jobs

    def list(self, tenant_id: str | None = None) -> list[CollectionRecord]:
        """List the collections with documents, by tenant and name. None: of all tenants."""
        if tenant_id is not None:
            validate_name("tenant_id", tenant_id)
        with self._catalog.snapshot() as snapshot:
            return _records(snapshot.tenants(tenant_id))

    def show(self, collection: str, *, tenant_id: str | None = None) -> CollectionRecord:
        """Show a collection of a tenant (None: the default one). Raises ``CollectionNotFound``."""
        named = self._jobs.settings.tenant_id if tenant_id is None else tenant_id
        tenant_id = validate_name("tenant_id", named)
        found = [one for one in self.list(tenant_id) if one.collection == collection]
        open_jobs = self._open_jobs(tenant_id, validate_name("collection", collection))
        if not found and not open_jobs:
            raise CollectionNotFound(f"tenant {tenant_id!r} has no collection {collection!r}")
        record = found[0] if found else _record(tenant_id, collection, [])
        return msgspec.structs.replace(record, open_jobs=open_jobs)

    def _open_jobs(self, tenant_id: str, collection: str) -> int:
        live = frozenset({Status.PENDING, Status.IN_PROGRESS})
        query = JobQuery(tenant_id=tenant_id, collection=collection, statuses=live, top_level=True)
        return sum(self._jobs.queue.count(query, cap=_MOST_COUNTED).values())

    def clear(self, collection: str, *, tenant_id: str | None = None) -> Receipt:
        """Queue the removal of all documents of a collection, in every branch. Files are not touched.

        What was asked for before the call is not indexed any more, also if its job runs later; what is asked
        for afterwards stays. Raises ``CollectionNotFound``.
        """
        record = self.show(collection, tenant_id=tenant_id)
        return self._jobs.submit(exact=True, **clearing(record.collection, record.tenant_id))

    def remove_older(
        self,
        place: Place,
        asked_before: datetime,
        *,
        spared: Collection[tuple[Place, str, datetime]] = (),
    ) -> int:
        """Remove the documents of a collection, in every branch, that were asked for before a time.

        ``spared``: paths with the times of later requests for them, which are not done: their documents stay
        as they are. Returns the number of removed documents.
        """
        for where, path, asked_at in spared:
            self._keep(where, path, asked_at)
        removal = Removal(
            tenant_id=place.tenant_id,
            collection=place.collection,
            asked_at=asked_before - _MOMENT,
            reason="reindex",
        )
        return remove_all(self._catalog, removal)

    def path_of(self, job: Job) -> str | None:
        """The path of the documents that a job is about; None without one."""
        if job.item_type != "content":
            path = path_of(job)
            return path if path is None or job.item_type == "library" else normal_path(path)
        note_id, text = job.payload.get("document_id"), job.payload.get("content")
        if note_id is None:
            return None if text is None else note_path(text)
        with self._catalog.snapshot() as snapshot:
            found = snapshot.identified(note_id)
        return None if found is None else found.path

    def _keep(self, place: Place, path: str, asked_at: datetime) -> None:
        """Record the request for a path and what is inside the file: an earlier removal spares them."""
        kept: list[Touch] = []
        for known in known_below(self._catalog, place, None if path == "/" else path):
            if known.published_id is not None:
                kept.append(Touch(known.source_id, known.size, known.mtime_ns, asked_at))
            if len(kept) >= BATCH:
                self._catalog.touch(kept)
                kept = []
        if kept:
            self._catalog.touch(kept)


def clearing(collection: str, tenant_id: str) -> Submission:
    """Build the submission of ``clear``."""
    payload = {"folder_path": "/", "whole_collection": True}
    return {
        "item_type": "folder",
        "op": "delete",
        "payload": payload,
        "tenant_id": tenant_id,
        "collection": collection,
    }


def _records(counts: Iterable[TenantCount]) -> list[CollectionRecord]:
    found: dict[tuple[str, str], list[TenantCount]] = {}
    for count in counts:
        found.setdefault((count.tenant_id, count.collection), []).append(count)
    return [_record(tenant_id, collection, some) for (tenant_id, collection), some in found.items()]


def _record(tenant_id: str, collection: str, counts: list[TenantCount]) -> CollectionRecord:
    return CollectionRecord(
        tenant_id=tenant_id,
        collection=collection,
        documents=sum(one.sources for one in counts),
        partial=sum(one.partial for one in counts),
        failed=sum(one.failed for one in counts),
        pages=sum(one.pages for one in counts),
        chunks=sum(one.chunks for one in counts),
        branches=tuple(
            BranchCount(
                branch=one.branch,
                documents=one.sources,
                partial=one.partial,
                failed=one.failed,
                pages=one.pages,
                chunks=one.chunks,
            )
            for one in counts
        ),
    )
