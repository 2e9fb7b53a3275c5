"""Routes of collections: list, show, clear."""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import APIRouter, Path, Query
from starlette.responses import Response

from penstock.http.index_routes import ACCEPTED, accepted
from penstock.http.problems import described, respond
from penstock.http.request_context import Reader, Writer, reads, writes
from penstock.http.upkeep_routes import TenantQuery
from penstock.service.collections import CollectionRecord

router = APIRouter(prefix="/collections", tags=["collections"])

# A name may hold a slash.
_CollectionName = Annotated[str, Path(description="Name of a collection.", min_length=1, max_length=255)]
_EXAMPLE = {
    "tenant_id": "default",
    "collection": "handbook",
    "documents": 3,
    "partial": 0,
    "failed": 0,
    "pages": 12,
    "chunks": 40,
    "branches": [
        {"branch": "main", "documents": 3, "partial": 0, "failed": 0, "pages": 12, "chunks": 40},
    ],
    "open_jobs": 0,
}


class CollectionList(msgspec.Struct, frozen=True):
    """Collections by tenant and name."""

    collections: list[CollectionRecord]


@router.get(
    "", operation_id="collections_list", responses=described(CollectionList), summary="List collections"
)
@reads
def collections(sender: Reader, query: Annotated[TenantQuery, Query()]) -> Response:
    """List collections with documents. Keys with tenants get their own only."""
    own = sender.shared.collections
    tenants = sender.principal.tenants_for(query.tenant_id)
    return respond(CollectionList([one for tenant in tenants for one in own.list(tenant)]))


@router.get(
    "/{name:path}",
    operation_id="collections_get",
    responses=described(CollectionRecord, refused=(404,), example=_EXAMPLE),
    summary="Show a collection",
)
@reads
def collection(sender: Reader, name: _CollectionName, query: Annotated[TenantQuery, Query()]) -> Response:
    """Show a collection of one tenant, with the number of its open jobs."""
    return respond(sender.shared.collections.show(name, tenant_id=sender.tenant(query.tenant_id)))


@router.delete(
    "/{name:path}",
    operation_id="collections_clear",
    status_code=202,
    responses=ACCEPTED,
    summary="Clear a collection",
)
@writes
def clear(sender: Writer, name: _CollectionName, query: Annotated[TenantQuery, Query()]) -> Response:
    """Queue the removal of all documents of a collection, in every branch. Files stay.

    What was asked for before is not indexed any more, also if its job runs later.
    """
    tenant = sender.tenant(query.tenant_id)
    receipt = sender.shared.collections.clear(name, tenant_id=tenant)
    sender.shared.audit.record(sender.principal.name, "clear collection", name=name, tenant_id=tenant)
    return accepted(sender, receipt)
