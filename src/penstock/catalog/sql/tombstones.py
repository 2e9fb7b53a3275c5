"""Deletes that were asked for, as the rules read them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from penstock.catalog.sql.statements import Rows
from penstock.catalog.values import Removal
from penstock.clock import format_time

ALONE = "\x01"
"""How the path of a delete ends that means this path and nothing below it. No path asked for does."""


def add(rows: Rows, removal: Removal, at: str) -> None:
    path = removal.path or ""
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


def removals(rows: Rows, tenants: Iterable[str], since: datetime) -> list[Removal]:
    """Of these tenants, not older than ``since``. Usually none."""
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
        for tenant in tenants
        for tenant_id, collection, branch, path, source_id, asked_at in rows.all(
            "tombstones", tenant, format_time(since)
        )
    ]
