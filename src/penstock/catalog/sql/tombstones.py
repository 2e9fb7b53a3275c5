"""Deletes that were asked for, as the rules read them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from penstock.catalog.sql.statements import Rows
from penstock.catalog.values import Removal
from penstock.clock import format_time


def removals(rows: Rows, tenants: Iterable[str], since: datetime) -> list[Removal]:
    """Of these tenants, not older than ``since``. Usually none."""
    return [
        Removal(
            tenant_id=tenant_id,
            collection=collection or None,
            branch=branch or None,
            path=path or None,
            source_id=source_id or None,
            asked_at=datetime.fromisoformat(asked_at),
        )
        for tenant in tenants
        for tenant_id, collection, branch, path, source_id, asked_at in rows.all(
            "tombstones", tenant, format_time(since)
        )
    ]
