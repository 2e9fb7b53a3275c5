"""Use cases about notes: add, replace, remove, list and read."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from penstock import items
from penstock.catalog.protocol import Catalog, CatalogSnapshot
from penstock.catalog.values import Filters, Place, Source
from penstock.config import Settings
from penstock.errors import UnknownDocument
from penstock.service.requests import Submission

if TYPE_CHECKING:
    from penstock.service.jobs import Jobs
    from penstock.service.responses import Receipt


class NoteView(msgspec.Struct, frozen=True, kw_only=True):
    """A note. ``text`` is None in lists."""

    note_id: str
    title: str
    tags: tuple[str, ...]
    tenant_id: str
    collection: str
    branch: str
    size: int
    created_at: datetime
    updated_at: datetime | None
    text: str | None = None


class Notebook:
    """The notes of one catalog, each in a tenant, a collection and a branch."""

    def __init__(self, catalog: Catalog, jobs: Jobs, settings: Settings) -> None:
        self._catalog = catalog
        self._jobs = jobs
        self._settings = settings

    def add(self, text: str, place: Place, *, tags: Sequence[str] = ()) -> Receipt:
        """Add a note. An equal text is the same note, and gets the new tags."""
        return self._jobs.submit(**self.addition(text, place, tags=tags))

    def addition(self, text: str, place: Place, *, tags: Sequence[str] = ()) -> Submission:
        """Build the submission of ``add`` without submitting it."""
        return _submission("ingest", place, {"content": text} | items.tag_fields(tags))

    def replace(
        self, note_id: str, text: str, place: Place, *, tags: Sequence[str] = (), drop_tags: bool = False
    ) -> Receipt:
        """Replace the text of a note. Its tags stay, unless there are new ones or ``drop_tags``."""
        payload = {"content": text, "document_id": note_id} | items.tag_fields(tags)
        return self._submit("update", place, payload | ({"drop_tags": True} if drop_tags else {}))

    def remove(self, text_or_id: str, place: Place) -> Receipt:
        """Remove the note with this id, or with exactly this text."""
        with self._catalog.snapshot() as snapshot:
            by_id = snapshot.get(text_or_id) is not None
        return self._submit("delete", place, {"document_id" if by_id else "content": text_or_id})

    def _submit(self, op: str, place: Place, payload: dict[str, Any]) -> Receipt:
        return self._jobs.submit(**_submission(op, place, payload))

    def place_of(
        self, tenant_id: str | None = None, collection: str | None = None, branch: str | None = None
    ) -> Place:
        """The place with these names, the rest from the settings."""
        return Place(
            items.validate_name("tenant_id", tenant_id or self._settings.tenant_id),
            collection or self._settings.collection,
            branch or "main",
        )

    def find(self, text: str, place: Place) -> str | None:
        """Return the id of the note with exactly this text."""
        with self._catalog.snapshot() as snapshot:
            found = snapshot.find(place, items.note_path(text))
        return found.source_id if found is not None and found.live else None

    def page(
        self,
        *,
        tenant_id: str | None = None,
        collection: str | None = None,
        tag: str | None = None,
        after: str = "",
        limit: int = 50,
    ) -> list[NoteView]:
        """List notes, newest first, without their texts. ``after``: the last id of the previous page."""
        filters = Filters(
            tenant_id=items.validate_name("tenant_id", tenant_id or self._settings.tenant_id),
            collection=collection,
            path=items.NOTES + "*",
            tag=tag,
        )
        with self._catalog.snapshot() as snapshot:
            found = snapshot.sources(filters, after=after, limit=limit, newest_first=True)
        return [_view(source) for source in found]

    def read(self, note_id: str, *, tenant_id: str | None = None) -> NoteView:
        """Return a note of the tenant with its text, from any collection."""
        tenant = items.validate_name("tenant_id", tenant_id or self._settings.tenant_id)
        with self._catalog.snapshot() as snapshot:
            found = snapshot.identified(note_id)
            usable = found is not None and found.live and found.path.startswith(items.NOTES)
            if found is None or not usable or found.place.tenant_id != tenant:
                raise UnknownDocument(
                    f"no note {note_id[:200]!r} of tenant {tenant}", remedy="List the ids: penstock note list"
                )
            return msgspec.structs.replace(_view(found), text=_text(snapshot, found))


def _view(source: Source) -> NoteView:
    return NoteView(
        note_id=source.source_id,
        title=source.title,
        tags=source.tags,
        tenant_id=source.place.tenant_id,
        collection=source.place.collection,
        branch=source.place.branch,
        size=source.size,
        created_at=source.created_at,
        updated_at=source.published_at,
    )


def _text(snapshot: CatalogSnapshot, source: Source) -> str | None:
    """The text stored with the first page; None while the first version is being indexed."""
    pages = snapshot.content(source.published_id) if source.published_id is not None else ()
    return pages[0].text if pages else None


def _submission(op: str, place: Place, payload: dict[str, Any]) -> Submission:
    return {
        "item_type": "content",
        "op": op,
        "payload": payload,
        "tenant_id": place.tenant_id,
        "collection": place.collection,
        "branch": place.branch,
    }
