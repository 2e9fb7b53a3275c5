"""Routes of documents: list, show, remove, and why a path is not found."""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import APIRouter, Path, Query
from starlette.responses import Response

from penstock.catalog.values import Phase
from penstock.errors import InvalidRequest
from penstock.http.index_routes import accepted
from penstock.http.job_routes import RangeQuery
from penstock.http.problems import described, respond, respond_values
from penstock.http.request_bodies import DocumentsQuery, TreeQuery, WhyQuery
from penstock.http.request_context import Reader, Writer, reads, writes
from penstock.queue.payloads import is_off_disk
from penstock.service.documents import (
    DocumentDetail,
    DocumentPage,
    DocumentTree,
    ProjectList,
    ProjectRecord,
    ReasonRecord,
    reason_record,
)
from penstock.service.job_views import SubmitRecord, document_view, page_states

router = APIRouter(tags=["documents"])

_SourceId = Annotated[str, Path(description="Id of a document.", max_length=512)]


@router.get(
    "/documents",
    operation_id="documents_list",
    responses=described(DocumentPage, refused=(404,), value=True),
    summary="List documents",
)
@reads
def documents(sender: Reader, query: Annotated[DocumentsQuery, Query()]) -> Response:
    """List the documents of one tenant, also failed ones, ordered by id."""
    records = sender.shared.document_records
    if query.ready_for is not None:
        tenant = sender.tenant(query.tenant_id)
        phases = {str(phase): phase for phase in Phase if phase is not Phase.OCR}
        if query.ready_for not in phases:
            raise InvalidRequest(f"ready_for: expected {' or '.join(phases)}, got {query.ready_for[:40]!r}")
        ready = records.ready(phases[query.ready_for], tenant, collection=query.collection, limit=query.limit)
        return respond(ready)
    given = query.model_dump(exclude={"tenant_id", "branch", "project", "ready_for"})
    scope = sender.documents.projects.search_scope(
        tenant_id=query.tenant_id, branch=query.branch, project=query.project
    )
    given |= scope.filters[0]
    if sender.wants_values:
        after = given.pop("cursor")
        return respond_values(sender.shared.documents.sources(after=after, **given))
    return respond(records.page(**given))


@router.get(
    "/documents/{source_id}",
    operation_id="documents_get",
    responses=described(DocumentDetail, refused=(404,), value=True),
    summary="Show a document",
)
@reads
def document(sender: Reader, source_id: _SourceId, query: Annotated[TreeQuery, Query()]) -> Response:
    """Show a document with its versions, the progress of each phase, and its pages."""
    records = sender.shared.document_records
    own = records.own(source_id, sender.principal.tenants)
    if sender.wants_values:
        return respond_values(document_view(sender.shared.documents, own))
    return respond(records.detail(own, from_page=query.from_page, limit=query.limit))


@router.get(
    "/documents/{source_id}/tree",
    operation_id="documents_get_tree",
    responses=described(DocumentTree, refused=(404,), value=True),
    summary="Show all pages of a document in short",
)
@reads
def tree(sender: Reader, source_id: _SourceId, query: Annotated[RangeQuery, Query()]) -> Response:
    """Show the status of all pages as one letter each, and the chunks of some pages."""
    records = sender.shared.document_records
    own = records.own(source_id, sender.principal.tenants)
    last = query.last or query.first + 199
    if sender.wants_values:
        return respond_values(page_states(sender.shared.documents, own.source_id, last))
    return respond(records.tree(own, first=query.first, last=last))


@router.delete(
    "/documents/{source_id}",
    operation_id="documents_remove",
    status_code=202,
    responses=described(SubmitRecord, 202, refused=(404,), value=True),
    summary="Remove a document",
)
@writes
def remove(sender: Writer, source_id: _SourceId) -> Response:
    """Queue the removal of a document from the index. Its file stays."""
    shared = sender.shared
    own = shared.document_records.own(source_id, sender.principal.tenants)
    place = own.place
    receipt = shared.jobs.submit(
        exact=True,
        **shared.documents.removal(
            own.source_id, tenant_id=place.tenant_id, collection=place.collection, branch=place.branch
        ),
    )
    shared.audit.record(
        sender.principal.name, "remove document", source_id=own.source_id, tenant_id=place.tenant_id
    )
    return accepted(sender, receipt)


@router.get(
    "/projects", operation_id="projects_list", responses=described(ProjectList), summary="List projects"
)
@reads
def projects(sender: Reader) -> Response:
    """List the folders that were indexed as projects, by name and folder."""
    allowed = sender.principal.tenants
    roots = sender.shared.documents.projects.roots()
    found = [
        ProjectRecord(**msgspec.structs.asdict(root))
        for root in roots
        if not allowed or root.tenant_id in allowed
    ]
    return respond(ProjectList(projects=found))


@router.get(
    "/why",
    operation_id="paths_explain",
    responses=described(ReasonRecord, refused=(404,), value=True),
    summary="Explain a path",
)
@reads
def why(sender: Reader, query: Annotated[WhyQuery, Query()]) -> Response:
    """Explain why search does, or does not, find a path. Relative paths begin at the first root."""
    where = query.model_dump(exclude={"path", "all"})
    found = sender.documents.why(sender.document(query.path, **where), all=query.all, **where)
    if found.verdict == "unknown" and not is_off_disk(query.path):
        # The reason tells whether there is such a file: only where the sender may index it.
        sender.policy.allowed(query.path, allow_external=True)
    return respond_values(found) if sender.wants_values else respond(reason_record(found))
