"""Announced walks. An earlier delete spares the paths of a later walk."""

from __future__ import annotations

from penstock.catalog.rules.path_scope import at_and_above, contests
from penstock.catalog.sql.read_records import WALK
from penstock.catalog.sql.statements import Statements, listed
from penstock.catalog.values import Place, Removal, Walk
from penstock.clock import format_time


def announce(rows: Statements, walk: Walk) -> None:
    place = walk.place
    # A delete that is under way is waited for: what it removed is seen to be gone, or it hears of this.
    rows.hold("tenant", place.tenant_id)
    where = (place.tenant_id, place.collection, place.branch)
    rows.send("announce", *where, walk.root, walk.rules, format_time(walk.asked_at))


def newer(rows: Statements, removal: Removal) -> tuple[Walk, ...]:
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


def at(rows: Statements, place: Place, path: str) -> list[Walk]:
    where = (place.tenant_id, place.collection, place.branch)
    return WALK.decode_all(rows.all("walks_at", *where, listed(at_and_above(path))))
