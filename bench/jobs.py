"""The jobs every measurement uses: 20 tenants, 3 priorities, half files, half functions, 250 bytes each."""

from __future__ import annotations

import hashlib

from penstock import clock
from penstock.queue.job import NewJob

TENANTS = 20
PRIORITIES = (3, 5, 9)
PAYLOAD_BYTES = 250
KINDS = (("file", "ingest"), ("function", "run"))


def new_jobs(count: int, *, locks: bool = True) -> list[NewJob]:
    """Every job has a key of its own; with ``locks`` also a lock of its own: none waits for another."""
    return [_new_job(number, queue_id, locks) for number, queue_id in enumerate(clock.new_ids(count))]


def _new_job(number: int, queue_id: str, locks: bool) -> NewJob:
    item_type, op = KINDS[number // TENANTS % len(KINDS)]
    # Hashed as real keys are: neighbours in time are not neighbours in an index.
    key = hashlib.sha256(queue_id.encode()).hexdigest()
    return NewJob(
        queue_id=queue_id,
        item_type=item_type,
        op=op,
        tenant_id=f"tenant-{number % TENANTS:02d}",
        collection="documents",
        idempotency_key=f"{item_type}:documents:{key[:16]}",
        payload_json=_payload(key),
        priority=PRIORITIES[number // (TENANTS * len(KINDS)) % len(PRIORITIES)],
        lock_key=f"doc:{key[32:48]}" if locks else None,
    )


def _payload(key: str) -> str:
    start = f'{{"path":"/srv/corpus/{key[:16]}.md","note":"'
    return start + "x" * (PAYLOAD_BYTES - len(start) - 2) + '"}'
