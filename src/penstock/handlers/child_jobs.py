"""The jobs that a job about many things expands into: one for each file or folder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from penstock import items
from penstock.handlers.context import Context
from penstock.job import NewJob
from penstock.payloads import FilePayload, Payload, encode_payload

MOVED_AWAY = "moved_away"
"""In a job's metadata: a rename was told, so that an empty folder is empty, and no disk that is away."""
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
    """A child in its parent's place: one less urgent, and with its metadata, unless told otherwise."""
    payload = items.parse_payload(item_type, op, body)
    # No second limit: what a child is made of was accepted, and is as large as it is.
    encoded = encode_payload(body, max_bytes=None)
    return _child(context, queue_id, (item_type, op), payload, encoded, priority=priority, metadata=metadata)


def file_job(context: Context, queue_id: str, op: str, payload: FilePayload, *, priority: int) -> NewJob:
    """A child for a file that a walk has found, or the catalog knows: its path needs no other check."""
    return _child(context, queue_id, ("file", op), payload, _encode(payload).decode(), priority=priority)


def _child(
    context: Context,
    queue_id: str,
    kind: tuple[str, str],
    payload: Payload,
    payload_json: str,
    *,
    priority: int | None = None,
    metadata: str | None = None,
) -> NewJob:
    claim, (item_type, op) = context.claim, kind
    lock = items.lock_key(
        payload, tenant_id=claim.tenant_id, branch=claim.branch, collection=claim.collection
    )
    return NewJob(
        queue_id=queue_id,
        item_type=item_type,
        op=op,
        tenant_id=claim.tenant_id,
        collection=claim.collection,
        branch=claim.branch,
        idempotency_key=items.idempotency_key(item_type, claim.collection, payload),
        payload_json=payload_json,
        priority=items.child_priority(claim.priority) if priority is None else priority,
        metadata=claim.metadata if metadata is None else metadata,
        # A parent holds its lock until its children have ended: a child that wants it would wait for ever.
        lock_key=None if lock == claim.lock_key else lock,
        max_retries=claim.max_retries,
        timeout_s=claim.timeout_s,
        submitted_by=claim.submitted_by,
    )
