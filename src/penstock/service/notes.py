"""Use cases about notes: add, replace, remove, list and read."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from penstock import clock
from penstock.catalog.protocol import Catalog, CatalogSnapshot
from penstock.catalog.values import Filters, Place, Source
from penstock.config import Settings
from penstock.errors import InvalidRequest, PenstockError, StoreError, UnknownDocument
from penstock.queue import payloads
from penstock.queue.job import NewJob
from penstock.queue.payloads import ContentPayload
from penstock.service.jobs import Jobs
from penstock.service.requests import Receipt, Submission, submission_at
from penstock.strict_json import encode_payload

_FIELDS = {"item_type", "op", "payload", "tenant_id", "collection", "branch"}
MOST_TEMPLATES = 1_000
"""Places whose templates are kept."""


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
        return submission_at(place, "content", "ingest", {"content": text} | payloads.tag_fields(tags))

    def replace(
        self, note_id: str, text: str, place: Place, *, tags: Sequence[str] = (), drop_tags: bool = False
    ) -> Receipt:
        """Replace the text of a note. Its tags stay, unless there are new ones or ``drop_tags``."""
        payload = {"content": text, "document_id": note_id} | payloads.tag_fields(tags)
        return self._submit("update", place, payload | ({"drop_tags": True} if drop_tags else {}))

    def remove(self, text_or_id: str, place: Place) -> Receipt:
        """Remove the note with this id, or with exactly this text."""
        with self._catalog.snapshot() as snapshot:
            by_id = snapshot.get(text_or_id) is not None
        return self._submit("delete", place, {"document_id" if by_id else "content": text_or_id})

    def _submit(self, op: str, place: Place, payload: dict[str, Any]) -> Receipt:
        return self._jobs.submit(**submission_at(place, "content", op, payload))

    def place_of(
        self, tenant_id: str | None = None, collection: str | None = None, branch: str | None = None
    ) -> Place:
        """The place with these names, the rest from the settings."""
        return Place(
            payloads.validate_name("tenant_id", tenant_id or self._settings.tenant_id),
            collection or self._settings.collection,
            branch or "main",
        )

    def find(self, text: str, place: Place) -> str | None:
        """Return the id of the note with exactly this text."""
        with self._catalog.snapshot() as snapshot:
            found = snapshot.find(place, payloads.note_path(text))
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
            tenant_id=payloads.validate_name("tenant_id", tenant_id or self._settings.tenant_id),
            collection=collection,
            path=payloads.NOTES + "*",
            tag=tag,
        )
        with self._catalog.snapshot() as snapshot:
            found = snapshot.sources(filters, after=after, limit=limit, newest_first=True)
        return [_view(source) for source in found]

    def read(self, note_id: str, *, tenant_id: str | None = None) -> NoteView:
        """Return a note of the tenant with its text, from any collection."""
        tenant = payloads.validate_name("tenant_id", tenant_id or self._settings.tenant_id)
        with self._catalog.snapshot() as snapshot:
            found = snapshot.identified(note_id)
            usable = found is not None and found.live and found.path.startswith(payloads.NOTES)
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


class NoteRows:
    """Builds rows of submissions as ``Jobs`` does, those of plain notes from the row of an earlier one.

    That is half the cost of a submission, with the same checks and values.
    """

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs
        self._templates: dict[tuple[str | None, str | None, str], NewJob] = {}

    def build(self, given: Submission) -> NewJob:
        """Check a submission and build its row; raises what ``Jobs.submit`` raises."""
        template = self._template(given)
        if template is not None:
            return self._from_template(template, given["payload"]["content"])
        (new,) = self._jobs._new([given], joins=False)
        return new

    def _template(self, given: Submission) -> NewJob | None:
        """The row of an earlier plain note at the same place, if this one is plain as well."""
        if given.keys() != _FIELDS or (given["item_type"], given["op"]) != ("content", "ingest"):
            return None
        payload = given["payload"]
        if payload.keys() != {"content"} or not payload["content"].strip():
            return None
        place = (given["tenant_id"], given["collection"], given["branch"])
        found = self._templates.get(place)
        if found is None:
            if len(self._templates) == MOST_TEMPLATES:
                self._templates.clear()
            (found,) = self._jobs._new([given], joins=False)
            self._templates[place] = found
        return found

    def _from_template(self, template: NewJob, text: str) -> NewJob:
        encoded = encode_payload({"content": text}, max_bytes=self._jobs.settings.max_payload_bytes)
        payload = ContentPayload(content=text)
        (queue_id,) = clock.new_ids(1)
        asked_at = clock.format_time(self._jobs.queue.now())
        return msgspec.structs.replace(
            template,
            queue_id=queue_id,
            idempotency_key=payloads.idempotency_key("content", template.collection, payload),
            lock_key=payloads.lock_key(
                payload,
                tenant_id=template.tenant_id,
                branch=template.branch,
                collection=template.collection,
            ),
            payload_json=encoded,
            metadata=msgspec.json.encode({payloads.ASKED_AT: asked_at}).decode(),
        )


def submit_each(
    jobs: Jobs, rows: NoteRows, submissions: Sequence[Submission]
) -> list[Receipt | PenstockError]:
    """Add jobs of different senders in one transaction; an invalid job is refused alone.

    A commit costs more than a row. Receipts as of ``submit``.
    """
    outcomes: list[PenstockError | NewJob] = []
    for submission in submissions:
        try:
            outcomes.append(rows.build(submission))
        except InvalidRequest as refusal:
            outcomes.append(refusal)
    answers = iter(_add_each(jobs, [each for each in outcomes if isinstance(each, NewJob)]))
    return [next(answers) if isinstance(each, NewJob) else each for each in outcomes]


def _add_each(jobs: Jobs, new: Sequence[NewJob]) -> list[Receipt | PenstockError]:
    if not new:
        return []
    try:
        added = jobs.add_counted(new, jobs._limits())
    except PenstockError as refusal:
        if len(new) == 1 or isinstance(refusal, StoreError):
            return [refusal] * len(new)
        # The limit of the queue, for example: some of them may fit.
        return [answer for each in new for answer in _add_each(jobs, [each])]
    return [jobs.placed(jobs.receipt_of(each, *one)) for each, one in zip(new, added, strict=True)]
