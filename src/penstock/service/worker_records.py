"""Workers and the services they call, as their reports show them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Literal

import msgspec

from penstock.job import WORKER_ENDED, WorkerReport
from penstock.queue.protocol import Queue


class WorkerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A worker with a recent report. ``state``: ``alive``, or ``silent`` after two missed heartbeats."""

    worker_id: str
    host: str
    pid: int
    processes: int
    lanes: list[str]
    slots: int
    running: int | None
    started_at: datetime
    heartbeat_at: datetime | None
    state: Literal["alive", "silent"]


class BreakerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A recently failed service, or a lane not served by a worker: ``state`` says which."""

    name: str
    state: Annotated[str, msgspec.Meta(extra_json_schema={"enum": ["open", "half-open", "closed"]})]
    reason: str | None = None
    until: datetime | None = None


def worker_records(queue: Queue, heartbeat_s: float) -> list[WorkerRecord]:
    """Workers without a reported end."""
    now = queue.now()
    return [
        WorkerRecord(
            worker_id=worker.worker_id,
            host=worker.host,
            pid=worker.pid,
            processes=int(worker.info.get("processes", 1)),
            lanes=list(worker.info.get("lanes", ())),
            slots=int(worker.info.get("processes", 1)),
            running=worker.info.get("running"),
            started_at=worker.started_at,
            heartbeat_at=worker.seen_at,
            state="alive" if worker.alive(now, heartbeat_s) else "silent",
        )
        for worker in queue.workers()
        if not worker.info.get(WORKER_ENDED)
    ]


def breaker_records(workers: Sequence[WorkerReport]) -> list[BreakerRecord]:
    """Recently failed services, by the reports of living workers; the worst state of each."""
    found: dict[str, BreakerRecord] = {}
    for worker in workers:
        for name, state in worker.info.get("services", {}).items():
            word, _, reason = str(state).partition(": ")
            if name not in found or word == "open":
                found[name] = BreakerRecord(name=name, state=word, reason=reason or None)
    return [found[name] for name in sorted(found)]
