"""Routes of notes: list, show, replace and remove. ``POST /content`` adds one."""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import APIRouter, Path, Query
from starlette.responses import Response

from penstock.catalog.values import Place
from penstock.http.index_routes import ACCEPTED, accepted
from penstock.http.problems import described, respond
from penstock.http.request_context import Reader, Sender, Writer, reads, writes
from penstock.http.upkeep_routes import NoteBody, NotesQuery, TenantQuery
from penstock.service.notes import NoteView

router = APIRouter(prefix="/notes", tags=["notes"])

_NoteId = Annotated[str, Path(description="Id of a note.", max_length=512)]


class NotePage(msgspec.Struct, frozen=True, kw_only=True):
    """Notes, newest first, without their texts. ``next`` is the cursor of the next page."""

    notes: list[NoteView]
    next: str | None


@router.get("", operation_id="notes_list", responses=described(NotePage), summary="List notes")
@reads
def notes(sender: Reader, query: Annotated[NotesQuery, Query()]) -> Response:
    """List the notes of one tenant, newest first."""
    found = sender.shared.documents.notes.page(
        tenant_id=sender.tenant(query.tenant_id),
        collection=query.collection,
        tag=query.tag,
        after=query.cursor,
        limit=query.limit + 1,
    )
    page = found[: query.limit]
    following = page[-1].note_id if len(found) > query.limit else None
    return respond(NotePage(notes=page, next=following))


@router.get(
    "/{note_id}",
    operation_id="notes_get",
    responses=described(NoteView, refused=(404,)),
    summary="Show a note",
)
@reads
def note(sender: Reader, note_id: _NoteId, query: Annotated[TenantQuery, Query()]) -> Response:
    """Show a note with its text."""
    return respond(_own(sender, note_id, query.tenant_id))


@router.put(
    "/{note_id}", operation_id="notes_replace", status_code=202, responses=ACCEPTED, summary="Replace a note"
)
@writes
def replace(sender: Writer, note_id: _NoteId, body: NoteBody) -> Response:
    """Queue a new text for a note. Its tags stay, unless there is a new one or `drop_tags`."""
    own = _own(sender, note_id, body.tenant_id)
    receipt = sender.shared.documents.notes.replace(
        own.note_id,
        body.content,
        _place(own),
        tags=[body.tag] if body.tag is not None else (),
        drop_tags=body.drop_tags,
    )
    return accepted(sender, receipt)


@router.delete(
    "/{note_id}", operation_id="notes_remove", status_code=202, responses=ACCEPTED, summary="Remove a note"
)
@writes
def remove(sender: Writer, note_id: _NoteId, query: Annotated[TenantQuery, Query()]) -> Response:
    """Queue the removal of a note."""
    own = _own(sender, note_id, query.tenant_id)
    return accepted(sender, sender.shared.documents.notes.remove(own.note_id, _place(own)))


def _own(sender: Sender, note_id: str, tenant_id: str | None) -> NoteView:
    """The note of the sender; one of another tenant does not exist."""
    return sender.shared.documents.notes.read(note_id, tenant_id=sender.tenant(tenant_id))


def _place(note: NoteView) -> Place:
    return Place(note.tenant_id, note.collection, note.branch)
