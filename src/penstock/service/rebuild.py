"""Re-indexing after a change of model, parser or chunker: the cost, and the jobs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from penstock.catalog.protocol import Catalog, known_below
from penstock.catalog.values import Phase, Place
from penstock.handlers.reindex import OUTDATED, why_outdated
from penstock.items import validate_name
from penstock.pipeline.embed.protocol import space_of
from penstock.pipeline.pipeline import Pipeline
from penstock.pipeline.walk.repository import WORK_TREE
from penstock.service.jobs import Jobs
from penstock.service.requests import Submission
from penstock.service.responses import Receipt

REASONS = {
    "model": "vectors of another model",
    "reading": "older version of parser or chunker",
    "graph": "entities of another extractor",
}
EVERYTHING = "/"
PRIORITY = 0
"""Background work: every other request goes first."""


class Cost(msgspec.Struct, kw_only=True):
    """Documents and chunks to process; chunks with cached vectors are not embedded again."""

    documents: int = 0
    chunks: int = 0


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Documents to re-index, by reason. ``roots`` are the folders above them."""

    space: str
    total: Cost
    by_reason: dict[str, Cost]
    roots: tuple[tuple[Place, str], ...]
    looked_at: int
    """All documents at or below the given paths, outdated or not."""


class Rebuilder:
    """Plans and starts re-indexing; writes nothing before ``start``."""

    def __init__(self, catalog: Catalog, jobs: Jobs, pipeline: Pipeline) -> None:
        self._catalog = catalog
        self._jobs = jobs
        self._pipeline = pipeline

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
                reason = why_outdated(known, self._pipeline) if known.published_id is not None else None
                if reason is not None:
                    for cost in (total, by_reason[reason]):
                        cost.documents += 1
                        cost.chunks += known.chunk_count
            if total.documents > before:
                roots.append((place, root))
        return Plan(
            space=space_of(self._pipeline.embedder),
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
        """Make this process's model the catalog's, and queue the jobs.

        Published documents stay until their successors are published. Workers with another model stop
        indexing from now on.
        """
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
                "metadata": {OUTDATED: True} | self._work_tree(place),
                # An ordinary index job of the same folder does not re-index unchanged files.
                "dedupe": False,
            }
            for place, root in plan.roots
        ]
        # Without limits: a refusal here would leave the new model without jobs.
        return self._jobs.submit_many(submissions, limited=False, exact=True)

    def _work_tree(self, place: Place) -> dict[str, str]:
        """The metadata for keeping files of another branch out of a project's documents."""
        found = [one.root for one in self._catalog.projects.all() if one.tenant_id == place.tenant_id]
        return {WORK_TREE: found[0]} if found else {}
