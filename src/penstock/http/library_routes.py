"""Routes of libraries: add the documentation of a version, list versions, remove one."""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import APIRouter, Path, Query
from pydantic import ConfigDict, Field
from starlette.responses import Response

from penstock.errors import InvalidRequest
from penstock.http.answers import described, respond
from penstock.http.index_routes import ACCEPTED, AllowExternal, accepted
from penstock.http.request_bodies import MAX_PATTERNS, Name, PlaceBody, Text, Whole
from penstock.http.request_context import Reader, Writer
from penstock.http.thread_pools import reads, writes
from penstock.http.upkeep_bodies import TenantQuery
from penstock.payloads import parse_requirement
from penstock.service.libraries import IndexedLibrary

router = APIRouter(prefix="/library", tags=["libraries"])

Requirement = Annotated[Text, Field(min_length=1, max_length=500)]
LibraryName = Annotated[str, Path(description="Name of a library.", max_length=255)]
LibraryVersion = Annotated[str, Path(description="One of its indexed versions.", max_length=255)]


class LibraryList(msgspec.Struct, frozen=True):
    """Indexed versions of libraries, by name and version."""

    libraries: list[IndexedLibrary]


class LibraryBody(PlaceBody):
    """A version of a library, and where its documentation is."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        json_schema_extra={"examples": [{"requirement": "mill==1.2", "source": "mill-1.2.tar.gz"}]},
    )

    requirement: Requirement = Field(
        description="NAME or NAME==VERSION; without a version, the one that the source states."
    )
    source: Text | None = Field(
        None,
        min_length=1,
        max_length=4096,
        description="Folder, archive or wheel below a root of the server, or a URL. Without it, the "
        "installed distribution is read, which needs `allow_external`.",
    )
    replace: bool = Field(False, description="Remove the other versions once this one is indexed.")
    patterns: list[Name] = Field([], max_length=MAX_PATTERNS, description="Index only matching files.")
    exclude: list[Name] = Field([], max_length=MAX_PATTERNS, description="Leave out matching files.")
    include_code: bool | None = Field(None, description="Index source code; by default it is.")
    depth: Whole | None = Field(
        None, ge=0, le=10_000, description="Maximum folder depth; of a URL, the links followed from it."
    )
    hosts: list[Name] = Field([], max_length=100, description="Further hosts that links may lead to.")
    max_pages: Whole | None = Field(None, ge=1, le=100_000, description="Maximum number of web pages.")
    graph: bool | None = Field(None, description="Extract entities and relations, or remove them.")
    ocr: bool | None = Field(None, description="Recognize text in pictures, too.")
    force: bool = Field(False, description="Index unchanged files again.")
    retry_failed: bool = Field(False, description="Read unchanged files again that failed before.")
    priority: Whole | None = Field(None, ge=0, le=10, description="0 (bulk) to 10 (a person is waiting).")


class LibrariesQuery(TenantQuery):
    """A place of libraries, and the name of one."""

    requirement: Requirement | None = Field(None, description="Only NAME, or NAME==VERSION.")
    collection: Name | None = None
    branch: Name | None = None


class LibraryPlaceQuery(TenantQuery):
    """The place of a library."""

    collection: Name | None = None
    branch: Name | None = None


@router.get("", responses=described(LibraryList), summary="List libraries")
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


@router.post("", status_code=202, responses=ACCEPTED, summary="Add a library")
@writes
def add(sender: Writer, body: LibraryBody, allow_external: AllowExternal = False) -> Response:
    """Queue a version of a library. Other versions stay, unless `replace`."""
    shared, tenant = sender.shared, sender.tenant(body.tenant_id)
    source = body.source
    if source is not None:
        source = shared.policy.allowed(source, allow_external=allow_external)
    elif not (allow_external and shared.settings.allow_external):
        raise InvalidRequest(
            "source: required, because installed distributions are outside the roots",
            remedy="Name a folder, archive or URL.",
        )
    given = body.model_dump(exclude={"requirement", "source", "tenant_id", "patterns"})
    receipt = shared.documents.libraries.add(
        body.requirement, source=source, tenant_id=tenant, include=body.patterns, **given
    )
    return accepted(sender, receipt)


@router.delete("/{name}/{version}", status_code=202, responses=ACCEPTED, summary="Remove a library")
@writes
def remove(
    sender: Writer,
    name: LibraryName,
    version: LibraryVersion,
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
