"""Child jobs: one for each file or folder of a larger job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from penstock import items
from penstock.handlers.context import Context
from penstock.job import NewJob
from penstock.payloads import FilePayload, Payload
from penstock.strict_json import encode_payload

MOVED_AWAY = "moved_away"
"""In a job's metadata: the folder was renamed, so an empty folder is not an unmounted disk."""
_encode = msgspec.json.Encoder().encode


def child_job(
    context: Context,
    queue_id: str,
    item_type: str,
    op: str,
    body: Mapping[str, Any],
    *,
    priority: int | None = None,
    metadata: str | None = None,
) -> NewJob:
    """A child job in the parent's place, by default one priority lower and with the parent's metadata."""
    payload = items.parse_payload(item_type, op, body)
    # No second limit: the contents of a child were accepted with its parent or its source.
    encoded = encode_payload(body, max_bytes=None)
    return _child(context, queue_id, (item_type, op), payload, encoded, priority=priority, metadata=metadata)


def file_job(
    context: Context,
    queue_id: str,
    op: str,
    payload: FilePayload,
    *,
    priority: int,
    metadata: str | None = None,
) -> NewJob:
    """A child job for a file found by a walk or known to the catalog; the path is not checked again."""
    encoded = _encode(payload).decode()
    return _child(context, queue_id, ("file", op), payload, encoded, priority=priority, metadata=metadata)


def same_job(context: Context, queue_id: str, branch: str) -> NewJob:
    """A child that does the work of its parent for another branch."""
    claim = context.claim
    payload = items.parse_payload(claim.item_type, claim.op, context.payload)
    encoded = encode_payload(context.payload, max_bytes=None)
    kind = (claim.item_type, claim.op)
    return _child(context, queue_id, kind, payload, encoded, priority=claim.priority, branch=branch)


def _child(
    context: Context,
    queue_id: str,
    kind: tuple[str, str],
    payload: Payload,
    payload_json: str,
    *,
    priority: int | None = None,
    metadata: str | None = None,
    branch: str | None = None,
) -> NewJob:
    claim, (item_type, op) = context.claim, kind
    # A parent holds its lock until its children have ended. Did they wait for locks, two parents could
    # wait for each other's, as two crossing renames did. The catalog copes with two readings of a file.
    lock = None
    if claim.lock_key is None:
        place = {
            "tenant_id": claim.tenant_id,
            "branch": branch or claim.branch,
            "collection": claim.collection,
        }
        lock = items.lock_key(payload, **place)
    return NewJob(
        queue_id=queue_id,
        item_type=item_type,
        op=op,
        tenant_id=claim.tenant_id,
        collection=claim.collection,
        branch=branch or claim.branch,
        idempotency_key=items.idempotency_key(item_type, claim.collection, payload),
        payload_json=payload_json,
        priority=items.child_priority(claim.priority) if priority is None else priority,
        metadata=claim.metadata if metadata is None else metadata,
        lock_key=lock,
        max_retries=claim.max_retries,
        timeout_s=claim.timeout_s,
        submitted_by=claim.submitted_by,
    )
