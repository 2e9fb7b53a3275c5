"""Jobs to put into a store."""

from __future__ import annotations

from datetime import UTC, datetime

from penstock.queue.job import NewJob

T0 = datetime(2026, 1, 1, tzinfo=UTC)


def new(number: int, **fields: object) -> NewJob:
    values: dict[str, object] = {
        "queue_id": f"job_{number:06d}",
        "item_type": "file",
        "op": "ingest",
        "tenant_id": "t",
        "collection": "c",
        "idempotency_key": f"file:c:{number:016x}",
        "payload_json": "{}",
    }
    return NewJob(**(values | fields))  # type: ignore[arg-type]


def call(number: int, **fields: object) -> NewJob:
    """A function job: plain, so add and claim use their fast paths."""
    own = {"item_type": "function", "op": "run", "idempotency_key": f"function:c:{number:016x}"}
    return new(number, **(own | fields))
