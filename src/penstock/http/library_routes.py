"""Routes of libraries: add the documentation of a version, list versions, remove one."""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import APIRouter, Path, Query
from fastapi.routing import APIRoute
from pydantic import Field
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import Scope

from penstock.errors import InvalidRequest
from penstock.http.index_routes import ACCEPTED, AllowExternal, accepted
from penstock.http.problems import described, respond
from penstock.http.request_bodies import LibraryBody, LibraryUploadFields, Name, Requirement
from penstock.http.request_context import Reader, Sender, Writer, reads, writes
from penstock.http.upkeep_routes import TenantQuery
from penstock.http.uploads import UploadStream, is_upload, received_upload
from penstock.queue.payloads import parse_requirement
from penstock.service.libraries import IndexedLibrary
from penstock.service.uploads import Upload

router = APIRouter(prefix="/library", tags=["libraries"])

_LibraryName = Annotated[str, Path(description="Name of a library.", max_length=255)]
_LibraryVersion = Annotated[str, Path(description="One of its indexed versions.", max_length=255)]


class LibraryList(msgspec.Struct, frozen=True):
    """Indexed versions of libraries, by name and version."""

    libraries: list[IndexedLibrary]


class LibrariesQuery(TenantQuery):
    """A place of libraries, and the name of one."""

    requirement: Requirement | None = Field(None, description="Only NAME, or NAME==VERSION.")
    collection: Name | None = None
    branch: Name | None = None


class LibraryPlaceQuery(TenantQuery):
    """The place of a library."""

    collection: Name | None = None
    branch: Name | None = None


@router.get("", operation_id="libraries_list", responses=described(LibraryList), summary="List libraries")
@reads
def libraries(sender: Reader, query: Annotated[LibrariesQuery, Query()]) -> Response:
    """List the indexed versions of all libraries of one tenant, or of one library."""
    found = sender.shared.documents.libraries.versions(
        query.requirement,
        tenant_id=sender.tenant(query.tenant_id),
        collection=query.collection,
        branch=query.branch,
    )
    return respond(LibraryList(found))


class UploadRoute(APIRoute):
    """A route for bodies that are a file, or a form with one. Others go to the next route of its path."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if scope["type"] == "http" and not is_upload(Headers(scope=scope).get("content-type", "")):
            return Match.NONE, {}
        return super().matches(scope)


async def upload(
    request: Request, sender: Writer, query: Annotated[LibraryUploadFields, Query()]
) -> Response:
    """Receive an archive or wheel of a library, and queue it."""
    stream = UploadStream(request, sender.shared.library_uploads, query, sender.taker)
    return await received_upload(stream, lambda received, fields: _finish(sender, received, fields))


@writes
def _finish(sender: Sender, received: Upload, fields: LibraryUploadFields) -> Response:
    if fields.requirement is None:
        raise InvalidRequest("requirement: missing", remedy="Name the library: NAME or NAME==VERSION.")
    tenant = sender.tenant(fields.tenant_id)
    given = fields.model_dump(exclude={"name", "patterns", "tenant_id"})
    return respond(received.finish(tenant_id=tenant, include=fields.patterns, **given), 202)


# Before the route for JSON, which takes what this one leaves.
router.add_api_route(
    "",
    upload,
    methods=["POST"],
    status_code=202,
    include_in_schema=False,
    route_class_override=UploadRoute,
)
_FILE = {"type": "string", "format": "binary"}
_FIELDS = LibraryUploadFields.model_json_schema()["properties"]
_UPLOADED = {
    "requestBody": {
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["file", "requirement"],
                    "properties": {"file": _FILE, **_FIELDS},
                }
            },
            "application/octet-stream": {"schema": _FILE},
        },
    }
}


@router.post(
    "",
    operation_id="libraries_add",
    status_code=202,
    responses=ACCEPTED,
    openapi_extra=_UPLOADED,
    summary="Add a library",
)
@writes
def add(sender: Writer, body: LibraryBody, allow_external: AllowExternal = False) -> Response:
    """Queue a version of a library. Other versions stay, unless `replace`.

    The body is JSON. Or it is an archive or wheel, with `requirement`, `name` and the other options in the
    query, or a form with the part `file` and the options as further parts.
    """
    shared, tenant = sender.shared, sender.tenant(body.tenant_id)
    source = body.source
    if source is not None:
        source = sender.policy.allowed(source, allow_external=allow_external)
        sender.policy.require_hosts(body.hosts)
    elif sender.principal.confined or not (allow_external and shared.settings.allow_external):
        raise InvalidRequest(
            "source: required, because installed distributions are outside the roots",
            remedy="Name a folder, archive or URL.",
        )
    given = body.model_dump(exclude={"requirement", "source", "tenant_id", "patterns"})
    receipt = shared.documents.libraries.add(
        body.requirement, source=source, tenant_id=tenant, include=body.patterns, **given
    )
    return accepted(sender, receipt)


@router.delete(
    "/{name}/{version}",
    operation_id="libraries_remove",
    status_code=202,
    responses=ACCEPTED,
    summary="Remove a library",
)
@writes
def remove(
    sender: Writer,
    name: _LibraryName,
    version: _LibraryVersion,
    query: Annotated[LibraryPlaceQuery, Query()],
) -> Response:
    """Queue the removal of one version of a library. Folders and archives stay."""
    shared, tenant = sender.shared, sender.tenant(query.tenant_id)
    requirement = f"{name}=={version}"
    parse_requirement(requirement)
    (submission, *_) = shared.documents.libraries.removals(
        requirement, tenant_id=tenant, collection=query.collection, branch=query.branch
    )
    receipt = shared.jobs.submit(exact=True, **submission)
    shared.audit.record(sender.principal.name, "remove library", library=requirement, tenant_id=tenant)
    return accepted(sender, receipt)
