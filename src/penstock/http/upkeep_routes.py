"""Routes for the upkeep of queue and catalog: overview, history, moves, removals and ended jobs."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal

import msgspec
from fastapi import APIRouter, Path, Query
from pydantic import ConfigDict, Field
from starlette.responses import Response

from penstock.errors import UnknownDocument
from penstock.http.index_routes import ACCEPTED, accepted
from penstock.http.job_routes import ItemType
from penstock.http.problems import described, respond
from penstock.http.request_bodies import MAX_PAGE, Name, Project, QueryFields, RequestBody, Text
from penstock.http.request_context import Reader, Sender, Writer, reads, writes
from penstock.service.documents import Overview, renaming
from penstock.service.requests import HistoryEntry, MovedWhere, RetryAnswer


class NoteBody(RequestBody):
    """A new text of a note."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"content": "The gate runs well."}]})

    content: Text = Field(min_length=1, description="Text of the note.")
    tag: Name | None = Field(None, description="New tag; without one the tags stay.")
    drop_tags: bool = Field(False, description="Remove the tags of the note.")
    tenant_id: Name | None = Field(None, description="Tenant; by default the key's, or the server's.")


class RenameBody(RequestBody):
    """A move of a file or folder."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"old_path": "a.md", "new_path": "b.md"}]})

    old_path: Text = Field(min_length=1, max_length=4096, description="Path before the move.")
    new_path: Text = Field(min_length=1, max_length=4096, description="Path after the move.")
    tenant_id: Name | None = None
    collection: Name | None = None
    project: Project = None


class RemovalBody(RequestBody):
    """A document or folder to remove from the index."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"path_or_id": "notes/old.md"}]})

    path_or_id: Text = Field(min_length=1, max_length=4096, description="Id, or a path with a slash.")
    tenant_id: Name | None = None
    collection: Name | None = None
    branch: Name | None = None
    project: Project = None


class PurgeBody(RequestBody):
    """Ended jobs to remove."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"status": ["done"], "older_than_s": 86400}]})

    status: list[Literal["done", "failed", "cancelled"]] = Field(min_length=1, max_length=3)
    older_than_s: float = Field(0.0, ge=0, le=3e9, description="Seconds since the end of a job.")


class RetryBody(RequestBody):
    """Failed jobs to retry."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"collection": "handbook"}]})

    tenant_id: Name | None = None
    collection: Name | None = None
    item_type: ItemType | None = None


class TenantQuery(QueryFields):
    """A tenant, by default the key's."""

    tenant_id: Name | None = None


class NotesQuery(TenantQuery):
    """Filters and paging of a list of notes."""

    limit: int = Field(50, ge=1, le=MAX_PAGE)
    cursor: Text = Field("", max_length=255, description="`next` of the page before.")
    collection: Name | None = None
    tag: Name | None = Field(None, description="Only notes with this tag or a tag below it.")


class HistoryOfQuery(TenantQuery):
    """A document, by its id or a path with a slash."""

    document: Text = Field(min_length=1, max_length=4096, description="Id, or a path with a slash.")
    collection: Name | None = None
    branch: Name | None = None
    project: Project = None


router = APIRouter(tags=["upkeep"])


class DocumentHistory(msgspec.Struct, frozen=True):
    """Events of a document, oldest first."""

    history: list[HistoryEntry]


class PurgedJobs(msgspec.Struct, frozen=True):
    """The number of jobs that were removed."""

    removed: int


@router.get(
    "/overview",
    operation_id="overview_get",
    responses=described(Overview),
    summary="Count documents by collection",
)
@reads
def overview(sender: Reader, query: Annotated[TenantQuery, Query()]) -> Response:
    """Count documents and chunks by tenant and collection. Keys with tenants get their own counts only."""
    documents = sender.shared.documents
    found = [documents.overview(tenant) for tenant in sender.principal.tenants_for(query.tenant_id)]
    if not sender.principal.bound:
        return respond(found[0])
    own = Overview(
        tenants=[count for one in found for count in one.tenants],
        tasks={},
        model=found[0].model,
        spaces={},
    )
    return respond(own)


@router.get(
    "/history",
    operation_id="documents_get_history",
    responses=described(DocumentHistory, refused=(404,)),
    summary="History of a document",
)
@reads
def history(sender: Reader, query: Annotated[HistoryOfQuery, Query()]) -> Response:
    """Show when a document was indexed, updated, renamed and removed. A removed one is found by its path."""
    where = query.model_dump(exclude={"document"})
    named = query.document
    if "/" in named:
        named = sender.document(named, **where)
    elif query.tenant_id is None and query.project is None:
        where["tenant_id"] = _tenant_of(sender, named)
    entries = sender.documents.history(named, **where)
    return respond(DocumentHistory(entries))


@router.post(
    "/documents/rename",
    operation_id="documents_rename",
    status_code=202,
    responses=ACCEPTED,
    summary="Record a move",
)
@writes
def rename(sender: Writer, body: RenameBody) -> Response:
    """Queue the record that a file or folder was moved. Nothing is read or embedded again."""
    shared = sender.shared
    for path in (body.old_path, body.new_path):
        sender.policy.allowed(path)
    old, new = sender.policy.named(body.old_path), sender.policy.named(body.new_path)
    where: MovedWhere = {
        "tenant_id": body.tenant_id,
        "collection": body.collection,
        "project": body.project,
    }
    return accepted(sender, shared.jobs.submit(exact=True, **renaming(sender.documents, old, new, where)))


@router.post(
    "/documents/remove",
    operation_id="documents_remove_paths",
    status_code=202,
    responses=ACCEPTED,
    summary="Remove a path",
)
@writes
def remove(sender: Writer, body: RemovalBody) -> Response:
    """Queue the removal of a document or folder from the index. Files stay."""
    shared = sender.shared
    where = body.model_dump(exclude={"path_or_id"})
    if "/" in body.path_or_id:
        removal = sender.documents.removal(sender.document(body.path_or_id, **where), **where)
    else:
        place = sender.document_at(body.path_or_id, **where).place
        removal = sender.documents.removal(body.path_or_id, tenant_id=place.tenant_id)
    receipt = shared.jobs.submit(exact=True, **removal)
    tenant = removal["tenant_id"]
    shared.audit.record(sender.principal.name, "remove", path_or_id=body.path_or_id, tenant_id=tenant)
    return accepted(sender, receipt)


def _tenant_of(sender: Sender, source_id: str) -> str | None:
    """The tenant of a document with this id that the sender may read; None for a removed one."""
    try:
        return sender.shared.document_records.own(source_id, sender.principal.tenants).place.tenant_id
    except UnknownDocument:
        return None


@router.delete(
    "/tenants/{name}",
    operation_id="tenants_remove",
    status_code=202,
    responses=ACCEPTED,
    summary="Remove a tenant",
)
@writes
def remove_tenant(
    sender: Writer, name: Annotated[str, Path(description="Name of a tenant.", max_length=255)]
) -> Response:
    """Queue the removal of all documents and jobs of a tenant. Needs an admin key without tenants."""
    sender.principal.require("admin")
    sender.principal.require_unbound()
    payload = {"tenant_id_to_delete": name}
    receipt = sender.shared.jobs.submit(item_type="delete_tenant", op="delete", payload=payload)
    sender.shared.audit.record(sender.principal.name, "remove tenant", tenant_id=name)
    return accepted(sender, receipt)


@router.post(
    "/queue/purge", operation_id="jobs_purge", responses=described(PurgedJobs), summary="Remove ended jobs"
)
@writes
def purge(sender: Writer, body: PurgeBody) -> Response:
    """Remove ended jobs and their child jobs for good. Needs an admin key without tenants."""
    sender.principal.require("admin")
    sender.principal.require_unbound()
    removed = sender.shared.jobs.purge(status=body.status, older_than=timedelta(seconds=body.older_than_s))
    sender.shared.audit.record(
        sender.principal.name, "purge", status=",".join(body.status), removed=str(removed)
    )
    return respond(PurgedJobs(removed))


@router.post(
    "/queue/retry-failed",
    operation_id="jobs_retry_failed",
    responses=described(RetryAnswer),
    summary="Retry all failed jobs",
)
@writes
def retry_failed(sender: Writer, body: RetryBody) -> Response:
    """Retry every failed job that matches. `twins`: jobs left alone, and the live job with the same key."""
    shared = sender.shared
    retried, twins = 0, dict[str, str]()
    for tenant in sender.principal.tenants_for(body.tenant_id):
        done = shared.jobs.retry_failed(
            tenant_id=tenant, collection=body.collection, item_type=body.item_type
        )
        retried, twins = retried + done.retried, twins | done.twins
    shared.audit.record(sender.principal.name, "retry failed", tenant_id=body.tenant_id, retried=str(retried))
    return respond(RetryAnswer(retried, twins))
