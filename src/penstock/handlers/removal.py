"""Removal of documents in batches, except those requested again since."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import Any, TypeAlias

import msgspec

from penstock import clock
from penstock.catalog.protocol import BATCH, Catalog, known_below
from penstock.catalog.rules.paths import below, covers
from penstock.catalog.values import Place, Removal, Touch, Walk
from penstock.handlers.context import BatchHandler, Context, Handler, Later, Registry
from penstock.handlers.members import container_of
from penstock.pipeline.walk.ignore import WalkRules
from penstock.pipeline.walk.walker import SinglePathRules
from penstock.queue import payloads
from penstock.queue.job import Held, Job, JobQuery, Status
from penstock.queue.payloads import is_off_disk
from penstock.queue.protocol import Queue


def remove_all(catalog: Catalog, removal: Removal) -> int:
    """Remove all matching documents; returns the number of sources."""
    return sum(removed_in_batches(catalog, removal))


def removed_in_batches(catalog: Catalog, removal: Removal) -> Iterator[int]:
    """Remove documents batch by batch; yields the number of sources of each batch.

    Walks requested after the delete come first: files on disk that they include count as requested again.
    """
    while True:
        removed = catalog.remove(removal)
        if removed.newer:
            for walk in removed.newer:
                _touch_wanted(catalog, removal, walk)
            removal = msgspec.structs.replace(removal, heard=removal.heard.union(removed.newer))
            continue
        yield removed.sources
        if not removed.more:
            return


def _touch_wanted(catalog: Catalog, removal: Removal, walk: Walk) -> None:
    path_rules = single_path_rules(walk)
    inside = removal.path is not None and below(walk.root, removal.path)
    wanted: list[Touch] = []
    for known in known_below(catalog, walk.place, removal.path if inside else walk.root):
        covered = covers(removal, walk.place, known.path, known.source_id, removal.asked_at)
        if covered and known.published_id is not None and is_wanted(path_rules, walk.root, known.path):
            wanted.append(Touch(known.source_id, known.size, known.mtime_ns, walk.asked_at))
        if len(wanted) >= BATCH:
            catalog.touch(wanted)
            wanted = []
    if wanted:
        catalog.touch(wanted)


def single_path_rules(walk: Walk) -> SinglePathRules:
    return SinglePathRules(walk.root, msgspec.json.decode(walk.rules, type=WalkRules))


def is_wanted(path_rules: SinglePathRules, root: str, path: str) -> bool:
    """Check whether the file exists and would be included by the walk."""
    container = container_of(path)
    if container is not None:
        path = container.path
    try:
        found = os.lstat(path)
    except OSError:
        return False
    if not stat.S_ISREG(found.st_mode) or not path.startswith(root.rstrip("/") + "/"):
        return False
    return path_rules.skipped(path[len(root.rstrip("/")) + 1 :], found.st_size) is None


def removal_of_one(place: Place, path: str, asked_at: datetime) -> Removal:
    """Removal of a document and its members. If a folder replaced the file, documents in the folder stay."""
    return Removal(
        tenant_id=place.tenant_id,
        collection=place.collection,
        branch=place.branch,
        path=path,
        # A page has no members: pages with a longer address are pages of their own.
        below=not is_off_disk(path) and not os.path.isdir(path),  # noqa: PTH112 - it never raises
        asked_at=asked_at,
    )


OpenQueue: TypeAlias = Callable[[], AbstractContextManager[Queue]]

BATCH_JOBS = 500
"""Jobs read and removed per step, to bound the transaction."""
STOP_TIMEOUT_S = 30.0
"""Time for running jobs to stop. Then they are removed while they run; the tombstone of the tenant refuses
their later writes."""
_POLL_S = 0.2


class Purged(msgspec.Struct, frozen=True):
    jobs: int
    kept: bool
    """True if the tenant has jobs that were requested after the delete."""


class _Pass(msgspec.Struct, frozen=True):
    """Result of one pass over all jobs of the tenant."""

    removed: int
    running: int
    missed: int
    """Jobs that changed between reading and removal."""
    kept: bool


def purge_jobs(queue: Queue, tenant_id: str, context: Context) -> Purged:
    """Remove all schedules and jobs of a tenant requested before the delete, except the delete itself.

    Jobs without a worker are removed at once. Running jobs are cancelled, and removed when they have stopped.
    """
    # Schedules first: they would add jobs that look like later requests, and bring the documents back.
    _drop_schedules(queue, tenant_id, context.asked_at)
    deadline, pause, removed = clock.elapsed_s() + STOP_TIMEOUT_S, threading.Event(), 0
    while True:
        waiting = clock.elapsed_s() < deadline
        found = _one_pass(queue, tenant_id, context, waiting=waiting)
        removed += found.removed
        if not found.running and not found.missed:
            return Purged(removed, found.kept)
        context.progress(
            removed, None, f"waiting for {found.running} running jobs of the tenant", jobs=removed
        )
        if waiting:
            pause.wait(_POLL_S)


def _drop_schedules(queue: Queue, tenant_id: str, asked_at: datetime) -> None:
    for schedule in queue.schedules(tenant_id=tenant_id):
        if schedule.created_at <= asked_at:
            queue.drop_schedule(tenant_id, schedule.name)


def _one_pass(queue: Queue, tenant_id: str, context: Context, *, waiting: bool) -> _Pass:
    removed, running, missed, kept = 0, 0, 0, False
    for page in _pages(queue, JobQuery(tenant_id=tenant_id, limit=BATCH_JOBS)):
        earlier = [job for job in page if _is_earlier(job, context.asked_at)]
        kept = kept or len(earlier) < len(page)
        own = [job for job in earlier if job.queue_id != context.job_id]
        busy = [job for job in own if job.lease_until is not None] if waiting else []
        idle = [job for job in own if not waiting or job.lease_until is None]
        if busy:
            queue.cancel([job.queue_id for job in busy])
        went = queue.purge(idle) if idle else 0
        removed, running, missed = removed + went, running + len(busy), missed + len(idle) - went
        context.checkpoint()
    return _Pass(removed, running, missed, kept)


def _pages(queue: Queue, query: JobQuery) -> Iterator[list[Job]]:
    while page := queue.find(query):
        yield page
        if len(page) < query.limit:
            return
        query = msgspec.structs.replace(query, after=page[-1].queue_id)


def _is_earlier(job: Job, asked_at: datetime) -> bool:
    """Check whether all requests behind a job came before the delete."""
    times = [payloads.asked_at(job.metadata) or job.created_at]
    if job.followup_json is not None:
        followup = msgspec.json.decode(job.followup_json)
        times.append(payloads.asked_at(followup.get("metadata") or "{}") or asked_at)
    return max(times) <= asked_at


_REASON = "another job for paths of this collection runs before it, and the worker is serial"
AGAIN_S, LONGEST_S = 0.05, 5.0
"""Time until the next look at a job, for each job before it, and the longest one."""
SHARE = 0.1
"""A share of the time for which a job before it has run is added: a long job is looked at seldom, and its end
is noticed soon as compared with its length."""
LOOKED_AT = 500
"""Jobs of a collection that are looked at; those behind them wait in any case."""


def give_turns(registry: Registry, open_queue: OpenQueue) -> None:
    """Let the handlers of jobs for paths run one job at a time in each collection, in order, for a serial
    worker.

    A job that was submitted as a serial one has a lock, and no worker claims it before its turn. The worker
    gives turns to all others as well: it releases a job while an earlier one runs, or waits in its place.
    """
    registry.wrap(payloads.PATH_TYPES, SerialTurns(open_queue).around)


class SerialTurns:
    """Lets one job for paths of a collection run at a time; others are released for a while."""

    def __init__(self, open_queue: OpenQueue) -> None:
        self._open_queue = open_queue

    def around(self, handler: Handler | BatchHandler, batch: int) -> Handler | BatchHandler:
        """The handler, called for jobs whose turn it is."""
        return self._batch(handler) if batch else self._single(handler)

    def _single(self, handler: Callable[..., Any]) -> Handler:
        return lambda context: self._later([context])[0] or handler(context)

    def _batch(self, handler: Callable[..., Any]) -> BatchHandler:
        def run(contexts: Sequence[Context]) -> Sequence[Any]:
            later = self._later(contexts)
            ready = [context for context, wait in zip(contexts, later, strict=True) if wait is None]
            answers = iter(handler(ready) if ready else ())
            return [next(answers) if wait is None else wait for wait in later]

        return run

    def _later(self, contexts: Sequence[Context]) -> list[Later | None]:
        # Children have their turn with their parent.
        if all(context.claim.parent_id is not None for context in contexts):
            return [None] * len(contexts)
        with self._open_queue() as queue:
            return [_turn(queue, context) for context in contexts]


def _turn(queue: Queue, context: Context) -> Later | None:
    """When to look at the job again; None: it is its turn."""
    own = queue.get(context.job_id) if context.claim.parent_id is None else None
    if own is None:
        return None
    running = [
        job
        for job in _jobs_for_paths(queue, own, Status.IN_PROGRESS)
        if job.queue_id != own.queue_id and _start(job) < _start(own)
    ]
    place = -own.priority, own.queue_id
    waiting = filter(_waits_for_its_turn, _jobs_for_paths(queue, own, Status.PENDING))
    before = len(running) + sum((-job.priority, job.queue_id) < place for job in waiting)
    if not before:
        return None
    now = queue.now()
    longest_s = max(((now - (job.started_at or now)).total_seconds() for job in running), default=0.0)
    seconds = AGAIN_S * before + SHARE * max(longest_s, 0.0)
    return Later(_REASON, timedelta(seconds=min(seconds, LONGEST_S)))


def _jobs_for_paths(queue: Queue, own: Job, status: Status) -> list[Job]:
    """The first jobs of the same collection with this status."""
    found = queue.find(
        JobQuery(
            statuses=frozenset([status]),
            tenant_id=own.tenant_id,
            collection=own.collection,
            top_level=True,
            by_priority=True,
            limit=LOOKED_AT,
        )
    )
    return [job for job in found if job.item_type in payloads.PATH_TYPES]


def _start(job: Job) -> tuple[float, str]:
    return job.started_at.timestamp() if job.started_at is not None else 0.0, job.queue_id


def _waits_for_its_turn(job: Job) -> bool:
    """True for a job that this rule released; those that are held for other reasons are passed."""
    return job.held is Held.TIME and job.error_message == _REASON
