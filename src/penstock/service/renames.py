"""Submission of a rename: refused where the index has nothing at the old path."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from penstock.errors import UnknownDocument
from penstock.service import paths
from penstock.service.projects import WantedPlace

if TYPE_CHECKING:
    from penstock.catalog.values import Place
    from penstock.service.documents import Documents
    from penstock.service.options import MovedWhere
    from penstock.service.requests import Submission

ABSENT = ("unknown", "removed", "moved")


def renaming(documents: Documents, old: str, new: str, where: MovedWhere) -> Submission:
    """Build the submission to record that a file or folder was moved; nothing is submitted."""
    wanted = WantedPlace(where.get("tenant_id"), None, where.get("project"))
    found = documents.projects.for_reading(old, wanted)
    place = documents.place(
        tenant_id=found.tenant_id, collection=where.get("collection"), branch=found.branch
    )
    # The catalog knows the old path by its name, even if that is a link to somewhere else by now.
    old_path, new_path = paths.shown(old), paths.real(new)
    with documents.catalog.snapshot() as snapshot:
        known = bool(snapshot.known(place, old_path, limit=1))
        recorded = bool(snapshot.known(place, new_path, limit=1))
    if not known:
        _refuse_absent(documents, old, place, recorded=recorded)
    return {
        "item_type": "rename",
        "op": "update",
        "payload": {
            "old_path": old_path,
            "new_path": new_path,
            "is_folder": os.path.isdir(new) or os.path.isdir(old),  # noqa: PTH112 - it never raises
        },
        "tenant_id": place.tenant_id,
        "collection": place.collection,
        "branch": place.branch,
        "metadata": found.metadata or None,
    }


def _refuse_absent(documents: Documents, old: str, place: Place, *, recorded: bool) -> None:
    """Refuse a path without a document. A pending job may add one, and a move may be recorded already."""
    reason = documents.why(old, tenant_id=place.tenant_id, collection=place.collection, branch=place.branch)
    if reason.verdict not in ABSENT or (reason.verdict == "moved" and recorded):
        return
    raise UnknownDocument(
        f"{reason.path} cannot be renamed: {reason.cause}",
        remedy=reason.remedy or "Check the path and the collection.",
    )
