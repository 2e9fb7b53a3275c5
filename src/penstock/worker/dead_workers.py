"""What becomes of the jobs a dead child held: the ones it executed are lost, the others are given back."""

from __future__ import annotations

import logging
import random
import signal
from collections.abc import Callable
from typing import TypeAlias

import msgspec

from penstock import lifecycle
from penstock.catalog.protocol import Catalog
from penstock.errors import ParserFailed
from penstock.job import Job, JobQuery, Settlement, Status
from penstock.queue.protocol import Queue
from penstock.worker import failed_files, job_pages, log_text
from penstock.worker.outbox import settle_all
from penstock.worker.shared_state import Execution, FileRun

log = logging.getLogger("penstock.worker")

Verdict: TypeAlias = Callable[[Job], Settlement]

_CRASHES = {
    int(number): number.name
    for number in (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)
}
"""Signals that a process sends itself by a fault in native code; SIGKILL comes from outside."""


def lost(job: Job) -> Settlement:
    return lifecycle.lease_lost(job, jitter=random.uniform(-1, 1))


def given_back(job: Job) -> Settlement:
    return lifecycle.released(job, "its worker died")


def held_by(queue: Queue, worker_id: str) -> list[Job]:
    """Everything leased to a worker, as the store knows it: a last claim may just have succeeded."""
    query = JobQuery(statuses=frozenset({Status.IN_PROGRESS}), worker_id=worker_id)
    return [job for job in job_pages.every(queue, query) if job.lease_until is not None]


def settle_dead(
    queue: Queue,
    worker_id: str,
    results: list[Settlement],
    verdict: Verdict,
    *,
    catalog: Catalog | None = None,
    parsed: failed_files.Parsed | None = None,
) -> int:
    """End everything a dead worker held: by the results it had, else as ``verdict`` says. How many it was.

    ``catalog``: where files that fail so are remembered; ``parsed``: the one it was parsing.
    """
    settle_all(queue, results)
    held = held_by(queue, worker_id)
    settlements = [verdict(job) for job in held]
    failed_files.record(catalog, held, settlements, parsed)
    if settlements:
        queue.settle(settlements)
    for job, settlement in zip(held, settlements, strict=True):
        if settlement.what != "released":
            said = (log_text.named(job), settlement.error_message, log_text.outcome(settlement))
            log.warning("%s: %s; it %s", *said)
    return len(settlements)


def unless_executing(executing: Execution | None, run: FileRun | None = None) -> Verdict:
    """The plain verdict on a child that died by itself. While it parses a file, only that job is lost."""
    mark = run.mark if run is not None else None
    if executing is not None and mark is not None and mark.member < len(executing.members):
        executing = executing._replace(members=(executing.members[mark.member],))
    return lambda job: lost(job) if was_executing(job, executing) else given_back(job)


def after_crash(executing: Execution, run: FileRun | None, exitcode: int | None) -> Verdict:
    """Verdict on a child that ended by itself. A file whose parser crashes the process gets one more try,
    alone: crashes of native code repeat, and every retry takes a process with it."""
    plain, name = unless_executing(executing, run), _CRASHES.get(-(exitcode or 0))
    mark = run.mark if run is not None else None
    if name is None or mark is None or mark.member >= len(executing.members):
        return plain
    culprit = executing.members[mark.member].queue_id

    def verdict(job: Job) -> Settlement:
        settlement = plain(job)
        if job.queue_id != culprit or not (job.lost_count or settlement.status is Status.FAILED):
            return settlement
        message = f"{ParserFailed.__name__}: the process that parsed the file crashed ({name})"
        failed = lifecycle.failed(job, ParserFailed.code, message)
        return msgspec.structs.replace(failed, lost_count=job.lost_count + 1)

    return verdict


def was_executing(job: Job, executing: Execution | None) -> bool:
    return executing is not None and any(
        (job.queue_id, job.claim_number) == member[:2] for member in executing.members
    )
