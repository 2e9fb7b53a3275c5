"""Routes that answer questions: search, passages for a prompt, similar chunks, and the graph."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query
from starlette.responses import Response

from penstock.errors import InvalidRequest
from penstock.http.problems import described, respond, respond_values
from penstock.http.request_bodies import (
    ContextBody,
    EntityQuery,
    FilteredBody,
    GraphQuery,
    NeighboursQuery,
    SearchBody,
    SimilarBody,
    WayQuery,
)
from penstock.http.request_context import Reader, Sender, reads
from penstock.service.graph import (
    EntityRecords,
    GraphCountRecord,
    GraphRecord,
    entity_records,
    graph_record,
)
from penstock.service.hits import Hit
from penstock.service.passages import PromptContext
from penstock.service.requests import DocumentFilters
from penstock.service.search import SearchResult

router = APIRouter(tags=["search"])

_MOST_SEARCHED = 200
"""Tenants that one request may search."""


class SimilarHits(msgspec.Struct, frozen=True, kw_only=True):
    """Chunks of other documents, nearest first."""

    hits: list[Hit]


@router.post(
    "/search",
    operation_id="chunks_search",
    responses=described(SearchResult, refused=(404,)),
    summary="Search",
)
@reads
def search(sender: Reader, body: SearchBody) -> Response:
    """Find the best chunks for a query, best first. `corrections` names misspelt words."""
    given = body.model_dump(include={"mode", "exact", "graph", "limit", "per_source"})
    found = sender.shared.assembly.search.ask(
        body.query, marks=(body.marks[0], body.marks[1]), **given, **_scoped(sender, body)
    )
    return respond(found)


@router.post(
    "/context",
    operation_id="context_pack",
    responses=described(PromptContext, refused=(404,)),
    summary="Pack passages for a prompt",
)
@reads
def context(sender: Reader, body: ContextBody) -> Response:
    """Pack the best passages into a number of tokens, numbered, for the prompt of a language model."""
    given = body.model_dump(include={"mode", "exact", "graph", "max_tokens"})
    found = sender.shared.assembly.search.context(body.query, **given, **_scoped(sender, body))
    return respond(found)


def _scoped(sender: Sender, body: FilteredBody) -> dict[str, Any]:
    """Filters and scope of a search: of one tenant or project, or of every tenant that the sender may see."""
    scope = sender.documents.projects.search_scope(
        tenant_id=body.tenant_id, branch=body.branch, project=body.project, every=body.all
    )
    if len(scope.filters) > _MOST_SEARCHED:
        raise InvalidRequest(
            f"all: of {len(scope.filters):,} tenants one request searches at most {_MOST_SEARCHED}",
            remedy="Name a tenant or a project.",
        )
    return {**body.model_dump(include=set(DocumentFilters.__annotations__)), "within": scope}


@router.post(
    "/similar",
    operation_id="chunks_find_similar",
    responses=described(SimilarHits, refused=(404,)),
    summary="Find similar chunks",
)
@reads
def similar(sender: Reader, body: SimilarBody) -> Response:
    """Find chunks of other documents like a document, or like its chunk at a line."""
    shared = sender.shared
    given = body.model_dump(exclude={"path_or_id"})
    found = sender.document_at(
        body.path_or_id,
        tenant_id=given.pop("tenant_id"),
        collection=given.pop("collection"),
        branch=given.pop("branch"),
        project=given.pop("project"),
    )
    hits = shared.assembly.similar.similar(found.source_id, tenant_id=found.place.tenant_id, **given)
    return respond(SimilarHits(hits=hits))


@router.get(
    "/graph/entity",
    operation_id="entities_get",
    responses=described(EntityRecords, refused=(404,), value=True),
    summary="Show entities",
)
@reads
def entity(sender: Reader, query: Annotated[EntityQuery, Query()]) -> Response:
    """Show the entities with a name, and where they are mentioned."""
    found = sender.shared.assembly.graph.entity(
        query.name, kind=query.kind, tenant_id=sender.tenant(query.tenant_id), mentions=query.limit
    )
    return respond_values(found) if sender.wants_values else respond(entity_records(found))


@router.get(
    "/graph/neighbours",
    operation_id="entities_list_neighbours",
    responses=described(GraphRecord, refused=(404,), value=True),
    summary="Show neighbours",
)
@reads
def neighbours(sender: Reader, query: Annotated[NeighboursQuery, Query()]) -> Response:
    """Show the entities around those with a name, nearest first, and the relations between them."""
    given = query.model_dump(exclude={"name", "tenant_id"})
    found = sender.shared.assembly.graph.neighbours(
        query.name, tenant_id=sender.tenant(query.tenant_id), **given
    )
    if sender.wants_values:
        return respond_values(found)
    return respond(graph_record(found.nodes, found.edges))


@router.get(
    "/graph/path",
    operation_id="entities_find_path",
    responses=described(GraphRecord, refused=(404,), value=True),
    summary="Show a way",
)
@reads
def path(sender: Reader, query: Annotated[WayQuery, Query()]) -> Response:
    """Show a shortest way between two names; without one, the lists are empty."""
    found = sender.shared.assembly.graph.path(
        query.source, query.target, tenant_id=sender.tenant(query.tenant_id)
    )
    if sender.wants_values:
        return respond_values(found)
    nodes, edges = found or ([], [])
    return respond(graph_record(((node, None) for node in nodes), edges))


@router.get(
    "/graph/stats",
    operation_id="graph_get_stats",
    responses=described(GraphCountRecord, value=True),
    summary="Count entities and relations",
)
@reads
def stats(sender: Reader, query: Annotated[GraphQuery, Query()]) -> Response:
    """Count entities and relations by kind."""
    counts = sender.shared.assembly.graph.counts(sender.tenant(query.tenant_id))
    return (
        respond_values(counts)
        if sender.wants_values
        else respond(GraphCountRecord(**msgspec.structs.asdict(counts)))
    )
