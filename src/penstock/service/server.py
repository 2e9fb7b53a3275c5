"""Status of a server: jobs, lanes, workers, sizes of the stores, readiness; and its metrics."""

from __future__ import annotations

import os
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeAlias, TypeVar

import msgspec

from penstock import clock
from penstock.catalog.rules.phases import PHASES
from penstock.catalog.values import Phase
from penstock.config import Settings
from penstock.errors import PenstockError, StoreError
from penstock.handlers.outside_stores import StoreProgress
from penstock.handlers.source_files import uploads_directory
from penstock.queue.job import WORKER_ENDED, Job, JobQuery, Scope, Status, WorkerReport
from penstock.queue.payloads import TypeName
from penstock.queue.protocol import Queue, living_workers
from penstock.service.access import Principal
from penstock.service.documents import Documents
from penstock.service.job_views import own_stats, running_jobs
from penstock.service.jobs import Jobs
from penstock.service.live_changes import LANES, Throughput
from penstock.state_directory import write_refusal
from penstock.store_outage import STORE, read_outage

T = TypeVar("T")
_MOST_RUNNING = 100
_MOST_PENDING = 100_000
_COUNTED_EVERY_S, _SHARE = 1.0, 20
"""Counts of the catalog, which read every source, are renewed each second, or after 20 times their cost."""
_MOST_COUNTED = 1_000
_PROBED_BYTES = 64 * 1024
"""More than what is left in the last block of a file system that is full."""
_PROBE_EVERY_S, _PROBE_AGAIN_S = 10.0, 1.0
"""Time for which a probe of the disk counts; the second one after a failed probe."""
_JOBS_LANE = "jobs"
"""The lane of jobs, beside those of tasks."""
_PREFIX = "penstock_"
_MOST_TENANTS = 200
_TOKENS = "Tokens sent to endpoints this month."
MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"


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


class RunningJob(msgspec.Struct, frozen=True, kw_only=True):
    """A running job in the status of the server."""

    job_id: str
    item_type: TypeName
    folder_path: str | None
    running_time_ms: int


class StoreCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Documents and chunks in search, and documents that failed."""

    documents: int = 0
    chunks: int = 0
    failed: int = 0


class ServerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The state of indexing. ``current_job_id`` has run longest of ``running_jobs``.

    ``store_state``: ``ok``, or the code of the error for which workers wait for the store.
    ``outside_stores`` are of the whole installation: keys bound to tenants get none.
    """

    indexing_in_progress: bool
    current_job_id: str | None
    running_jobs: list[RunningJob]
    running_time_ms: int | None
    queue_length: int
    store: StoreCounts
    store_state: str
    outside_stores: list[StoreProgress] | None


class QueueConnection(msgspec.Struct, frozen=True, kw_only=True):
    """Short state of the queue: pending and running jobs, and whether a worker is alive."""

    queue_name: str
    connected: bool
    queue_length: int
    processing: int
    queued: int
    worker_connected: bool


class LaneRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A lane: jobs, or the tasks of one phase.

    ``rate``: ended jobs or tasks a second, over ``rate_window_s``. ``slots``: processes that serve
    the lane. ``held``: pending ones that cannot be claimed now.
    """

    lane: str
    waiting: int
    running: int
    slots: int | None = None
    rate: float | None = None
    rate_window_s: int | None = None
    time_left_s: float | None = None
    held: int = 0


class QueueStats(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs by status, item type and reason of waiting; tasks by type and status; limits.

    ``tasks``, ``workers`` and ``warnings`` are of the whole installation: keys bound to tenants get none.
    If not ``exact``, numbers above 1,000 are estimates.
    """

    by_status: dict[str, int]
    by_item_type: dict[str, dict[str, int]]
    by_held: dict[str, int]
    exact: bool
    oldest_pending_age_s: float | None
    paused: list[Scope]
    limits: dict[str, int | None]
    lanes: list[LaneRecord]
    tasks: dict[str, dict[str, int]] | None
    workers: list[WorkerRecord] | None
    breakers: list[BreakerRecord] | None
    warnings: list[str] | None


class Readiness(msgspec.Struct, frozen=True, kw_only=True):
    """Readiness of the stores and the disk, and of workers for the queue."""

    ready: bool
    queue: str
    catalog: str
    disk: str = "ok"
    workers: int


class StatusReader:
    """Reads for status pages. None of them writes a store, or waits for a writer."""

    def __init__(self, jobs: Jobs, documents: Documents) -> None:
        self._jobs = jobs
        self._documents = documents
        self._counts = CachedReads[StoreCounts]()
        self._tasks = CachedReads[dict[str, dict[str, int]]]()
        self._own_jobs = CachedReads[dict[str, int]]()
        self.throughput: Throughput | None = None
        """Rates, where a server keeps them."""
        self._disk = WriteProbe(jobs.settings)

    def status(self, principal: Principal) -> ServerStatus:
        tenants = principal.tenants_for(None)
        queue, now = self._jobs.queue, self._jobs.queue.now()

        def milliseconds(job: Job) -> int:
            return max(round((now - (job.started_at or job.created_at)).total_seconds() * 1000), 0)

        running = [
            RunningJob(
                job_id=job.queue_id,
                item_type=job.item_type,
                folder_path=job.shown_payload.get("folder_path") or job.shown_payload.get("file_path"),
                running_time_ms=milliseconds(job),
            )
            for job in running_jobs(queue, tenants, _MOST_RUNNING)
        ]
        first = running[0] if running else None
        counts = [self._counted(tenant) for tenant in tenants]
        return ServerStatus(
            indexing_in_progress=first is not None,
            current_job_id=first.job_id if first else None,
            running_jobs=running,
            running_time_ms=first.running_time_ms if first else None,
            queue_length=self._queue_length(tenants),
            store=StoreCounts(
                documents=sum(one.documents for one in counts),
                chunks=sum(one.chunks for one in counts),
                failed=sum(one.failed for one in counts),
            ),
            store_state=self._store_state(),
            outside_stores=None if principal.bound else self._documents.outside_stores(),
        )

    def _store_state(self) -> str:
        """See what workers say: reads may succeed while they cannot write."""
        settings = self._jobs.settings
        outage = read_outage(settings.state_dir, settings.store, clock.now())
        if outage is not None:
            return outage.code
        states = (worker.info.get("services", {}).get(STORE) for worker in self._living())
        return next((str(state).partition(":")[0] for state in states if state), "ok")

    def stats(self, principal: Principal) -> QueueStats:
        settings = self._jobs.settings
        limits = {
            "max_queue": settings.max_queue,
            "max_queue_per_tenant": settings.max_queue_per_tenant,
            "max_function_queue": settings.max_function_queue,
        }
        found, bound = own_stats(self._jobs, principal), principal.bound
        return QueueStats(
            by_status=self._in_words(found.by_status),
            by_item_type={name: self._in_words(counts) for name, counts in found.by_item_type.items()},
            by_held=found.by_held,
            exact=found.exact,
            oldest_pending_age_s=found.oldest_pending_age_s,
            paused=found.paused,
            limits=limits,
            lanes=self.lanes(principal.tenants_for(None)),
            tasks=None if bound else self._task_counts(),
            workers=None if bound else _worker_records(self._jobs.queue, settings.heartbeat_s),
            breakers=None if bound else _breaker_records(self._living()),
            warnings=None if bound else found.warnings,
        )

    def readiness(self) -> Readiness:
        """Open a snapshot of each store, and try the disk; the words are ``ok`` or the error's code."""
        queue = _tried(self._jobs.queue.paused)
        catalog = _tried(self._documents.refuse_another_model)
        workers = (
            len(living_workers(self._jobs.queue, self._jobs.settings.heartbeat_s)) if queue == "ok" else 0
        )
        disk = _tried(self._disk.check)
        ready = queue == catalog == disk == "ok"
        return Readiness(ready=ready, queue=queue, catalog=catalog, disk=disk, workers=workers)

    def _task_counts(self) -> dict[str, dict[str, int]]:
        return self._tasks.get("", self._documents.task_counts)

    def lanes(self, tenants: Sequence[str | None]) -> list[LaneRecord]:
        """The lanes, as these tenants see them: all (None), or only the jobs of some."""
        if None not in tenants:
            own = self._own_jobs.get(("open", *tenants), lambda: self._count_own(tenants))
            return [LaneRecord(lane=_JOBS_LANE, **own)]
        counts = self._jobs.queue.tally().counts
        pending, running = _in_status(counts, Status.PENDING), _in_status(counts, Status.IN_PROGRESS)
        held = sum(number for (_, reason, _), number in counts.items() if reason is not None)
        tasks, workers = self._task_counts(), self._living()
        executing = [worker.info["running"] for worker in workers if "running" in worker.info]
        return [
            self._lane(_JOBS_LANE, pending - held, sum(executing) if executing else running, workers, held)
        ] + [
            self._lane(str(phase), found.get("pending", 0), found.get("processing", 0), workers)
            for phase in Phase
            for found in (tasks.get(PHASES[phase].statistics, {}),)
        ]

    def _lane(
        self, lane: str, waiting: int, running: int, workers: Sequence[WorkerReport], held: int = 0
    ) -> LaneRecord:
        rate = self.throughput.rate(lane) if self.throughput is not None else None
        serving = [worker for worker in workers if lane in worker.info.get("lanes", ())]
        return LaneRecord(
            lane=lane,
            waiting=waiting,
            running=running,
            slots=sum(int(worker.info.get("processes", 1)) for worker in serving),
            rate=round(rate[0], 3) if rate else None,
            rate_window_s=rate[1] if rate else None,
            time_left_s=_time_left(waiting + running, rate[0] if rate else None),
            held=held,
        )

    def waiting(self) -> dict[str, int]:
        """Waiting jobs and tasks by lane."""
        counts = self._jobs.queue.tally().counts
        jobs = sum(
            number
            for (status, held, _), number in counts.items()
            if status is Status.PENDING and held is None
        )
        tasks = self._task_counts()
        found = {str(phase): tasks.get(PHASES[phase].statistics, {}).get("pending", 0) for phase in Phase}
        return {_JOBS_LANE: jobs, **found}

    def connection(self) -> QueueConnection:
        """Short state of the queue. Raises the error of an unreachable store."""
        counts = self._jobs.queue.tally().counts
        pending = _in_status(counts, Status.PENDING)
        return QueueConnection(
            queue_name="unified_queue",
            connected=True,
            queue_length=pending,
            processing=_in_status(counts, Status.IN_PROGRESS),
            queued=pending,
            worker_connected=bool(self._living()),
        )

    def _living(self) -> list[WorkerReport]:
        return living_workers(self._jobs.queue, self._jobs.settings.heartbeat_s)

    def failed(self, tenants: Sequence[str | None]) -> int:
        """Number of failed jobs of these tenants."""
        queue, failed = self._jobs.queue, frozenset({Status.FAILED})
        if tenants == (None,):
            return _in_status(queue.tally().counts, Status.FAILED)
        return self._own_jobs.get(
            ("failed", *tenants),
            lambda: {
                "failed": sum(
                    sum(queue.count(JobQuery(tenant_id=tenant, statuses=failed)).values())
                    for tenant in tenants
                )
            },
        )["failed"]

    def _count_own(self, tenants: Sequence[str | None]) -> dict[str, int]:
        found = Counter({"waiting": 0, "running": 0, "held": 0})
        live = frozenset({Status.PENDING, Status.IN_PROGRESS})
        for tenant in tenants:
            query = JobQuery(tenant_id=tenant, statuses=live)
            for (status, held), number in self._jobs.queue.count(query, by=("status", "held")).items():
                kind = "running" if status is Status.IN_PROGRESS else "waiting" if held is None else "held"
                found[kind] += number
        return dict(found)

    def _in_words(self, counts: dict[str, int]) -> dict[str, int]:
        return {self._jobs.word(Status(status)): number for status, number in counts.items()}

    def _queue_length(self, tenants: Sequence[str | None]) -> int:
        if tenants == (None,):
            return self._jobs.queue.backlog(functions=False, cap=_MOST_PENDING)
        pending = frozenset({Status.PENDING})
        queries = (JobQuery(tenant_id=tenant, statuses=pending, top_level=True) for tenant in tenants)
        counts = (self._jobs.queue.count(query, by=["item_type"]) for query in queries)
        return sum(
            number for one in counts for (item_type,), number in one.items() if item_type != "function"
        )

    def _counted(self, tenant: str | None) -> StoreCounts:
        def read() -> StoreCounts:
            found = self._documents.tenant_counts(tenant)
            return StoreCounts(
                documents=sum(one.sources for one in found),
                chunks=sum(one.chunks for one in found),
                failed=sum(one.failed for one in found),
            )

        return self._counts.get(tenant or "*", read)


class Metrics:
    """Metrics of the queue, its lanes and its workers, in the text format of Prometheus."""

    def __init__(
        self, jobs: Jobs, documents: Documents, status: StatusReader, throughput: Throughput
    ) -> None:
        self._jobs = jobs
        self._documents = documents
        self._status = status
        self._throughput = throughput

    def text(self, *, by_tenant: bool) -> str:
        """All metrics; ``by_tenant`` adds those that name tenants."""
        metrics = [*self._queue_metrics(), *self._work_metrics()]
        if by_tenant:
            metrics.append(self._tenant_metric())
        return "".join(_written(metric) for metric in metrics)

    def own_text(self, principal: Principal) -> str:
        """Metrics of the tenants of a key: their jobs and tokens. Rates and workers are of all tenants."""
        tenants = principal.tenants
        stats = self._status.stats(principal)
        jobs: _Samples = [
            ({"status": status, "item_type": item_type}, number)
            for item_type, counts in stats.by_item_type.items()
            for status, number in counts.items()
        ]
        metrics = [
            _Metric("queue_jobs", "gauge", "Jobs by status and item type.", jobs),
            _Metric(
                "lane_waiting",
                "gauge",
                "Jobs or tasks that wait.",
                [({"lane": one.lane}, one.waiting) for one in stats.lanes],
            ),
            _Metric("tokens_total", "counter", _TOKENS, [*self._tokens(tenants)]),
            self._tenant_metric(tenants),
        ]
        return "".join(_written(metric) for metric in metrics)

    def _queue_metrics(self) -> Iterator[_Metric]:
        stats = self._jobs.stats()
        samples: _Samples = [
            ({"status": self._jobs.word(Status(status)), "item_type": item_type}, number)
            for item_type, counts in stats.by_item_type.items()
            for status, number in counts.items()
        ]
        yield _Metric("queue_jobs", "gauge", "Jobs by status and item type.", samples)
        yield _Metric(
            "queue_oldest_seconds",
            "gauge",
            "Age of the oldest pending job.",
            [({}, stats.oldest_pending_age_s or 0.0)],
        )
        lanes = self._status.lanes((None,))
        waiting: _Samples = [({"lane": one.lane}, one.waiting) for one in lanes]
        yield _Metric("lane_waiting", "gauge", "Jobs or tasks that wait.", waiting)
        left = [({"lane": one.lane}, one.time_left_s) for one in lanes]
        known = [(labels, seconds) for labels, seconds in left if seconds is not None]
        yield _Metric("time_left_seconds", "gauge", "Estimated time until a lane is empty.", [*known])
        workers = living_workers(self._jobs.queue, self._jobs.settings.heartbeat_s)
        yield _Metric("workers", "gauge", "Workers that reported lately.", [({}, len(workers))])
        breakers: _Samples = [
            ({"name": one.name}, float(one.state == "open" or one.name == STORE))
            for one in _breaker_records(workers)
        ]
        yield _Metric("breaker_open", "gauge", "1 while a service is not called after failures.", breakers)

    def _work_metrics(self) -> Iterator[_Metric]:
        totals = self._throughput.totals()

        def total(name: str) -> float:
            return totals.get(name, 0)

        yield _Metric("claims_total", "counter", "Jobs claimed by workers.", [({}, total("claims"))])
        yield _Metric(
            "settled_total",
            "counter",
            "Jobs ended by workers.",
            [({"outcome": outcome}, total(f"{_JOBS_LANE}_{outcome}")) for outcome in ("done", "failed")],
        )
        yield _Metric("retries_total", "counter", "Attempts to be repeated.", [({}, total("retries"))])
        yield _Metric("leases_lost_total", "counter", "Results that came too late.", [({}, total("lost"))])
        yield _Metric(
            "lane_tasks_total",
            "counter",
            "Jobs and tasks ended, by lane.",
            [
                ({"lane": lane, "outcome": outcome}, total(f"{lane}_{outcome}"))
                for lane in LANES
                for outcome in ("done", "failed")
            ],
        )
        yield _summary("claim_seconds", "Duration of claims.", {"": (total("claim_us"), total("claims"))})
        runs = {
            lane: (total(f"{lane}_us"), total(f"{lane}_done") + total(f"{lane}_failed")) for lane in LANES
        }
        yield _summary("run_seconds", "Time spent on jobs and tasks.", runs)
        yield _Metric("tokens_total", "counter", _TOKENS, [*self._tokens((None,))])

    def _tokens(self, tenants: Sequence[str | None]) -> Iterator[tuple[Mapping[str, str], float]]:
        month = clock.now().strftime("%Y-%m")
        with self._documents.catalog.snapshot() as snapshot:
            uses = [use for tenant in tenants for use in snapshot.token_uses(tenant, month)]
        by_service: dict[str, int] = {}
        for use in uses:
            by_service[use.service] = by_service.get(use.service, 0) + use.tokens
        return (({"endpoint": name}, number) for name, number in sorted(by_service.items()))

    def _tenant_metric(self, tenants: Sequence[str | None] = (None,)) -> _Metric:
        live = frozenset({Status.PENDING, Status.IN_PROGRESS, Status.FAILED})
        counts: dict[tuple[str, Status], int] = {}
        for tenant in tenants:
            query = JobQuery(tenant_id=tenant, statuses=live)
            counts |= self._jobs.queue.count(query, by=("tenant_id", "status"))
        most = sorted(counts.items(), key=lambda one: -one[1])[:_MOST_TENANTS]
        samples: _Samples = [
            ({"tenant": tenant, "status": self._jobs.word(status)}, number)
            for (tenant, status), number in most
        ]
        return _Metric(
            "tenant_jobs", "gauge", "Open and failed jobs by tenant, of the largest ones.", samples
        )


class WriteProbe:
    """Tells whether the state directory, and stores and uploads on this machine, can be written.

    A disk that is full is not seen by reading, and hardly by its free bytes: quotas and read-only mounts have
    them too. So a small file is written and removed, at most every few seconds, however often one asks.
    """

    def __init__(self, settings: Settings) -> None:
        stores = [store for store in (settings.store, settings.catalog_store) if store.is_file]
        files = [store.path if store.engine == "jsonl" else store.path.parent for store in stores]
        self._directories = (settings.state_dir, *files)
        # Created for the first upload.
        self._uploads = uploads_directory(settings)
        self._lock = threading.Lock()
        self._until = 0.0
        self._failure: StoreError | None = None

    def check(self) -> None:
        """Raise what a write would raise."""
        with self._lock:
            if clock.elapsed_s() >= self._until:
                self._failure = self._probe()
                self._until = clock.elapsed_s() + (_PROBE_AGAIN_S if self._failure else _PROBE_EVERY_S)
            if self._failure is not None:
                raise self._failure

    def _probe(self) -> StoreError | None:
        uploads = [self._uploads] if self._uploads.is_dir() else []
        for directory in dict.fromkeys([*self._directories, *uploads]):
            try:
                _write_and_remove(directory)
            except OSError as error:
                return write_refusal(directory, error)
        return None


def _write_and_remove(directory: Path) -> None:
    descriptor, name = tempfile.mkstemp(prefix=".ready.", dir=directory)
    with os.fdopen(descriptor, "wb") as file:
        os.unlink(name)  # noqa: PTH108 - before anything can fail
        file.write(bytes(_PROBED_BYTES))
        file.flush()
        os.fsync(descriptor)


class CachedReads(Generic[T]):
    """Cached values, for reads too expensive for each request.

    They are used for a second, or for 20 times their cost. For as long again they are renewed by a thread of
    their own, beside the requests. After that, or for the first time, a request waits for the value.
    """

    def __init__(self) -> None:
        self._renewing = threading.Lock()
        self._values: dict[Hashable, tuple[float, float, T]] = {}
        """By key: the times until which the value is current and usable, and the value."""

    def get(self, key: Hashable, read: Callable[[], T]) -> T:
        now, known = clock.elapsed_s(), self._values.get(key)
        if known is None or now >= known[1]:
            with self._renewing:
                return self._renew(key, read)
        if now >= known[0] and self._renewing.acquire(blocking=False):
            renewal = (key, read)
            threading.Thread(target=self._renew_beside, args=renewal, name="counts", daemon=True).start()
        return known[2]

    def _renew_beside(self, key: Hashable, read: Callable[[], T]) -> None:
        try:
            self._renew(key, read)
        except PenstockError:
            # The next request waits for the value, and reports the error.
            self._values.pop(key, None)
        finally:
            self._renewing.release()

    def _renew(self, key: Hashable, read: Callable[[], T]) -> T:
        began = clock.elapsed_s()
        value = read()
        if len(self._values) >= _MOST_COUNTED:
            self._values.clear()
        ended = clock.elapsed_s()
        lifetime = max(_COUNTED_EVERY_S, _SHARE * (ended - began))
        self._values[key] = ended + lifetime, ended + 2 * lifetime, value
        return value


def _worker_records(queue: Queue, heartbeat_s: float) -> list[WorkerRecord]:
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


def _breaker_records(workers: Sequence[WorkerReport]) -> list[BreakerRecord]:
    """Recently failed services, by the reports of living workers; the worst state of each."""
    found: dict[str, BreakerRecord] = {}
    for worker in workers:
        for name, state in worker.info.get("services", {}).items():
            word, _, reason = str(state).partition(": ")
            if name not in found or word == "open":
                found[name] = BreakerRecord(name=name, state=word, reason=reason or None)
    return [found[name] for name in sorted(found)]


def _in_status(counts: Mapping[tuple[Status, Any, Any], int], wanted: Status) -> int:
    return sum(number for (status, *_), number in counts.items() if status is wanted)


def _time_left(open_parts: int, rate: float | None) -> float | None:
    """Seconds until everything open has ended, at this rate; None if unknown."""
    if not open_parts:
        return 0.0
    return round(open_parts / rate, 1) if rate else None


def _tried(read: Callable[[], object]) -> str:
    try:
        read()
    except PenstockError as error:
        return error.code
    return "ok"


_Samples: TypeAlias = list[tuple[Mapping[str, str], float]]


class _Metric(msgspec.Struct, frozen=True):
    """One metric: its samples are pairs of labels and a value."""

    name: str
    kind: Literal["gauge", "counter", "summary"]
    help: str
    samples: _Samples


def _summary(name: str, text: str, sums: Mapping[str, tuple[float, float]]) -> _Metric:
    """Sum and count of durations, given in microseconds, by kind."""
    samples: _Samples = []
    for kind, (microseconds, number) in sums.items():
        labels = {"kind": kind} if kind else {}
        samples += [({**labels, "__suffix__": "_sum"}, microseconds / 1_000_000)]
        samples += [({**labels, "__suffix__": "_count"}, number)]
    return _Metric(name, "summary", text, samples)


def _written(metric: _Metric) -> str:
    name = _PREFIX + metric.name
    lines = [f"# HELP {name} {metric.help}", f"# TYPE {name} {metric.kind}"]
    lines += (_sample(name, labels, value) for labels, value in metric.samples)
    return "\n".join(lines) + "\n"


def _sample(name: str, labels: Mapping[str, str], value: float) -> str:
    shown = {label: text for label, text in labels.items() if label != "__suffix__"}
    listed = ",".join(f'{label}="{_escaped(text)}"' for label, text in shown.items())
    number = repr(float(value)) if value != int(value) else str(int(value))
    return f"{name}{labels.get('__suffix__', '')}{f'{{{listed}}}' if listed else ''} {number}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
