"""What becomes of the jobs a dead child held: the ones it executed are lost, the others are given back."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from typing import TypeAlias

from penstock import lifecycle
from penstock.job import Job, JobQuery, Settlement, Status
from penstock.queue.protocol import Queue
from penstock.worker import paging, telling
from penstock.worker.outbox import settle_all
from penstock.worker.slot import Executing

log = logging.getLogger("penstock.worker")

Verdict: TypeAlias = Callable[[Job], Settlement]


def lost(job: Job) -> Settlement:
    return lifecycle.lease_lost(job, jitter=random.uniform(-1, 1))


def given_back(job: Job) -> Settlement:
    return lifecycle.released(job, "its worker died")


def held_by(queue: Queue, worker_id: str) -> list[Job]:
    """Everything leased to a worker, as the store knows it: a last claim may just have succeeded."""
    query = JobQuery(statuses=frozenset({Status.IN_PROGRESS}), worker_id=worker_id)
    return [job for job in paging.every(queue, query) if job.lease_until is not None]


def settle_dead(queue: Queue, worker_id: str, results: list[Settlement], verdict: Verdict) -> int:
    """End everything a dead worker held: by the results it had, else as ``verdict`` says. How many it was."""
    settle_all(queue, results)
    held = held_by(queue, worker_id)
    settlements = [verdict(job) for job in held]
    if settlements:
        queue.settle(settlements)
    for job, settlement in zip(held, settlements, strict=True):
        if settlement.what != "released":
            said = (telling.named(job), settlement.error_message, telling.outcome(settlement))
            log.warning("%s: %s; it %s", *said)
    return len(settlements)


def unless_executing(executing: Executing | None) -> Verdict:
    """The plain verdict on a child that died by itself."""
    return lambda job: lost(job) if was_executing(job, executing) else given_back(job)


def was_executing(job: Job, executing: Executing | None) -> bool:
    return executing is not None and any(
        (job.queue_id, job.claim_number) == member[:2] for member in executing.members
    )
