"""Rows of plain notes from templates: half the cost of a submission, with the same checks and values."""

from __future__ import annotations

import msgspec

from penstock import clock, items
from penstock.job import NewJob
from penstock.payloads import ContentPayload
from penstock.service.jobs import Jobs
from penstock.service.requests import Submission
from penstock.strict_json import encode_payload

_FIELDS = {"item_type", "op", "payload", "tenant_id", "collection", "branch"}
MOST_TEMPLATES = 1_000
"""Places whose templates are kept."""


class NoteRows:
    """Builds rows of submissions as ``Jobs`` does, those of plain notes from the row of an earlier one."""

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
            idempotency_key=items.idempotency_key("content", template.collection, payload),
            lock_key=items.lock_key(
                payload,
                tenant_id=template.tenant_id,
                branch=template.branch,
                collection=template.collection,
            ),
            payload_json=encoded,
            metadata=msgspec.json.encode({items.ASKED_AT: asked_at}).decode(),
        )
