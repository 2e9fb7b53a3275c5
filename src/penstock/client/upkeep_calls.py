"""Calls for notes, and for the upkeep of queue and catalog. Pure, like ``calls``."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.client.calls import ApiCall, _get, _id, _json, _post, _same, _submission, _target
from penstock.service.requests import (
    FailedJobs,
    MovedWhere,
    NoteChanges,
    NoteFilters,
    PathPlace,
    refuse_unknown,
)

if TYPE_CHECKING:
    from penstock.catalog.values import PageState
    from penstock.service.documents import Overview
    from penstock.service.notes import NoteView
    from penstock.service.requests import HistoryEntry, Receipt, RetryAnswer


def notes(filters: NoteFilters) -> ApiCall[list[NoteView]]:
    """List notes; one more than ``limit`` of them is never asked for."""
    from penstock.service.notes import NoteView

    refuse_unknown("notes", filters, NoteFilters)
    query: dict[str, Any] = dict(filters)
    query["cursor"] = query.pop("after", None) or None
    target = _target("/notes", query)
    return ApiCall("GET", target, dict[str, Any], lambda value: _views(value["notes"], NoteView))


def _views(values: list[Any], kind: type[NoteView]) -> list[NoteView]:
    import msgspec

    return msgspec.convert(values, list[kind])  # type: ignore[valid-type]


def note(note_id: str, tenant_id: str | None) -> ApiCall[NoteView]:
    """Read a note with its text."""
    from penstock.service.notes import NoteView

    return _get(f"/notes/{_id(note_id)}", NoteView, {"tenant_id": tenant_id})


def replace_note(note_id: str, text: str, changes: NoteChanges) -> ApiCall[Receipt]:
    """Queue a new text of a note."""
    refuse_unknown("replace_note", changes, NoteChanges)
    call = _submission(f"/notes/{_id(note_id)}", {"content": text, **changes})
    return msgspec.structs.replace(call, method="PUT")


def remove_note(note_id: str, tenant_id: str | None) -> ApiCall[Receipt]:
    """Queue the removal of a note."""
    from penstock.service.requests import Receipt

    target = _target(f"/notes/{_id(note_id)}", {"tenant_id": tenant_id})
    return ApiCall("DELETE", target, Receipt, _same, repeatable=False, patience="index")


def overview(tenant_id: str | None) -> ApiCall[Overview]:
    """Count documents by collection."""
    from penstock.service.documents import Overview

    return _get("/overview", Overview, {"tenant_id": tenant_id})


def history(path_or_id: str, where: PathPlace) -> ApiCall[list[HistoryEntry]]:
    """Read the events of a document."""
    import msgspec

    from penstock.service.requests import HistoryEntry

    refuse_unknown("history", where, PathPlace)
    target = _target("/history", {"document": path_or_id, **where})
    kind: Any = dict[str, Any]
    return ApiCall("GET", target, kind, lambda value: msgspec.convert(value["history"], list[HistoryEntry]))


def pages(source_id: str, limit: int) -> ApiCall[list[PageState]]:
    """Read the states of the first pages of a document."""
    from penstock.catalog.values import PageState

    return _get(f"/documents/{_id(source_id)}/tree", list[PageState], {"first": 1, "last": limit})


def rename(old: str, new: str, where: MovedWhere) -> ApiCall[Receipt]:
    """Queue the record of a move."""
    refuse_unknown("rename", where, MovedWhere)
    return _submission("/documents/rename", {"old_path": old, "new_path": new, **where})


def remove_path(path_or_id: str, where: PathPlace) -> ApiCall[Receipt]:
    """Queue the removal of a document or folder."""
    refuse_unknown("remove", where, PathPlace)
    return _submission("/documents/remove", {"path_or_id": path_or_id, **where})


def remove_tenant(name: str) -> ApiCall[Receipt]:
    """Queue the removal of a tenant."""
    from penstock.service.requests import Receipt

    return ApiCall("DELETE", f"/tenants/{_id(name)}", Receipt, _same, repeatable=False, patience="index")


def purge(status: Sequence[str], older_than: timedelta) -> ApiCall[int]:
    """Remove ended jobs."""
    fields = {"status": list(status), "older_than_s": older_than.total_seconds()}
    return ApiCall(
        "POST",
        "/queue/purge",
        dict[str, Any],
        lambda value: int(value["removed"]),
        _json(fields),
        repeatable=False,
        patience="index",
    )


def retry_failed(filters: FailedJobs) -> ApiCall[RetryAnswer]:
    """Retry failed jobs."""
    from penstock.service.requests import RetryAnswer

    refuse_unknown("retry_failed", filters, FailedJobs)
    call = _post("/queue/retry-failed", RetryAnswer, filters, changes=True)
    return msgspec.structs.replace(call, patience="index")
