"""Requested deletes, and announced walks: an earlier delete spares the paths of a later walk."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from penstock.catalog.rules.path_scope import at_and_above, contests
from penstock.catalog.sql.read_records import WALK
from penstock.catalog.sql.statements import Statements, listed
from penstock.catalog.values import Place, Removal, Walk
from penstock.clock import format_time, read_time

ALONE = "\x01"
"""Last character of the path of a delete without the paths below. No requested path has it."""


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
    # Looked up by path and by each folder above, so the cost does not depend on the number of tombstones.
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
            asked_at=read_time(asked_at),
        )
        for tenant_id, collection, branch, path, source_id, asked_at in rows.all(
            "tombstones", *scope, listed(sorted(paths)), listed(sorted(sources)), asked_at
        )
    ]


def announce(rows: Statements, walk: Walk) -> None:
    place = walk.place
    # A delete that is under way is waited for: what it removed is seen to be gone, or it hears of this.
    rows.hold("tenant", place.tenant_id)
    where = (place.tenant_id, place.collection, place.branch)
    rows.send("announce", *where, walk.root, walk.rules, format_time(walk.asked_at))


def newer_walks(rows: Statements, removal: Removal) -> tuple[Walk, ...]:
    """Unheard walks requested after the delete. Usually none."""
    scope = (removal.collection or "", removal.branch or "")
    found = rows.all("walks_since", removal.tenant_id, format_time(removal.asked_at), *scope)
    walks = WALK.decode_all(found)
    if not walks:
        return ()
    path = removal.path
    if removal.source_id is not None:
        row = rows.one("whereabouts", removal.source_id)
        if row is None:
            return ()
        *place, path = row
        walks = [walk for walk in walks if walk.place == Place(*place)]
    wanting = (walk for walk in walks if contests(walk, removal, path))
    return tuple(walk for walk in wanting if walk not in removal.heard)


def walks_at(rows: Statements, place: Place, path: str) -> list[Walk]:
    where = (place.tenant_id, place.collection, place.branch)
    return WALK.decode_all(rows.all("walks_at", *where, listed(at_and_above(path))))
