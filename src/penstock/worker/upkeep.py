"""Upkeep: the periodic duties of a supervisor and their schedule.

Every worker runs all duties; each one is fenced or idempotent. A duty does a bounded piece of work and
returns whether there is more, since the supervisor has children to watch meanwhile.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from penstock import clock
from penstock.catalog.protocol import Catalog
from penstock.catalog.rules import publication
from penstock.catalog.rules.publication import UNFINISHED
from penstock.catalog.values import OutboxEntryKind
from penstock.errors import DuplicateId, InvalidSchedule
from penstock.handlers.source_files import NO_FILES, UnusedFiles
from penstock.queue import payloads, transitions
from penstock.queue.job import MISSED_HEARTBEATS, Job, JobQuery, Scope, Status
from penstock.queue.protocol import Queue
from penstock.queue.schedules import Schedule, due, skipped
from penstock.queue.transitions import hook_jobs
from penstock.vocabulary import how_many
from penstock.worker import executor, orphans
from penstock.worker.lanes import DocumentNotifier
from penstock.worker.orphans import JobPages, document_of
from penstock.worker.outage import OUTAGE, OutageLog

REAP_AT_ONCE = 100
_DRIFT_S = 5.0
IN_PROGRESS = frozenset({Status.IN_PROGRESS})
FAILED = frozenset({Status.FAILED})
_STUCK_AFTER = timedelta(minutes=30)
_REPORTS_KEPT_FOR = timedelta(hours=1)
"""Least time for which the last report of a worker is kept."""
AT_ONCE = 100
AFTER_OUTAGE_S = 1.0
"""Time to the next attempt of a duty that an outage of the store skipped."""
_CLEARS_PER_RUN = 4
"""Most transactions in one run of the sweeper."""
_OVERDUE_AFTER = timedelta(days=1)
"""Age of the last upkeep at which a command for a small job starts a worker, which does the upkeep."""
_KEPT_FOR = timedelta(days=7)
"""Retention of tombstones and of cached vectors whose text is in no document."""

_upkeep_log = logging.getLogger("penstock.upkeep")


class _Duty:
    def __init__(self, every_s: float, run: Callable[[], bool | None], spread: float) -> None:
        self.every_s = every_s
        self.run = run
        self.spread = spread
        self.due_at = 0.0


class Duties:
    """Runs each duty at an interval. An outage of the store skips a duty, and brings it again soon."""

    def __init__(self, outages: OutageLog | None = None) -> None:
        self._duties: list[_Duty] = []
        self._outages = outages or OutageLog()

    def add(self, every_s: float, run: Callable[[], bool | None], *, spread: float = 0.0) -> None:
        """Add a duty. ``run`` returns True when more can be done at once; ``spread`` varies the interval."""
        self._duties.append(_Duty(every_s, run, spread))

    def run_due(self, now: float) -> None:
        for duty in self._duties:
            if now >= duty.due_at:
                # None is an outage, and also the answer of a duty that has none.
                duty.due_at = now + AFTER_OUTAGE_S
                if self._outages.attempt(lambda: self._done(duty, now), duty):  # noqa: B023 - called at once
                    duty.due_at = now

    @staticmethod
    def _done(duty: _Duty, now: float) -> bool | None:
        more = duty.run()
        duty.due_at = now + duty.every_s * random.uniform(1 - duty.spread, 1 + duty.spread)
        return more


def clear_outbox(queue: Queue, catalog: Catalog, files: UnusedFiles = NO_FILES) -> None:
    """Process outbox entries of the last jobs: a command for one job has no next round."""
    DocumentNotifier(queue, catalog).process_outbox()
    Sweeper(catalog, files).clear_leftovers()


def _record(directory: Path) -> Path:
    """The file with the time of the last upkeep; beside the workers' directory."""
    return directory.with_name(f"{directory.name}.upkeep")


def record_upkeep(directory: Path) -> None:
    """Record that a worker of this directory does the upkeep now."""
    with suppress(OSError):  # then the next small job starts a worker, which is only slower
        _record(directory).touch(mode=0o600)


def upkeep_overdue(directory: Path) -> bool:
    """True if no worker did the upkeep for a day. A new store has none to do."""
    try:
        done_at = _record(directory).stat().st_mtime
    except FileNotFoundError:
        record_upkeep(directory)
        return False
    return not 0 <= clock.now().timestamp() - done_at < _OVERDUE_AFTER.total_seconds()


class Reaper:
    """Takes back jobs after the end of their lease: the worker died on another host, or hangs.

    Leases are compared with the store's clock. When that clock jumps (set by hand, a laptop that slept), all
    leases seem to have ended though their holders live. Then the reaper pauses for the longest lease, so that
    the holders can renew theirs.
    """

    def __init__(
        self,
        queue: Queue,
        longest_lease_s: float,
        *,
        catalog: Catalog | None = None,
        wall: Callable[[], float] | None = None,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._queue = queue
        self._catalog = catalog
        self._longest_lease_s = longest_lease_s
        self._wall = wall or (lambda: queue.now().timestamp())
        self._steady = steady
        self._offset: float | None = None
        with suppress(*OUTAGE):
            self._offset = self._wall() - steady()
        self._paused_until = 0.0

    def run(self) -> bool:
        """Take back a batch. The claim number protects the result of a holder finished meanwhile."""
        if self._is_paused():
            return False
        late = self._queue.expired(limit=REAP_AT_ONCE)
        if late:
            _upkeep_log.warning("took back %s: no worker renewed the lease", how_many(len(late), "job"))
            lost = [
                transitions.with_first_start(
                    transitions.lease_ended(job, jitter=random.uniform(-1, 1)),
                    job,
                    job.started_at,
                    clock.now(),
                )
                for job in late
            ]
            orphans.record_failed_files(self._catalog, late, lost)
            self._queue.settle(lost)
            orphans.log_lost(late, lost)
        return len(late) == REAP_AT_ONCE

    def _is_paused(self) -> bool:
        now = self._steady()
        offset = self._wall() - now
        jumped = 0.0 if self._offset is None else offset - self._offset
        if abs(jumped) > _DRIFT_S:
            pause = self._longest_lease_s
            _upkeep_log.warning(
                "the clock jumped by %.0f s; expired leases are ignored for %.0f s", jumped, pause
            )
            self._paused_until = now + pause
        self._offset = offset
        return now < self._paused_until


class Reconciler:
    """Repairs rows after a crash between two transactions: parent counts, locks not passed on."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    def run(self) -> bool:
        repaired = self._queue.reconcile()
        if repaired:
            _upkeep_log.warning("repaired %s", how_many(repaired, "row"))
        return False


class OverdueEnder:
    """Fails waiting jobs after their timeout, and cancels what is open below them.

    A timeout that was asked for counts from the first start of the whole job. The default one counts while no
    job of the tree and no page ends.
    """

    def __init__(self, queue: Queue, catalog: Catalog | None = None) -> None:
        self._queue = queue
        self._catalog = catalog
        self._pages = orphans.JobPages(queue, JobQuery(statuses=IN_PROGRESS, waiting=True))
        self._bounded = orphans.JobPages(queue, JobQuery(statuses=IN_PROGRESS, waiting=True, top_level=True))
        timed_out = JobQuery(statuses=FAILED, error_code=transitions.TIMED_OUT, top_level=True)
        self._ended = orphans.JobPages(queue, timed_out)

    def end_bounded(self) -> bool:
        """Fail the waiting jobs whose timeout bounds all of the job. Called every second: one page a call."""
        page, _ = self._bounded.next_page()
        if not any(map(transitions.bounds_whole_job, page)):
            return False
        now, paused = self._queue.now(), self._queue.paused()
        for job in page:
            if transitions.is_overdue(job, now) and not _is_paused(job, paused):
                self._end(job)
        return False

    def stop_leftovers(self) -> bool:
        """Cancel what a crash left open below a job that had timed out."""
        page, more = self._ended.next_page()
        for job in page:
            if job.children_open:
                orphans.stop_children(self._queue, job)
        return more

    def _end(self, job: Job) -> None:
        if orphans.end_overdue(self._queue, self._catalog, job):
            _upkeep_log.warning("%s: Timeout after %ds", executor.job_text(job), job.timeout_s)

    def run(self) -> bool:
        page, more = self._pages.next_page()
        now, paused = self._queue.now(), self._queue.paused()
        overdue = [
            job
            for job in page
            if job.waiting
            and self._silent(job, job.timeout_s, now)
            and not _is_paused(job, paused)
            and not self._has_active_descendant(job, job.timeout_s, now)
        ]
        for job in overdue:
            _upkeep_log.warning("job %s waited %d s and no part of it ended", job.queue_id, job.timeout_s)
            self._end(job)
        return more

    def _has_active_descendant(self, job: Job, timeout_s: int, now: datetime) -> bool:
        """Look for progress level by level: an ending child touches the row of the parent only."""
        below = orphans.all_jobs(self._queue, JobQuery(statuses=IN_PROGRESS, parent_id=job.queue_id))
        return any(
            not self._silent(child, timeout_s, now) or self._has_active_descendant(child, timeout_s, now)
            for child in below
            if child.waiting
        )

    def _silent(self, job: Job, timeout_s: int, now: datetime) -> bool:
        limit = timedelta(seconds=timeout_s)
        if now - job.updated_at <= limit:
            return False
        document_id = document_of(job)
        if document_id is None or self._catalog is None:
            return True
        with self._catalog.snapshot() as snapshot:
            document = snapshot.document(document_id)
        return document is None or now - document.updated_at > limit


def _is_paused(job: Job, paused: Collection[Scope]) -> bool:
    return any(scope.covers(job.tenant_id, job.collection) for scope in paused)


class Pruner:
    """Removes ended jobs, each status after a retention time, and reports of workers that ended or died."""

    def __init__(self, queue: Queue, retention: Mapping[str, timedelta], heartbeat_s: float = 30.0) -> None:
        self._queue = queue
        self._retention = {Status(status): kept for status, kept in retention.items()}
        self._silence = max(_REPORTS_KEPT_FOR, timedelta(seconds=MISSED_HEARTBEATS * heartbeat_s))

    def run(self) -> bool:
        """Remove one batch. A status without a retention time is kept for ever."""
        now = self._queue.now()
        self._queue.forget_workers(
            [worker for worker in self._queue.workers() if now - (worker.seen_at or now) > self._silence]
        )
        if not self._retention:
            return False
        return self._queue.prune({status: now - kept for status, kept in self._retention.items()}) > 0


class StuckWarner:
    """Warns of jobs without progress for half an hour though the worker lives."""

    def __init__(self, queue: Queue, *, after: timedelta = _STUCK_AFTER) -> None:
        self._queue = queue
        self._pages = JobPages(queue, JobQuery(statuses=frozenset({Status.IN_PROGRESS})))
        self._after = after
        self._warned: dict[str, datetime] = {}
        self._seen: dict[str, datetime] = {}

    @property
    def stuck(self) -> int:
        return len(self._warned)

    def run(self) -> bool:
        page, more = self._pages.next_page()
        now = self._queue.now()
        for job in page:
            if job.lease_until is not None and now - job.updated_at > self._after:
                self._warn_once(job)
        if not more:
            # Forget jobs that are no longer stuck, so that they are reported should they get stuck again.
            self._warned, self._seen = self._seen, {}
        return more

    def _warn_once(self, job: Job) -> None:
        self._seen[job.queue_id] = job.updated_at
        if self._warned.get(job.queue_id) != job.updated_at:
            _upkeep_log.warning(
                "job %s (%s/%s, worker %s) shows no progress since %s",
                job.queue_id,
                job.item_type,
                job.op,
                job.worker_id,
                clock.format_time(job.updated_at),
            )


class Sweeper:
    """Removes unused rows of the catalog, and takes back tasks of silent workers."""

    def __init__(self, catalog: Catalog, files: UnusedFiles = NO_FILES) -> None:
        self._catalog = catalog
        self._files = files

    def clear_leftovers(self) -> bool:
        entries = self._catalog.outbox(OutboxEntryKind.LEFTOVER, limit=AT_ONCE)
        if not entries:
            return False
        # Before the rows: after a crash in between, the entries are still there.
        with self._catalog.snapshot() as snapshot:
            self._files.remove_unused(snapshot, {entry.source_id for entry in entries})
        ids = [entry.entry_id for entry in entries]
        over = any(self._catalog.clear(ids) for _ in range(_CLEARS_PER_RUN))
        return not over or len(entries) == AT_ONCE

    def reclaim_tasks(self, lease: timedelta) -> bool:
        """Take back tasks whose worker did not respond for longer than ``lease``."""
        late = self._catalog.expired(lease=lease, limit=AT_ONCE)
        if late:
            _upkeep_log.warning("took back %s: the worker stopped responding", how_many(len(late), "task"))
            self._catalog.settle([publication.lost(claim) for claim in late])
        return len(late) == AT_ONCE

    def drop_unfinished(self, lease: timedelta) -> bool:
        """Drop large generations whose writer wrote no part for longer than ``lease``."""
        unfinished = self._catalog.unfinished(silent=lease, limit=AT_ONCE)
        for document_id in unfinished:
            if self._catalog.drop(document_id, UNFINISHED):
                _upkeep_log.warning("dropped generation %d: %s", document_id, UNFINISHED)
        return len(unfinished) == AT_ONCE

    def sweep(self) -> bool:
        return self._catalog.sweep(clock.now() - _KEPT_FOR) > 0


EVERY_S = 1.0
OPEN = frozenset({Status.PENDING, Status.IN_PROGRESS})
_DELETES_AT_ONCE = 500

_schedules_log = logging.getLogger("penstock.schedules")


class ScheduleRunner:
    """Adds jobs of due schedules, by the rules of ``penstock.queue.schedules``.

    Every worker and server does this; there is no leader. A run already added by another host is not added
    again.
    """

    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    def run(self, now: datetime | None = None) -> bool:
        """Run the due schedules, a bounded number; True if there may be more."""
        if not self._queue.due_schedules(now=now, limit=1):
            return False
        deleted = self._deleted_tenants()
        # Only now: a delete that was done before has dropped its schedules.
        found = self._queue.due_schedules(now=now, limit=AT_ONCE)
        moment = now or self._queue.now()
        for schedule in found:
            asked_at = deleted.get(schedule.tenant_id)
            self._run(schedule, moment, ends=asked_at is not None and schedule.created_at <= asked_at)
        return len(found) == AT_ONCE

    def _deleted_tenants(self) -> dict[str, datetime]:
        """Tenants whose delete waits or runs, with the time of the newest request.

        The delete drops the schedules from before its request. Jobs that they add until then would look like
        later requests, and bring the documents back.
        """
        query = JobQuery(item_type="delete_tenant", statuses=OPEN, limit=_DELETES_AT_ONCE)
        asked: dict[str, datetime] = {}
        while page := self._queue.find(query):
            for job in page:
                tenant_id, asked_at = job.payload["tenant_id_to_delete"], _newest_request(job)
                asked[tenant_id] = max(asked_at, asked.get(tenant_id, asked_at))
            if len(page) < query.limit:
                break
            query = msgspec.structs.replace(query, after=page[-1].queue_id)
        return asked

    def _run(self, schedule: Schedule, now: datetime, *, ends: bool = False) -> None:
        try:
            result = due(schedule, now)
        except InvalidSchedule as error:
            # This host has no such time zone; another one may have it.
            _schedules_log.warning("schedule %s cannot run here: %s", schedule.name, error)
            return
        if result is None:
            return  # the clock went back meanwhile
        if ends:
            if self._queue.put_schedule(skipped(schedule, now), replaces=schedule.version):
                _schedules_log.warning("schedule %s did not run: its tenant is being deleted", schedule.name)
            return
        for job in result.jobs:
            try:
                self._queue.add([job, *hook_jobs(job, clock.new_ids)], now=now)
            except DuplicateId:
                continue  # added by another host, or before a crash
        if self._queue.put_schedule(result.after, replaces=schedule.version):
            self._log(schedule, len(result.jobs), result.after.skipped - schedule.skipped)

    def _log(self, schedule: Schedule, jobs: int, skipped: int) -> None:
        if jobs:
            _schedules_log.info("schedule %s ran: %s", schedule.name, schedule.summary)
        if skipped:
            runs = how_many(skipped, "run")
            _schedules_log.warning(
                "schedule %s: %s from %s on missed and skipped", schedule.name, runs, schedule.next_at
            )


def _newest_request(job: Job) -> datetime:
    asked_at = payloads.asked_at(job.metadata) or job.created_at
    if job.followup_json is None:
        return asked_at
    followup = msgspec.json.decode(job.followup_json)
    return max(asked_at, payloads.asked_at(followup.get("metadata") or "{}") or asked_at)
