"""A change of model, or of how documents are read: what it would cost, and having it done."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from penstock.catalog.pagination import known_below
from penstock.catalog.protocol import Catalog
from penstock.catalog.values import Phase, Place
from penstock.handlers.reindex import OUTDATED, why_outdated
from penstock.items import validate_name
from penstock.pipeline.embed.protocol import space_of
from penstock.pipeline.pipeline import Pipeline
from penstock.service.jobs import Jobs
from penstock.service.requests import Submission
from penstock.service.responses import Receipt

REASONS = {
    "model": "vectors of another model",
    "reading": "read or cut in another way",
}
EVERYTHING = "/"
PRIORITY = 0
"""In the background: whatever anybody asks for goes before."""


class Cost(msgspec.Struct, kw_only=True):
    """``chunks`` are embedded at most: texts whose vectors are known are not."""

    documents: int = 0
    chunks: int = 0


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What would be done again, and why. ``roots``: where."""

    space: str
    total: Cost
    by_reason: dict[str, Cost]
    roots: tuple[tuple[Place, str], ...]
    looked_at: int
    """Documents at or below the paths asked for, outdated or not."""


class Rebuilder:
    """Looks at every source below some paths; writes nothing before ``start``."""

    def __init__(self, catalog: Catalog, jobs: Jobs, recipe: Pipeline) -> None:
        self._catalog = catalog
        self._jobs = jobs
        self._recipe = recipe

    def plan(
        self, paths: Sequence[str] = (), *, tenant_id: str | None = None, collection: str | None = None
    ) -> Plan:
        if tenant_id is not None:
            validate_name("tenant_id", tenant_id)
        total, by_reason = Cost(), {reason: Cost() for reason in REASONS}
        roots, looked_at = [], 0
        for place, root in self._roots(paths, tenant_id, collection):
            before = total.documents
            for known in known_below(self._catalog, place, None if root == EVERYTHING else root):
                looked_at += known.published_id is not None
                reason = why_outdated(known, self._recipe) if known.published_id is not None else None
                if reason is not None:
                    for cost in (total, by_reason[reason]):
                        cost.documents += 1
                        cost.chunks += known.chunk_count
            if total.documents > before:
                roots.append((place, root))
        return Plan(
            space=space_of(self._recipe.embedder),
            total=total,
            by_reason={reason: cost for reason, cost in by_reason.items() if cost.documents},
            roots=tuple(roots),
            looked_at=looked_at,
        )

    def _roots(
        self, paths: Sequence[str], tenant_id: str | None, collection: str | None
    ) -> Iterator[tuple[Place, str]]:
        with self._catalog.snapshot() as snapshot:
            tenants = snapshot.tenants(tenant_id)
        for one in tenants:
            if collection in (None, one.collection):
                place = Place(one.tenant_id, one.collection, one.branch)
                yield from ((place, root) for root in paths or (EVERYTHING,))

    def start(self, plan: Plan) -> list[Receipt]:
        """Make this process's model the catalog's, and queue the work. What is published stays until its
        successor is. Workers with another model stop indexing from now on."""
        self._catalog.set_fingerprints({Phase.VECTOR: plan.space}, replace=True)
        submissions: list[Submission] = [
            {
                "item_type": "folder",
                "op": "ingest",
                "payload": {"folder_path": root},
                "tenant_id": place.tenant_id,
                "collection": place.collection,
                "branch": place.branch,
                "priority": PRIORITY,
                "metadata": {OUTDATED: True},
                # Whoever indexes the same folder meanwhile asks for something else.
                "dedupe": False,
            }
            for place, root in plan.roots
        ]
        # Not limited: refused now, the model would be another's and nobody at work on it.
        return self._jobs.submit_many(submissions, limited=False)
