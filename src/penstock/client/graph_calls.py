"""Calls about entities and relations. Pure, like ``calls``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from penstock.client.calls import ApiCall, _get, _same, _target
from penstock.service.requests import EntityOptions, NeighbourOptions, refuse_unknown

if TYPE_CHECKING:
    from penstock.catalog.graph import Edge, GraphCounts, Neighbourhood, Node
    from penstock.service.graph import EntityReport

    Way: TypeAlias = tuple[list[Node], list[Edge]]


def entity(name: str, options: EntityOptions) -> ApiCall[list[EntityReport]]:
    """Find entities by name."""
    from penstock.service.graph import EntityReport

    refuse_unknown("graph_entity", options, EntityOptions)
    given: dict[str, Any] = dict(options)
    given["limit"] = given.pop("mentions", None)
    return _get("/graph/entity", list[EntityReport], {"name": name, **given})


def neighbours(name: str, options: NeighbourOptions) -> ApiCall[Neighbourhood]:
    """Find the entities around those with a name."""
    from penstock.catalog.graph import Neighbourhood

    refuse_unknown("graph_neighbours", options, NeighbourOptions)
    return _get("/graph/neighbours", Neighbourhood, {"name": name, **options})


def path(source: str, target: str, tenant_id: str | None) -> ApiCall[Way | None]:
    """Find a shortest way between two names."""
    from penstock.catalog.graph import Edge, Node

    query = {"source": source, "target": target, "tenant_id": tenant_id}
    kind: Any = tuple[list[Node], list[Edge]] | None
    return ApiCall("GET", _target("/graph/path", query), kind, _same)


def counts(tenant_id: str | None) -> ApiCall[GraphCounts]:
    """Count entities and relations."""
    from penstock.catalog.graph import GraphCounts

    return _get("/graph/stats", GraphCounts, {"tenant_id": tenant_id})
