"""Tombstones: requested deletes, as the rules read them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from penstock.catalog.rules.path_scope import at_and_above
from penstock.catalog.sql.statements import Statements, listed
from penstock.catalog.values import Place, Removal
from penstock.clock import format_time

ALONE = "\x01"
"""How the path of a delete ends that means this path and nothing below it. No path asked for does."""


def add(rows: Statements, removal: Removal, at: str) -> None:
    # As ``at_and_above`` names it.
    path = (removal.path.rstrip("/") or "/") if removal.path else ""
    rows.send(
        "add_tombstone",
        removal.tenant_id,
        removal.collection or "",
        removal.branch or "",
        path if removal.below else path + ALONE,
        removal.source_id or "",
        format_time(removal.asked_at),
        removal.reason,
        at,
    )


def removals(
    rows: Statements, place: Place, wanted: Iterable[tuple[str, str | None]], since: datetime
) -> list[Removal]:
    """Not older than ``since``, and about these paths, or their sources. Usually none."""
    asked_at = format_time(since)
    if not rows.value("any_tombstone", place.tenant_id, asked_at):
        return []
    # By where they could stand: one look for each path and folder, however many files were deleted today.
    paths, sources = {""}, set()
    for path, source_id in wanted:
        paths |= {path + ALONE, *at_and_above(path)}
        sources.add(source_id or "")
    scope = (place.tenant_id, place.collection, place.branch)
    return [
        Removal(
            tenant_id=tenant_id,
            collection=collection or None,
            branch=branch or None,
            path=path.removesuffix(ALONE) or None,
            source_id=source_id or None,
            below=not path.endswith(ALONE),
            asked_at=datetime.fromisoformat(asked_at),
        )
        for tenant_id, collection, branch, path, source_id, asked_at in rows.all(
            "tombstones", *scope, listed(sorted(paths)), listed(sorted(sources)), asked_at
        )
    ]
